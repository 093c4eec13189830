//! `reprieve explain` in a real VM that a host limits, and on logs.

#[path = "../../vm/tests/support/archive.rs"]
mod archive;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::vm::{Begin, Vm, image};
use support::{Guests, PROGRAM, guests};

/// For how long the VM watches itself, s.
const WATCH_S: u64 = 8;
/// Far beyond what booting and two looks take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Both vCPUs are busy, and the VM explains itself again and again.
const INIT: &str = "#!/bin/busybox sh
cd /inside
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox ln -s busybox /bin/taskset
export PATH=/bin
taskset 1 sh -c 'while :; do :; done' &
taskset 2 sh -c 'while :; do :; done' &
while :; do ./self explain --json --for WATCH_S >/dev/ttyS0 2>/dev/null; done
";

/// A VM that explains itself.
struct Explained {
    vm: Vm,
}

impl Explained {
    fn boot(guests: &Guests) -> Option<Explained> {
        let init = INIT.replace("WATCH_S", &WATCH_S.to_string());
        let made = archive::with_program(&image(guests).initramfs, Path::new(PROGRAM), &init);
        let Some(archive) = made else {
            eprintln!("skipped: ldd does not say what the program is linked with");
            return None;
        };
        let vm = Vm::spawn_with(guests, "explained", Begin::Boot, Some(&archive));
        Some(Explained { vm })
    }

    fn verdicts(&self) -> Vec<Value> {
        let console = self.vm.console();
        console.lines().filter_map(|line| serde_json::from_str(line.trim()).ok()).collect()
    }

    /// Waits until it has said so many, and gives the last of these.
    fn wait_for(&self, count: usize) -> Value {
        let since = Instant::now();
        loop {
            if let Some(verdict) = self.verdicts().get(count - 1) {
                eprintln!("{verdict}");
                return verdict.clone();
            }
            assert!(since.elapsed() < PATIENCE, "{}", self.vm.console());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What it says of a time that begins after now: the next verdict may be of a time that began before.
    fn next(&self) -> Value {
        self.wait_for(self.verdicts().len() + 2)
    }

    /// What it says of a time in the middle of which the whole VM stands still.
    fn paused(&self, length: Duration) -> Value {
        let begun = self.verdicts().len() + 1;
        self.wait_for(begun);
        std::thread::sleep(Duration::from_secs(WATCH_S / 3));
        // Not by QEMU's `stop`, which stops the VM's clocks, too: nobody inside could see that.
        let qemu = Pid::from_raw(self.vm.pid()).unwrap();
        kill_process(qemu, Signal::STOP).unwrap();
        std::thread::sleep(length);
        kill_process(qemu, Signal::CONT).unwrap();
        self.wait_for(begun + 1)
    }
}

#[test]
fn a_vm_names_the_quota_of_its_host() {
    let Some(guests) = guests() else { return };
    let Some(mut explained) = Explained::boot(&guests) else { return };
    if explained.vm.limit().is_none() {
        return;
    }
    // How exact the figures are depends on what else the machine does, so they are not tested here. That a quota shows as one
    // is, with a second and a third look if the machine was busy.
    assert!((0..3).any(|_| is_quota_of_vcpu_1(&explained.next())));
}

#[test]
fn a_vm_tells_a_pause_and_busy_neighbours_from_a_quota() {
    let Some(guests) = guests() else { return };
    let Some(explained) = Explained::boot(&guests) else { return };
    let paused = explained.paused(Duration::from_secs(1));
    let mut findings = paused["findings"].as_array().unwrap().iter();
    let pause = findings.find(|finding| finding["cause"] == "pause").expect("a pause");
    let longest_s = pause["longest_ns"].as_f64().unwrap() / 1e9;
    assert!((0.9..3.0).contains(&longest_s), "{paused}");
    let hogs = [busy(), busy(), busy(), busy()];
    assert!((0..3).any(|_| causes(&explained.next()).iter().any(|cause| cause == "contention")));
    drop(hogs);
}

fn is_quota_of_vcpu_1(verdict: &Value) -> bool {
    let found = &verdict["findings"][0];
    found["cause"] == "quota" && found["vcpus"] == json!([1])
}

fn causes(verdict: &Value) -> Vec<String> {
    let findings = verdict["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["cause"].as_str().unwrap().to_string()).collect()
}

/// A process that burns a CPU.
struct Busy(Child);

fn busy() -> Busy {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    child::die_with_parent(&mut command);
    Busy(command.spawn().unwrap())
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn of_log(log: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["explain", "--dmesg", "-"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_log_is_judged_from_standard_input() {
    let log = "[0.0] Hypervisor detected: KVM
[200.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[200.0] rcu: \t1-...0: (0 ticks this GP) idle=5e6/1/0x4000000000000000 softirq=1/1 fqs=2100
[200.0] \t(detected by 0, t=5263 jiffies, g=2373, q=3 ncpus=2)
";
    let said = of_log(log, &[]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.starts_with("1 stall: CPU 1 took 0 timer ticks in 5263 jiffies: the host did not run the vCPU"),
        "{text}"
    );
    let json: Value = serde_json::from_slice(&of_log(log, &["--json"]).stdout).unwrap();
    assert_eq!((&json["findings"][0]["cause"], &json["virtual"]), (&"no-ticks".into(), &true.into()));
    assert_eq!(json["findings"][0]["longest"]["cpus"], json!([{ "cpu": 1, "ticks": 0, "idle": false }]));
    let bare = of_log(&log.replace("[0.0] Hypervisor detected: KVM\n", ""), &["--json"]).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&bare).unwrap()["virtual"], Value::Null, "it may be a VM's");
    let quiet = String::from_utf8(of_log("\u{fffd}\n[1.0] eth0: link up\n", &[]).stdout).unwrap();
    assert_eq!(quiet, "The log has no RCU stall.\n");
}

#[test]
fn what_else_a_log_complains_of_is_told() {
    let log = "[1.0] INFO: task jbd2/vda1-8:190 blocked for more than 120 seconds.
[3.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]
[5.0] hrtimer: interrupt took 44000000 ns
";
    let text = String::from_utf8(of_log(log, &[]).stdout).unwrap();
    let expected = "The log has no RCU stall.
Also in the log: 1 report of a soft lockup, the longest of 22 s.
Also in the log: 1 report of a blocked task, first jbd2/vda1-8:190 for more than 120 s.
Also in the log: a timer's interrupt took 44.0 ms.
";
    assert_eq!(text, expected);
}

/// A socket cannot be opened by its name, like a file of another user.
#[test]
fn a_standard_input_that_cannot_be_opened_again_is_read() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"[1.0] eth0: link up\n").unwrap();
    drop(ours);
    let mut command = Command::new(PROGRAM);
    command.args(["explain", "--dmesg", "-"]).stdin(Stdio::from(OwnedFd::from(theirs)));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "The log has no RCU stall.\n", "{output:?}");
}

/// Whoever forgets the pipe is told what is waited for.
#[test]
fn a_silent_standard_input_is_spoken_of() {
    let mut command = Command::new(PROGRAM);
    command.args(["explain", "--dmesg", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    child.stdin.take().unwrap().write_all(b"[1.0] eth0: link up\n").unwrap();
    assert_eq!(said, "reprieve: standard input: waiting for its writer, which says nothing\n");
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn a_log_that_is_not_there_is_an_error_with_a_way_out() {
    let output = Command::new(PROGRAM).args(["explain", "--dmesg", "/nowhere/log"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere/log") && said.contains("dmesg | reprieve explain --dmesg -"), "{said}");
}
