//! Threads and processes, as the kernel numbers and copies them.

/// Runs `before` in the thread that forks, then one of the others in each of the two processes.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the handlers are functions that stay loaded (see pin.rs).
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// The calling thread's id, as in /proc/self/task.
#[cfg(not(shuttle))]
pub(crate) fn thread_id() -> i32 {
    // SAFETY: gettid takes and touches nothing. By syscall, for old C libraries.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}
