//! The collector's eBPF in a guest, on both of the distribution's kernels. The tests are those of the linux crate.
#![cfg(feature = "ebpf")]

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/ebpf.rs"]
mod linux_ebpf;
mod support;

use std::path::PathBuf;
use std::time::Duration;

use reprieve_vm::qemu::Accel;
use support::{Bench, text};

/// Emulated vCPUs run in turn, on one thread: each program that is loaded makes the kernel patch its own code, and QEMU's threads
/// can miss that of each other (see `qemu::command`). A guest of 6.12 jumped to address 0 then.
fn in_turn(mut bench: Bench) -> Bench {
    if bench.lab.chosen.accel == Accel::Tcg {
        bench.lab.chosen.accel = Accel::TcgInTurn;
    }
    bench
}

fn check(bench: Bench) {
    let bench = &in_turn(bench);
    let Some(output) = inside::run(bench, 2, "linux_ebpf", "", Duration::from_secs(120)) else { return };
    assert!(output.contains("test result: ok. 4 passed") && !output.contains("skipped:"), "{output}");
}

#[test]
fn ebpf_sees_the_current_kernel() {
    let Some(bench) = Bench::open() else { return };
    check(bench);
}

#[test]
fn ebpf_sees_linux_6_12() {
    let Some(bench) = Bench::open_series("6.12") else { return };
    check(bench);
}

/// What the collector costs in a guest of one vCPU, for hosts whose kernel permits no eBPF: the example `observe_cost` runs there,
/// and its record is kept.
#[test]
#[ignore = "measures for a quarter of an hour: make cost-in-guest"]
fn the_collector_s_cost_in_a_guest() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (program, to) = (variable("REPRIEVE_COST_PROGRAM"), variable("REPRIEVE_COST_RECORD"));
    let rounds: u64 = variable("REPRIEVE_COST_ROUNDS").parse().unwrap();
    let bench = in_turn(Bench::open_series("6.12").expect("a guest"));
    let command = format!("echo 1 >/proc/sys/kernel/bpf_stats_enabled; ./self {rounds} /inside/record");
    // A round takes a minute or so.
    let limit = Duration::from_secs(rounds * 120);
    let mut booted =
        inside::booted_after(&bench, 1, &PathBuf::from(program), &command, limit).expect("a guest");
    eprintln!("{}", text(&mut booted, inside::OUTPUT));
    let record = text(&mut booted, "/inside/record");
    assert!(!record.is_empty());
    std::fs::write(to, record).unwrap();
}
