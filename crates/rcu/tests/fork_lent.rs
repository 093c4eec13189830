//! fork while another thread is in a section. The child may hold references that this section lent out, so the
//! section goes on there. One test, because a fork concerns the whole process.

mod common;

use reprieve_rcu::{Domain, RcuCell};
use std::time::{Duration, Instant};

/// Runs `child` in a child process, and demands that it returns true.
fn in_child(child: impl FnOnce() -> bool) {
    // SAFETY: the child does what the test is about, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = i32::from(!child());
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

fn is_stuck(domain: &Domain) -> bool {
    domain.synchronize_until(Instant::now() + Duration::from_millis(5)).is_err()
}

#[test]
fn a_reference_that_another_thread_lent_out_is_good_in_the_child() {
    let domain = common::domain();
    let cell = RcuCell::in_domain(&domain, "lent".to_owned());
    let (send, receive) = std::sync::mpsc::channel();
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (domain, cell) = (&domain, &cell);
        s.spawn(move || {
            // Leaked, so that the reference may be sent to a thread that outlives this one.
            let guard: &reprieve_rcu::Guard<'_> = Box::leak(Box::new(domain.lock()));
            send.send(cell.load(guard)).unwrap();
            // Until the other end is dropped, also if a panic does so.
            let _ = is_over.recv();
        });
        let _over = over;
        let borrowed: &String = receive.recv().unwrap();
        in_child(|| {
            cell.replace("another".to_owned());
            let _reuse: Vec<String> = (0..64).map(|i| format!("no {i}")).collect();
            let late = domain.stats().late;
            borrowed == "lent" && is_stuck(domain) && late.len() == 1 && late[0].ended
        });
        in_child(|| {
            cell.replace("another".to_owned());
            // SAFETY: the borrowed reference is not used from here on.
            unsafe { domain.end_sections_of_the_parent() };
            domain.reclaim_now();
            !is_stuck(domain) && domain.stats().garbage_objects == 0
        });
    });
}
