//! CPU quotas and cpusets on a real cgroup v2 hierarchy, whatever the host has: in a guest, whose kernel has nothing mounted
//! until we say so. The tests are those of the linux crate, unchanged; this program itself runs there.

#[path = "support/inside.rs"]
mod inside;
#[path = "../../linux/tests/migrate_cpuset.rs"]
mod linux_cpuset;
#[path = "../../linux/tests/quota.rs"]
mod linux_quota;
mod support;

use std::time::Duration;

use support::Bench;

#[test]
fn quotas_and_cpusets_on_a_real_cgroup_v2_hierarchy() {
    let Some(bench) = Bench::open() else { return };
    let Some(output) = inside::run(&bench, 2, "linux_", "NOTHING=", Duration::ZERO) else { return };
    assert!(output.contains("test result: ok. 3 passed"), "{output}");
    assert!(!output.contains("skipped:"), "{output}");
}
