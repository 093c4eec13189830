//! The collector's eBPF in a guest, on both of the distribution's kernels. The tests are those of the linux crate.
#![cfg(feature = "ebpf")]

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/ebpf.rs"]
mod linux_ebpf;
mod support;

use std::time::Duration;

use support::Bench;

fn check(bench: &Bench) {
    let Some(output) = inside::run(bench, 2, "linux_ebpf", "", Duration::from_secs(120)) else { return };
    assert!(output.contains("test result: ok. 4 passed") && !output.contains("skipped:"), "{output}");
}

#[test]
fn ebpf_sees_the_current_kernel() {
    let Some(bench) = Bench::open() else { return };
    check(&bench);
}

#[test]
fn ebpf_sees_linux_6_12() {
    let Some(bench) = Bench::open_series("6.12") else { return };
    check(&bench);
}
