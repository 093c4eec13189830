//! fork while values are pinned. The child may use what a slot of another thread pins, because a scoped thread may
//! have lent it out. One test, because a fork concerns the whole process.

mod common;

use reprieve_rcu::RcuCell;
use std::sync::mpsc;

/// Runs `child` in a child process, and demands that it returns true.
fn in_child(child: impl FnOnce() -> bool) {
    // SAFETY: the child does what the test is about, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // The signal ends a child that hangs.
        // SAFETY: takes and touches nothing.
        unsafe { libc::alarm(20) };
        let status = i32::from(!child());
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn pinned_values_stay_in_the_child() {
    let domain = common::domain();
    let cell = RcuCell::in_domain(&domain, "first".to_owned());
    let (send, receive) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (domain, cell) = (&domain, &cell);
        let lent: &String = Box::leak(Box::new(cell.hold()));
        s.spawn(move || {
            cell.with(|_| {
                send.send(()).unwrap();
                // Until the other end is dropped, also if a panic does so.
                let _ = is_over.recv();
            });
        });
        let _over = over;
        receive.recv().unwrap();
        let held = cell.hold();
        in_child(|| {
            cell.replace("second".to_owned());
            let _reuse: Vec<String> = (0..64).map(|i| format!("no {i}")).collect();
            let kept = *held == "first" && lent == "first" && domain.stats().garbage_objects == 1;
            // From here on the child does its own work.
            cell.replace("third".to_owned());
            let own = cell.hold();
            cell.with(|v| v == "third" && *own == "third") && kept && domain.stats().garbage_objects == 1
        });
        // Forked within a closure: the closure's slot stays in use in the child, so another use falls back to a
        // section.
        cell.with(|value| {
            in_child(|| {
                cell.replace("second".to_owned());
                cell.with(|now| value == "first" && now == "second")
            });
            assert_eq!(value, "first");
        });
    });
}
