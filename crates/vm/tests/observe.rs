//! Deferred frees are counted in a guest, on both of the distribution's kernels. The test is that of the linux crate.

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/observe.rs"]
mod linux_observe;
mod support;

use std::time::Duration;

use support::Bench;

fn check(bench: &Bench) {
    let Some(output) = inside::run(bench, 2, "linux_observe", "", Duration::from_secs(60)) else { return };
    assert!(output.contains("test result: ok. 1 passed") && !output.contains("skipped:"), "{output}");
}

#[test]
fn the_current_kernel_s_deferred_frees_are_counted() {
    let Some(bench) = Bench::open() else { return };
    check(&bench);
}

#[test]
fn those_of_linux_6_12_are_counted() {
    let Some(bench) = Bench::open_series("6.12") else { return };
    check(&bench);
}
