//! The collector's eBPF in a guest, on both of the distribution's kernels. The tests are those of the linux crate.
#![cfg(feature = "ebpf")]

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/ebpf.rs"]
mod linux_ebpf;
mod support;

use std::time::Duration;

use reprieve_vm::qemu::Accel;
use support::Bench;

/// Emulated vCPUs run in turn, on one thread: each program that is loaded makes the kernel patch its own code, and QEMU's threads
/// can miss that of each other (see `qemu::command`). A guest of 6.12 jumped to address 0 then.
fn check(mut bench: Bench) {
    if bench.lab.chosen.accel == Accel::Tcg {
        bench.lab.chosen.accel = Accel::TcgInTurn;
    }
    let bench = &bench;
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
