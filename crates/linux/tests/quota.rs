//! Tests a quota on a live thread, with this machine's cgroups; skipped with a message if not permitted.
//!
//! It asserts that throttling happens and ends, not how much, since test machines are noisy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reprieve_linux::Error;
use reprieve_linux::cgroup::{Cgroups, Quota, QuotaTree, Version, sweep_stale, unique_name};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::threads::own_tid;

/// Far beyond the 100 ms of a period.
const PATIENCE: Duration = Duration::from_secs(30);

fn tree_or_skip() -> Option<QuotaTree> {
    let root = ProcRoot::default();
    let made = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?));
    match made {
        Ok(tree) => Some(tree),
        Err(e @ (Error::Missing { .. } | Error::NotPermitted { .. })) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// The cgroup that a thread is in, for this machine's cpu controller.
fn cgroup_text(tid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap()
}

/// Number of periods in which a group ran out of quota.
fn throttled_periods(group: &Path) -> u64 {
    let text = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
    line.trim().parse().unwrap()
}

fn wait_for_throttling(tree: &QuotaTree) {
    let start = Instant::now();
    while throttled_periods(&tree.directory.join("spin")) < 2 {
        assert!(start.elapsed() < PATIENCE, "never throttled");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_spinning_thread_is_throttled_and_released() {
    let Some(mut tree) = tree_or_skip() else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let (send_tid, tid) = mpsc::channel();
    let spinner = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            send_tid.send(own_tid()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    let tid = tid.recv().unwrap();
    let before = cgroup_text(tid);
    tree.adopt_process(std::process::id() as i32).unwrap();
    let group = tree.quota_group("spin", Quota::from_percent(20.0, 100_000).unwrap()).unwrap();
    tree.assign(tid, group).unwrap();
    assert!(cgroup_text(tid).contains("/reprieve-"));
    wait_for_throttling(&tree);

    tree.set_quota(group, Quota::new(5_000, 10_000).unwrap()).unwrap();
    tree.set_quota(group, Quota::new(10_000, 200_000).unwrap()).unwrap();
    tree.release(tid).unwrap();
    assert!(!cgroup_text(tid).contains("/spin"));
    // The same with the thread still inside when the tree ends.
    tree.assign(tid, group).unwrap();
    let paths = [tree.directory.join("spin"), tree.directory.clone()];
    assert!(paths.iter().all(|path| path.is_dir()));
    tree.close().unwrap();
    assert!(!paths.iter().any(|path| path.exists()));
    assert_eq!(cgroup_text(tid), before);
    stop.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
}

#[test]
fn a_live_owner_is_not_swept_a_dead_one_is() {
    let Some(tree) = tree_or_skip() else { return };
    let root = ProcRoot::default();
    let cgroups = Cgroups::detect(&root).unwrap();
    // No process has so large a PID.
    let stale = cgroups.create("2000000000-1-0").unwrap();
    let removed = sweep_stale(&cgroups, &root).unwrap();
    assert!(removed.contains(&stale.directory));
    assert!(tree.directory.exists());
    assert!(matches!(cgroups.version, Version::V1 | Version::V2));
}
