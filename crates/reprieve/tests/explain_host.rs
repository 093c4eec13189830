//! `reprieve explain --pid` on the host of a real VM: it names what keeps the vCPUs off.

mod support;

use std::process::{Child, Command, Output, Stdio};

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::{child, threads};
use reprieve_vm::attach;
use serde_json::Value;
use support::vm::Vm;
use support::{PROGRAM, guests};

fn explain(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["explain", "--for", "4"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn verdict(vm: &Vm) -> Value {
    let output = explain(&["--json", "--pid", &vm.pid().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    serde_json::from_str(&text).unwrap()
}

/// A process of this name that burns the CPU to which it is bound, until it is dropped.
struct Busy(Child);

fn busy(cpu: usize) -> Busy {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    child::die_with_parent(&mut command);
    let busy = Busy(command.spawn().unwrap());
    threads::set_affinity(busy.0.id() as i32, &[cpu]).unwrap();
    busy
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_names_the_quota_and_the_task_in_the_way() {
    let Some(guests) = guests() else { return };
    let mut vm = Vm::start(&guests, "kept-off");
    let Some(group) = vm.limit() else { return };
    vm.link.start("memory").unwrap();
    let limited = verdict(&vm);
    let found = &limited["findings"][0];
    assert_eq!(found["cause"], "quota", "{limited}");
    assert_eq!(found["quota"]["period_ns"], 100_000_000, "{limited}");
    assert!(found["cgroup"].as_str().unwrap().starts_with(group.to_str().unwrap()), "{limited}");
    assert!(limited["grace_periods"]["count"].as_u64().unwrap() > 0, "{limited}");

    // Without the quota, four processes on the pCPU of vCPU 0 are in its way.
    drop(vm);
    let mut vm = Vm::start(&guests, "crowded");
    vm.link.start("memory").unwrap();
    let vcpus = attach::of(&ProcRoot::default(), vm.pid()).unwrap().vcpus;
    threads::set_affinity(vcpus[0], &[0]).unwrap();
    let crowd: Vec<Busy> = (0..4).map(|_| busy(0)).collect();
    let crowded = verdict(&vm);
    drop(crowd);
    let found = &crowded["findings"][0];
    assert_eq!(found["cause"], "other-tasks", "{crowded}");
    let tasks = found["tasks"].as_array().unwrap();
    assert!(tasks.iter().any(|task| task["name"] == "sh" && task["whose"] == "other"), "{crowded}");
    assert!(crowded["waited_ns"][0].as_u64() > crowded["waited_ns"][1].as_u64(), "{crowded}");
}

#[test]
fn what_is_no_guest_is_refused() {
    let own = explain(&["--pid", &std::process::id().to_string()]);
    assert_eq!(own.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&own.stderr).contains("no thread of a vCPU"), "{own:?}");
    let nobody = explain(&["--pid", "2147483647"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
}
