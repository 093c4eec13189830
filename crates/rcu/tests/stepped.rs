//! A signal at each instruction of `Domain::lock`, by stepping through it. The guards that the handler and later code
//! take, of other domains, must hold up their own domains.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]

use reprieve_rcu::Domain;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The processor's flag for a trap after each instruction.
const TRAP: u64 = 1 << 8;

static LOCKED_LAST: OnceLock<Domain> = OnceLock::new();
static LOCKED_NOW: OnceLock<Domain> = OnceLock::new();
static STEP: AtomicU64 = AtomicU64::new(0);
static HANDLE_AT: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Whether a guard holds up its domain.
fn a_guard_protects(domain: &Domain) -> bool {
    let _guard = domain.lock();
    !domain.check(domain.start())
}

extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if STEP.fetch_add(1, Ordering::Relaxed) == HANDLE_AT.load(Ordering::Relaxed) {
        let right = LOCKED_LAST.get().is_some_and(a_guard_protects);
        WRONG.fetch_add(u64::from(!right), Ordering::Relaxed);
    }
}

#[inline(never)]
fn stepped(f: fn()) {
    // SAFETY: sets a flag of this thread, and takes it back.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const TRAP) };
    f();
    // SAFETY: as above.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], {rest}", "popfq", rest = const !(TRAP as i32)) };
}

#[test]
fn a_handler_s_lock_at_any_instruction_of_another_lock() {
    let (last, now) = (LOCKED_LAST.get_or_init(Domain::default), LOCKED_NOW.get_or_init(Domain::default));
    // SAFETY: the handler locks a domain that this thread has locked, as the guide allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    drop(now.lock());
    for at in 0.. {
        drop(last.lock());
        STEP.store(0, Ordering::SeqCst);
        HANDLE_AT.store(at, Ordering::SeqCst);
        stepped(|| drop(LOCKED_NOW.get().map(Domain::lock)));
        assert_eq!(WRONG.load(Ordering::SeqCst), 0, "the handler's guard, at step {at}");
        assert!(a_guard_protects(last) && a_guard_protects(now), "afterwards, at step {at}");
        if STEP.load(Ordering::SeqCst) <= at {
            assert!(at > 20, "stepped through");
            break;
        }
    }
}
