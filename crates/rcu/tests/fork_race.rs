//! Several threads fork at a time. In each child, the sections of the thread that forked go on. One test, because a
//! fork concerns the whole process.

mod common;

use reprieve_rcu::Domain;

const FORKS: usize = 200;

/// Whether the only reader that holds up `domain` is the calling thread.
fn is_held_up_by_this_thread_alone(domain: &Domain, name: &str) -> bool {
    // SAFETY: gettid takes and touches nothing.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    domain.start();
    // SAFETY: no reference that another thread's section lent out is used.
    unsafe { domain.end_sections_of_the_parent() };
    let late = domain.stats().late;
    late.len() == 1 && late[0].tid == tid && late[0].name == name && !late[0].ended
}

#[test]
fn a_child_keeps_the_sections_of_the_thread_that_forked() {
    let domain = common::domain();
    // With more domains the handlers take longer, so that they overlap.
    let _more: Vec<_> = (0..500).map(|_| common::domain()).collect();
    let (domain, lost) = (&domain, std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|s| {
        for name in ["one", "two", "three"] {
            let lost = &lost;
            s.spawn(move || {
                let reader = domain.register(name).unwrap();
                let _guard = reader.lock();
                for _ in 0..FORKS {
                    // SAFETY: the child does what the test is about, and leaves by _exit.
                    let pid = unsafe { libc::fork() };
                    assert!(pid >= 0);
                    if pid == 0 {
                        let status = i32::from(!is_held_up_by_this_thread_alone(domain, name));
                        // SAFETY: ends the child without the parent's destructors.
                        unsafe { libc::_exit(status) };
                    }
                    let mut status = 0;
                    // SAFETY: waits for the child made above.
                    unsafe { libc::waitpid(pid, &raw mut status, 0) };
                    lost.fetch_add(usize::from(status != 0), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(lost.into_inner(), 0, "of {} children", 3 * FORKS);
}
