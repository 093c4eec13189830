//! Threads and processes: their names and numbers, starting threads, and forks.

use std::io;
use std::mem::MaybeUninit;
use std::thread::Builder;

/// Runs `before` in the thread that forks, and then one of the others in each of the two processes.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the handlers are functions of this library, which stays loaded (see pin.rs).
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// The calling thread's id, as in /proc/self/task.
#[cfg(not(shuttle))]
pub(crate) fn thread_id() -> i32 {
    // SAFETY: gettid touches no memory. Called as a system call, because old C libraries have no function for it.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// The calling thread's name as the kernel knows it, at most 15 bytes. Not by `std`, which panics once the thread's
/// variables are destroyed.
pub(crate) fn thread_name() -> Option<String> {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, the last of which is 0.
    let r = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = std::ffi::CStr::from_bytes_until_nul(&name).ok().filter(|name| r == 0 && !name.is_empty())?;
    Some(name.to_string_lossy().into_owned())
}

/// Starts a thread that blocks all signals and that nobody joins. The program's signals are for the program's own threads.
pub(crate) fn spawn(name: &str, run: fn()) -> io::Result<()> {
    // A thread inherits the signal mask of the thread that starts it.
    without_signals(|| Builder::new().name(name.to_owned()).spawn(run).map(drop))
}

/// Runs `f` while the calling thread blocks all signals.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is initialised before it is used, and `before` by the call that succeeded.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let masked = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0;
        let result = f();
        if masked {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        result
    }
}
