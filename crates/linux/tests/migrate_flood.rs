//! Tests more calls of sched_setaffinity(2) than the kernel's records hold. It is a program of its own, because it
//! fills the rings of all tests that watch such calls.

use reprieve_linux::migrate::{CallWatch, SetByOther};
use reprieve_linux::proc::{ProcRoot, SysCpus};
use reprieve_linux::threads;
use reprieve_policy::cpus::CpuSet;

/// More than the rings of all CPUs hold together, whichever CPU they are made on.
const CALLS: usize = 20_000;
/// No task has this id.
const NO_TASK: i32 = i32::MAX;

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * reprieve_policy::SECOND_NS + now.tv_nsec as u64
}

#[test]
fn after_a_flood_of_calls_the_answer_is_unknown() {
    let (root, sys) = (ProcRoot::default(), SysCpus::default());
    let mut call_watch = match CallWatch::open(sys.path(), &sys.online(), now_ns()) {
        Ok(call_watch) => call_watch,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    let began_ns = now_ns();
    call_watch.look(&root);
    assert_eq!(call_watch.since(&[NO_TASK], began_ns), SetByOther::Never);
    for _ in 0..CALLS {
        threads::set_affinity_set(NO_TASK, &CpuSet::of(0)).unwrap_err();
    }
    call_watch.look(&root);
    assert_eq!(call_watch.since(&[NO_TASK], began_ns), SetByOther::Unknown);
    // The kernel reports the loss once more, with the next record that finds room.
    call_watch.look(&root);
    threads::set_affinity_set(NO_TASK, &CpuSet::of(0)).unwrap_err();
    call_watch.look(&root);
    assert_eq!(call_watch.since(&[NO_TASK], now_ns()), SetByOther::Never);
}
