//! `reprieve watch` on the serial console of a real VM, before, while and after its host limits a vCPU.
//!
//! The screens in docs/watch.md are those that it prints, and so are the times from an incident to its verdict:
//!
//! ```text
//! REPRIEVE_TEST_INCIDENTS=20 cargo test -p reprieve --release --test watch_guest -- --nocapture
//! ```

#[path = "../../vm/tests/support/archive.rs"]
mod archive;
mod support;

use std::num::NonZero;
use std::path::Path;
use std::time::{Duration, Instant};

use support::vm::{Begin, Vm, image};
use support::{PROGRAM, guests};

/// Far beyond what a step takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// For how long the end of a close look is waited for.
const QUIET_LIMIT: Duration = Duration::from_secs(40);
/// For how long a screen goes on before the next step, where incidents are counted.
const LOOK: Duration = Duration::from_secs(12);
/// vCPU 1 is busy. The console is a terminal of 80x24 without colour.
const INIT: &str = "#!/bin/busybox sh
cd /inside
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox taskset 2 $busybox sh -c 'while :; do :; done' &
$busybox stty -F /dev/ttyS0 rows 24 cols 80
TERM=vt100 NO_COLOR=1 ./self watch --tier T0 </dev/ttyS0 >/dev/ttyS0 2>&1
echo \"watch has ended: $?\" >/dev/ttyS0
$busybox sleep 1000
";

fn screen(vm: &Vm) -> String {
    let mut parser = vt100::Parser::new(NonZero::new(24).unwrap(), NonZero::new(80).unwrap(), 0);
    parser.process(&vm.console_bytes());
    parser.screen().contents()
}

/// How many incidents are wanted.
fn incidents() -> Option<usize> {
    std::env::var("REPRIEVE_TEST_INCIDENTS").ok().map(|count| count.parse().expect("a number"))
}

/// Lets the screen show how it goes on, where incidents are counted, and prints it.
fn look(vm: &Vm) {
    if incidents().is_some() {
        std::thread::sleep(LOOK);
        eprintln!("{}\n", screen(vm));
    }
}

/// Waits until the screen is so, for at most `limit`, and prints it.
fn is_within(limit: Duration, vm: &Vm, what: &str, is_so: impl Fn(&str) -> bool) -> bool {
    let since = Instant::now();
    while !is_so(&screen(vm)) {
        if since.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("{what}: after {:.1} s", since.elapsed().as_secs_f64());
    eprintln!("{}\n", screen(vm));
    true
}

/// Waits until the screen is so, and prints it.
fn wait_for(vm: &Vm, what: &str, is_so: impl Fn(&str) -> bool) {
    assert!(is_within(PATIENCE, vm, what, is_so), "{what}:\n{}", screen(vm));
}

fn names_quota(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.starts_with("The host limits the CPU time of vCPU 1"))
}

#[test]
fn a_quota_comes_and_goes_on_the_screen() {
    let Some(guests) = guests() else { return };
    let made = archive::with_program(&image(&guests).initramfs, Path::new(PROGRAM), INIT);
    let Some(archive) = made else {
        return eprintln!("skipped: ldd does not say what the program is linked with");
    };
    let mut vm = Vm::spawn_with(&guests, "watched", Begin::Boot, Some(&archive));
    wait_for(&vm, "before", |text| text.contains("vCPU 1 off") && text.contains("q quit"));
    look(&vm);
    for number in 0..incidents().unwrap_or(1) {
        if incidents().is_some() {
            // A verdict comes sooner where a close look has begun already, by the incident before or by noise of the emulation, which
            // can take 2 % of the time for minutes.
            if !is_within(QUIET_LIMIT, &vm, "no close look", |text| text.contains("beats/s")) {
                eprintln!("incident {number} begins during a close look");
            }
            // Incidents begin at all phases of the samples.
            std::thread::sleep(Duration::from_millis(number as u64 * 370 % 1000));
        }
        if vm.limit().is_none() {
            return;
        }
        wait_for(&vm, "while", names_quota);
        if number == 0 {
            look(&vm);
        }
        vm.unlimit();
        wait_for(&vm, "after", |text| text.contains("q quit") && !names_quota(text));
        if number == 0 {
            look(&vm);
        }
    }
}
