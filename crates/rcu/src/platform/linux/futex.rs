//! The futex system call. Source: futex(2).

use crate::sync::atomic::AtomicU32;
use crate::units::SECOND_NS;
use std::ptr;

/// Sleeps while `*word == expected`, for at most `timeout_ns` if given. May return early, so callers loop.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let limit =
        timeout_ns.map(|ns| libc::timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` outlives the call, and `limit` is null or points to a timespec that does.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, limit) };
}

/// Wakes at most `count` threads that sleep on `word`. Signal handlers may call it.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address as a key only; `word` is alive.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, count) };
}
