//! Forks made by a callback, and forks of a process that has a reclaimer thread. All are in one test, because a fork
//! concerns the whole process.

mod common;

use reprieve_rcu::Domain;
use std::sync::mpsc;
use std::time::Duration;

/// Runs `child` in a child process, and asserts that it succeeds within 20 s.
fn in_child(child: impl FnOnce()) {
    // SAFETY: the child only runs `child`, and leaves by _exit. The test is about domains after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: alarm has no preconditions; it ends the child if it hangs.
        unsafe { libc::alarm(20) };
        child();
        // SAFETY: _exit has no preconditions; it skips the parent's destructors.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` may be written.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn the_child_does_not_wait_for_work_of_the_parent() {
    let domain = Domain::new(common::options().batch(2));
    let own = domain.clone();
    domain.defer(move || {
        let pid = std::process::id();
        in_child(|| assert_ne!(std::process::id(), pid));
        // The next barrier waits for the callback's end.
        drop(own);
    });
    domain.defer(|| ());
    domain.barrier();

    let forks = Domain::new(common::options().batch(2));
    let for_callback = forks.clone();
    forks.defer(move || {
        // SAFETY: the child returns from the callback, and then ends below.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid > 0 {
            let mut status = 0;
            // SAFETY: `status` may be written.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(status, 7 << 8);
        } else {
            // SAFETY: alarm has no preconditions; it ends the child if it hangs.
            unsafe { libc::alarm(20) };
        }
        drop(for_callback);
    });
    let parent = std::process::id();
    forks.barrier();
    if std::process::id() != parent {
        forks.defer(|| ());
        forks.barrier();
        // SAFETY: _exit has no preconditions; it skips the parent's destructors.
        unsafe { libc::_exit(7) };
    }

    the_child_goes_on_with_a_barrier();

    let reclaimer = domain.spawn_reclaimer().unwrap();
    in_child(|| {
        let another = domain.spawn_reclaimer().unwrap();
        drop(reclaimer);
        domain.defer(|| ());
        domain.barrier();
        assert!(domain.spawn_reclaimer().is_err(), "the child's reclaimer still runs");
        drop(another);
    });
}

/// A callback forks during a barrier. In the child this barrier goes on, and a second one waits until the first has
/// ended.
fn the_child_goes_on_with_a_barrier() {
    let domain = common::domain();
    let guard = domain.lock();
    let (own, parent) = (domain.clone(), std::process::id());
    let (begin, begun) = mpsc::channel();
    let (send, done) = mpsc::channel();
    domain.defer(move || {
        // SAFETY: the child returns from the callback, and then ends below.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid > 0 {
            let mut status = 0;
            // SAFETY: `status` may be written.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(status, 8 << 8);
            return;
        }
        // SAFETY: alarm has no preconditions; it ends the child if it hangs.
        unsafe { libc::alarm(20) };
        std::thread::spawn(move || {
            begin.send(()).unwrap();
            own.barrier();
            send.send(()).unwrap();
        });
        begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(done.try_recv().is_err(), "two barriers ran at once");
        // SAFETY: _exit has no preconditions; it skips the parent's destructors.
        std::thread::spawn(move || done.recv().map(|()| unsafe { libc::_exit(8) }));
    });
    drop(guard);
    domain.barrier();
    if std::process::id() != parent {
        // The thread above ends the child sooner, unless the second barrier hangs.
        std::thread::sleep(Duration::from_secs(20));
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(9) };
    }
}
