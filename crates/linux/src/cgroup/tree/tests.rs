//! Tests of the tree on a fake host: what it writes, in which order, and that it leaves nothing behind.

use super::super::fake::FakeHost;
use super::*;

fn quota(quota_us: u64, period_us: u64) -> Quota {
    Quota::new(quota_us, period_us).unwrap()
}

#[test]
fn v1_life_of_a_tree() {
    let host = FakeHost::with(Version::V1);
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let group = tree.quota_group("g", quota(20_000, 100_000)).unwrap();
    host.thread(31, "/own");
    tree.adopt_process(31).unwrap();
    tree.assign(31, group).unwrap();
    let made = [
        "mkdir m/own/reprieve-t",
        "mkdir m/own/reprieve-t/g",
        "write m/own/reprieve-t/g/cpu.cfs_period_us 100000",
        "write m/own/reprieve-t/g/cpu.cfs_quota_us 20000",
        "write m/own/reprieve-t/g/tasks 31",
    ];
    assert_eq!(host.log(), made);
    host.thread(31, "/own/reprieve-t/g");
    assert_eq!(tree.directory, host.path("m/own/reprieve-t"));
    assert_eq!(tree.groups, [host.path("m/own/reprieve-t/g")]);
    drop(tree);
    let removed = ["write m/own/tasks 31", "rmdir m/own/reprieve-t/g", "rmdir m/own/reprieve-t"];
    assert_eq!(host.log(), removed);
}

#[test]
fn v2_life_of_a_tree() {
    let host = FakeHost::with(Version::V2);
    host.thread(30, "/own");
    let mut tree = host.detect().unwrap().create("t").unwrap();
    tree.adopt_process(30).unwrap();
    host.thread(30, "/reprieve-t");
    host.thread(31, "/reprieve-t");
    let group = tree.quota_group("g", quota(20_000, 100_000)).unwrap();
    tree.assign(31, group).unwrap();
    let made = [
        "write m/cgroup.subtree_control +cpu",
        "mkdir m/reprieve-t",
        "write m/reprieve-t/cgroup.subtree_control +cpu",
        "write m/reprieve-t/cgroup.procs 30",
        "mkdir m/reprieve-t/g",
        "write m/reprieve-t/g/cgroup.type threaded",
        "write m/reprieve-t/g/cpu.max 20000 100000",
        "write m/reprieve-t/g/cgroup.threads 31",
    ];
    assert_eq!(host.log(), made);
    host.thread(31, "/reprieve-t/g");
    tree.release(31).unwrap();
    assert_eq!(host.log(), ["write m/reprieve-t/cgroup.threads 31"]);
    host.put("m/reprieve-t/cgroup.threads", "");
    tree.close().unwrap();
    assert_eq!(host.log(), ["rmdir m/reprieve-t/g", "write m/own/cgroup.procs 30", "rmdir m/reprieve-t"]);
}

#[test]
fn v2_wants_the_process_adopted_first() {
    let host = FakeHost::with(Version::V2);
    host.thread(31, "/own");
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let group = tree.quota_group("g", quota(1_000, 1_000)).unwrap();
    assert!(tree.assign(31, group).unwrap_err().to_string().contains("adopt_process"));
}

#[test]
fn v1_never_passes_through_a_larger_share() {
    let host = FakeHost::with(Version::V1);
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let group = tree.quota_group("g", quota(20_000, 100_000)).unwrap();
    host.log();
    tree.set_quota(group, quota(2_000, 10_000)).unwrap();
    let shorter = ["cfs_quota_us 2000", "cfs_period_us 10000"];
    assert_eq!(host.log(), shorter.map(|w| format!("write m/own/reprieve-t/g/cpu.{w}")));
    tree.set_quota(group, quota(50_000, 100_000)).unwrap();
    let longer = ["cfs_period_us 100000", "cfs_quota_us 50000"];
    assert_eq!(host.log(), longer.map(|w| format!("write m/own/reprieve-t/g/cpu.{w}")));
}

#[test]
fn a_thread_moves_between_groups_and_back_to_its_first_home() {
    let host = FakeHost::with(Version::V1);
    host.put("m/elsewhere/tasks", "");
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let a = tree.quota_group("a", quota(1_000, 1_000)).unwrap();
    let b = tree.quota_group("b", quota(1_000, 1_000)).unwrap();
    host.thread(31, "/elsewhere");
    tree.assign(31, a).unwrap();
    host.thread(31, "/own/reprieve-t/a");
    tree.assign(31, b).unwrap();
    host.thread(31, "/own/reprieve-t/b");
    host.log();
    tree.release(31).unwrap();
    assert_eq!(host.log(), ["write m/elsewhere/tasks 31"]);
}

#[test]
fn reused_tids_and_ended_threads_are_not_moved() {
    let host = FakeHost::with(Version::V1);
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let group = tree.quota_group("g", quota(1_000, 1_000)).unwrap();
    host.thread(31, "/own");
    tree.assign(31, group).unwrap();
    host.log();
    host.thread(31, "/somebody/else"); // Another thread has the tid now.
    tree.release(31).unwrap();
    host.proc.remove("31");
    tree.release(31).unwrap();
    assert_eq!(host.log(), [""; 0]);
    assert!(tree.assign(31, group).unwrap_err().is_gone());
    assert!(matches!(tree.assign(0, group), Err(Error::Invalid { .. })));
}

#[test]
fn a_home_that_is_gone_is_replaced_by_the_base() {
    let host = FakeHost::with(Version::V1);
    host.thread(31, "/gone");
    let mut tree = host.detect().unwrap().create("t").unwrap();
    let group = tree.quota_group("g", quota(1_000, 1_000)).unwrap();
    tree.assign(31, group).unwrap();
    host.thread(31, "/own/reprieve-t/g");
    host.log();
    tree.release(31).unwrap();
    assert_eq!(host.log(), ["write m/own/tasks 31"]);
}

#[test]
fn inherited_threads_leave_before_the_directories_go() {
    let host = FakeHost::with(Version::V1);
    let mut tree = host.detect().unwrap().create("t").unwrap();
    tree.quota_group("g", quota(1_000, 1_000)).unwrap();
    host.put("m/own/reprieve-t/g/tasks", "40\n41\n");
    tree.close().unwrap();
    assert!(!host.path("m/own/reprieve-t").exists());
}

#[test]
fn names_are_checked() {
    let host = FakeHost::with(Version::V1);
    let cgroups = host.detect().unwrap();
    for name in ["", "..", "a/b", "A", "a_b", "a\n", &"x".repeat(MAX_NAME_BYTES + 1)] {
        assert!(matches!(cgroups.create(name), Err(Error::Invalid { .. })), "{name:?}");
    }
    let mut tree = cgroups.create(&"x".repeat(MAX_NAME_BYTES)).unwrap();
    assert!(tree.quota_group("../x", quota(1_000, 1_000)).is_err());
}

#[test]
fn refusals_are_reported_and_nothing_is_left() {
    let host = FakeHost::with(Version::V1);
    let cgroups = host.detect().unwrap();
    host.refuse("mkdir", libc::EACCES, 1);
    assert!(cgroups.create("t").unwrap_err().is_not_permitted());
    let mut tree = cgroups.create("t").unwrap();
    assert!(cgroups.create("t").unwrap_err().to_string().contains("sweep_stale"));
    host.refuse("cfs_quota_us", libc::EINVAL, 1);
    let refused = tree.quota_group("g", quota(1_000, 1_000)).unwrap_err();
    assert!(refused.to_string().contains("the group above"));
    drop(tree);
    assert!(!host.path("m/own/reprieve-t").exists());
}
