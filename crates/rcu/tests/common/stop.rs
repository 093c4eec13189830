//! Two ways to stop a single thread wherever it is.
//!
//! SIGSTOP stops a whole process. To stop one thread alone, a tracer in a process of its own stops it, or the thread
//! parks in the handler of a signal.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a thread parks.
#[derive(Default)]
pub struct Park {
    parked: AtomicBool,
    go: AtomicBool,
}

thread_local!(static PARK: Cell<*const Park> = const { Cell::new(ptr::null()) });

extern "C" fn park(_: libc::c_int) {
    // SAFETY: the thread said where it parks; the place outlives it.
    let Some(park) = (unsafe { PARK.get().as_ref() }) else { return };
    park.parked.store(true, Ordering::SeqCst);
    while !park.go.load(Ordering::SeqCst) {
        nap();
    }
    park.parked.store(false, Ordering::SeqCst);
}

fn nap() {
    let t = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
    // SAFETY: `t` is valid for the call.
    unsafe { libc::nanosleep(&raw const t, ptr::null_mut()) };
}

impl Park {
    /// Lets the calling thread park here.
    ///
    /// # Safety
    /// The place outlives the thread.
    pub unsafe fn here(&self) {
        PARK.set(self);
        // SAFETY: the handler stores, sleeps and loads.
        unsafe { libc::signal(libc::SIGUSR2, park as *const () as libc::sighandler_t) };
    }

    /// Stops the thread `tid` of this process, which has called `here`.
    pub fn stop(&self, tid: i32) {
        self.go.store(false, Ordering::SeqCst);
        // SAFETY: the thread is alive; its handler is installed.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR2) };
        while !self.parked.load(Ordering::SeqCst) {
            nap();
        }
    }

    /// Lets it go on.
    pub fn go(&self) {
        self.go.store(true, Ordering::SeqCst);
        while self.parked.load(Ordering::SeqCst) {
            nap();
        }
    }
}

/// A process that has stopped a thread.
pub struct Tracer {
    child: libc::pid_t,
    /// Writing to this lets the thread go on.
    go: i32,
}

impl Tracer {
    /// Stops the thread `tid`. None if the system forbids tracing.
    pub fn stop(tid: i32) -> Option<Self> {
        let (mut report, mut go) = ([0; 2], [0; 2]);
        // SAFETY: the arrays are valid; the child calls async-signal-safe functions only, and ends by _exit.
        unsafe {
            assert!(libc::pipe(report.as_mut_ptr()) == 0 && libc::pipe(go.as_mut_ptr()) == 0);
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::close(report[0]);
                libc::close(go[1]);
                trace(tid, report[1], go[0]);
            }
            libc::prctl(libc::PR_SET_PTRACER, child as libc::c_ulong);
            libc::close(report[1]);
            libc::close(go[0]);
            let mut stopped = 0u8;
            libc::read(report[0], (&raw mut stopped).cast(), 1);
            libc::close(report[0]);
            let tracer = Self { child, go: go[1] };
            (stopped == 1).then_some(tracer)
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let byte = 1u8;
        // SAFETY: our descriptor, closed once, and our child. A byte, because other tracers have inherited the
        // descriptor: closing it ends nothing.
        unsafe {
            libc::write(self.go, (&raw const byte).cast(), 1);
            libc::close(self.go);
            libc::waitpid(self.child, ptr::null_mut(), 0);
        }
    }
}

/// Stops `tid`, reports that, and lets it go on when `go` has data, or when the parent ends.
unsafe fn trace(tid: i32, report: i32, go: i32) -> ! {
    let (none, mut status, mut byte) = (ptr::null_mut::<libc::c_void>(), 0, 1u8);
    // SAFETY: the requests name a thread and pass no memory; the descriptors are the child's own.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::ptrace(libc::PTRACE_SEIZE, tid, none, none) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none) == 0
            && libc::waitpid(tid, &raw mut status, libc::__WALL) == tid
            && libc::WIFSTOPPED(status)
        {
            libc::write(report, (&raw const byte).cast(), 1);
            libc::read(go, (&raw mut byte).cast(), 1);
            libc::ptrace(libc::PTRACE_DETACH, tid, none, none);
        }
        libc::_exit(0)
    }
}
