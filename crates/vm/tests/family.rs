//! What a user sets stays while `reprieve migrate` moves tasks, on a kernel of a distribution, with two vCPUs and with four, where
//! calls of sched_setaffinity(2) are told by probes that nobody else pays for. The tests are those of the linux crate.

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/migrate_family.rs"]
mod linux_family;
mod support;

use std::time::Duration;

use support::Bench;

/// How many tasks there are of each form: `make wishes` asks for more.
fn pins() -> u64 {
    std::env::var("REPRIEVE_TEST_PINS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

fn on(vcpus: usize) {
    let environment = format!("REPRIEVE_TEST_PINS={}", pins());
    let Some(bench) = Bench::open() else { return };
    let limit = Duration::from_secs(pins());
    let Some(output) = inside::run(&bench, vcpus, "linux_", &environment, limit) else { return };
    assert!(output.contains("test result: ok. 4 passed"), "{output}");
    assert!(!output.contains("skipped:"), "{output}");
    assert!(output.contains("the probe of calls slows all system calls: false"), "{output}");
}

#[test]
fn nothing_that_a_user_sets_is_lost_on_two_vcpus() {
    on(2);
}

#[test]
fn nothing_that_a_user_sets_is_lost_on_four_vcpus() {
    on(4);
}
