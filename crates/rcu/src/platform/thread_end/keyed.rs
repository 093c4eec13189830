//! The end of a thread as the destructor of a pthread key.
//!
//! It must run after the destructors of all thread-local variables. glibc runs those first (`__call_tls_dtors` before
//! `__nptl_deallocate_tsd`). On other systems `std` itself runs them from a key, and the order of keys is undefined:
//! musl goes by their numbers, and ours may be the lower one. POSIX repeats the destructors of keys that were set
//! again, at least four times. So ours sets its key again in the first rounds, and does its work in the third.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;

/// How many rounds of destructors pass before ours does its work. One is enough for the variables of `std`. The
/// second is for code that uses keys directly.
const ROUNDS: u32 = 2;

/// What to call at a thread's end.
type Run = fn(*mut c_void);

/// The key, and what its destructor calls.
static KEY: OnceLock<(libc::pthread_key_t, Run)> = OnceLock::new();

thread_local! {
    /// How many rounds have passed on this thread. Has no destructor, and so is usable to the end.
    static PASSED: Cell<u32> = const { Cell::new(0) };
}

/// Calls `run` with `value`, which is not null, when the calling thread ends. All calls in a process must pass the
/// same `run`. Of several calls of one thread, the last one counts.
pub(crate) fn at_thread_end(value: *mut c_void, run: Run) {
    let (key, _) = *KEY.get_or_init(|| (new_key(), run));
    // SAFETY: the key exists for as long as the process.
    unsafe { libc::pthread_setspecific(key, value) };
}

fn new_key() -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: `key` is valid for the call, and the destructor stays loaded (see linux/pin.rs).
    let r = unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) };
    assert!(r == 0, "no pthread key is left for reprieve-rcu: error {r}");
    key
}

extern "C" fn destructor(value: *mut c_void) {
    let (key, run) = *KEY.get().expect("set before the key was first used");
    if PASSED.get() < ROUNDS {
        PASSED.set(PASSED.get() + 1);
        // SAFETY: as in `at_thread_end`.
        if unsafe { libc::pthread_setspecific(key, value) } == 0 {
            return;
        }
    }
    run(value);
}
