//! The membarrier system call. Source: membarrier(2) and the kernel's uapi header.
//!
//! The private expedited command returns after every thread of the process that runs on another CPU has executed a
//! full fence, forced by an inter-processor interrupt. A thread that does not run has executed one in the context
//! switch. The RSEQ variant of the command also restarts the rseq section that such a thread is in. It executes the
//! same fence, so that one call serves every kind of reader.

#[cfg(shuttle)]
#[path = "membarrier_shuttle.rs"]
mod model;
#[cfg(shuttle)]
pub(crate) use model::{barrier, begun, ended, keep_off};

use std::sync::atomic::{AtomicI32, Ordering};

const QUERY: i32 = 0;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

/// The command in use; 0 if there is none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

fn call(command: i32) -> i64 {
    // SAFETY: membarrier takes two more integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Registers the process for the best command that works. Returns false if none does.
pub(crate) fn register() -> bool {
    let known = call(QUERY).max(0) as i32;
    let candidates = [
        (PRIVATE_EXPEDITED_RSEQ, REGISTER_PRIVATE_EXPEDITED_RSEQ),
        (PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED),
    ];
    // Try the command: a seccomp filter may allow the query and refuse the command.
    let found = candidates.iter().find(|(cmd, reg)| known & cmd != 0 && call(*reg) == 0 && call(*cmd) == 0);
    COMMAND.store(found.map_or(0, |(cmd, _)| *cmd), Ordering::Relaxed);
    found.is_some()
}

/// Registers again, in the child of a fork.
pub(crate) fn register_again() {
    match COMMAND.load(Ordering::Relaxed) {
        PRIVATE_EXPEDITED_RSEQ => call(REGISTER_PRIVATE_EXPEDITED_RSEQ),
        PRIVATE_EXPEDITED => call(REGISTER_PRIVATE_EXPEDITED),
        _ => 0,
    };
}

/// Whether the command in use restarts rseq sections.
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) fn has_rseq() -> bool {
    COMMAND.load(Ordering::Relaxed) == PRIVATE_EXPEDITED_RSEQ
}

/// Executes the command. Returns false if the kernel refuses what it allowed before, for instance because a seccomp
/// filter was installed later.
#[cfg(not(shuttle))]
pub(crate) fn barrier() -> bool {
    #[cfg(all(test, not(loom)))]
    away::wait_for(None);
    let command = COMMAND.load(Ordering::Relaxed);
    call(command) == 0 || barrier_again(command)
}

/// Executes the command for one CPU alone, if there is such a form of it: Linux 5.10 has it for the RSEQ command.
#[cfg(not(any(shuttle, loom)))]
pub(crate) fn barrier_on(cpu: usize) {
    const FLAG_CPU: i32 = 1;
    let command = COMMAND.load(Ordering::Relaxed);
    if command == PRIVATE_EXPEDITED_RSEQ {
        #[cfg(all(test, not(loom)))]
        away::wait_for(Some(cpu));
        // SAFETY: as in `call`. The kernel refuses numbers that no CPU has.
        unsafe { libc::syscall(libc::SYS_membarrier, command, FLAG_CPU, cpu) };
    }
}

/// Tries again, because the kernel may be short of memory for a moment (ENOMEM). And registers again, because a
/// process that was cloned without the C library's knowledge is not registered (EPERM).
#[cfg(not(shuttle))]
#[cold]
fn barrier_again(command: i32) -> bool {
    const TRIES: usize = 10;
    register_again();
    (0..TRIES).any(|_| {
        std::thread::yield_now();
        call(command) == 0
    })
}

/// A negative control for tests: a fence in all threads that restarts no section.
#[cfg(all(test, not(shuttle)))]
pub(crate) fn barrier_without_rseq() {
    call(REGISTER_PRIVATE_EXPEDITED);
    assert_eq!(call(PRIVATE_EXPEDITED), 0);
}

/// A CPU that does not answer, for tests: calls on other CPUs wait for it actively, as in the kernel.
#[cfg(all(test, not(any(shuttle, loom))))]
pub(crate) mod away {
    use crate::platform::cpus;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// The number of that CPU.
    pub(crate) static CPU: AtomicUsize = AtomicUsize::new(usize::MAX);
    static AWAY: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn begin() {
        AWAY.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end() {
        AWAY.store(false, Ordering::SeqCst);
    }

    /// How many calls of this thread have waited.
    pub(crate) fn mine() -> usize {
        MINE.get()
    }

    pub(super) fn wait_for(cpu: Option<usize>) {
        let away = CPU.load(Ordering::SeqCst);
        if cpu.is_some_and(|cpu| cpu != away) || !AWAY.load(Ordering::SeqCst) {
            return;
        }
        MINE.set(MINE.get() + 1);
        while AWAY.load(Ordering::SeqCst) {
            // A caller on that very CPU does not run.
            if cpus::current() == away {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            std::hint::spin_loop();
        }
    }
}
