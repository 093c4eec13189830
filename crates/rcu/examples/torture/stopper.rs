//! A separate process that stops readers.
//!
//! SIGSTOP stops a whole process, so it cannot stop one reader beside a running writer. A tracer can: it attaches to
//! a thread, which stops wherever it is, often within a section; it leaves it stopped for some milliseconds, and
//! detaches. Now and then it stops the whole process by SIGSTOP. Where the system forbids tracing, only the latter
//! happens. The counts show which did.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// How many threads can be offered at one time.
const PLACES: usize = 16;

/// What the two processes share.
struct Shared {
    /// Thread ids of readers, or 0.
    tids: [AtomicI32; PLACES],
    stop: AtomicBool,
    threads_stopped: AtomicU64,
    process_stopped: AtomicU64,
}

/// A stopper at work.
pub struct Stopper {
    shared: &'static Shared,
    child: libc::pid_t,
}

impl Stopper {
    /// Starts the process.
    pub fn start() -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of zeroes, which is a valid `Shared`; it is never unmapped.
        let shared: &'static Shared = unsafe {
            let at = libc::mmap(ptr::null_mut(), size_of::<Shared>(), prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        };
        // SAFETY: getpid takes and touches nothing. The child calls async-signal-safe functions only.
        let (parent, child) = unsafe { (libc::getpid(), libc::fork()) };
        assert!(child >= 0);
        if child == 0 {
            stop_readers(shared, parent);
        }
        // SAFETY: allows the child to trace this process where only descendants may be traced.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, child as libc::c_ulong) };
        Self { shared, child }
    }

    /// Offers the calling thread to be stopped, until `retract` is called with the result.
    pub fn offer(&self) -> Option<usize> {
        // SAFETY: gettid takes and touches nothing.
        let tid = unsafe { libc::gettid() };
        let relaxed = Ordering::Relaxed;
        self.shared.tids.iter().position(|t| t.compare_exchange(0, tid, relaxed, relaxed).is_ok())
    }

    /// Ends what `offer` began.
    pub fn retract(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.shared.tids[place].store(0, Ordering::Relaxed);
        }
    }

    /// Ends the process. Returns how often it stopped a thread, and how often the whole process.
    pub fn end(self) -> (u64, u64) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // SAFETY: waits for the child that `start` made.
        unsafe { libc::waitpid(self.child, ptr::null_mut(), 0) };
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (count(&self.shared.threads_stopped), count(&self.shared.process_stopped))
    }
}

fn stop_readers(shared: &Shared, parent: libc::pid_t) -> ! {
    // SAFETY: the stopper dies with its parent, and so cannot signal another process with its id.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut random = 11;
    // SAFETY: getppid takes and touches nothing.
    while !shared.stop.load(Ordering::Relaxed) && unsafe { libc::getppid() } == parent {
        sleep_ms(1 + super::next(&mut random) % 10);
        let lie_ms = 1 + super::next(&mut random) % 10;
        let tid = shared.tids[super::next(&mut random) as usize % PLACES].load(Ordering::Relaxed);
        if super::next(&mut random).is_multiple_of(16) {
            // SAFETY: the parent is alive: otherwise this process would have been killed.
            unsafe {
                libc::kill(parent, libc::SIGSTOP);
                sleep_ms(lie_ms);
                libc::kill(parent, libc::SIGCONT);
            }
            shared.process_stopped.fetch_add(1, Ordering::Relaxed);
        } else if tid != 0 && stop_thread(tid, lie_ms) {
            shared.threads_stopped.fetch_add(1, Ordering::Relaxed);
        }
    }
    // SAFETY: ends the child without the parent's destructors.
    unsafe { libc::_exit(0) }
}

/// Stops one thread for `lie_ms`. Returns false if the thread cannot be traced or has ended.
fn stop_thread(tid: libc::pid_t, lie_ms: u64) -> bool {
    let none = ptr::null_mut::<libc::c_void>();
    let mut status = 0;
    // SAFETY: the requests name a thread and pass no memory.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, tid, none, none) != 0 {
            return false;
        }
        libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none);
        if libc::waitpid(tid, &raw mut status, libc::__WALL) != tid || !libc::WIFSTOPPED(status) {
            return false;
        }
        sleep_ms(lie_ms);
        // A signal that stopped the thread first is passed on. The stop that the tracer asked for is not.
        let asked_for = status >> 16 != 0;
        let signal = if asked_for { 0 } else { libc::WSTOPSIG(status) };
        libc::ptrace(libc::PTRACE_DETACH, tid, none, signal as usize as *mut libc::c_void);
    }
    true
}

pub fn sleep_ms(ms: u64) {
    let t = libc::timespec { tv_sec: 0, tv_nsec: (ms * 1_000_000) as libc::c_long };
    // SAFETY: `t` is valid for the call.
    unsafe { libc::nanosleep(&raw const t, ptr::null_mut()) };
}
