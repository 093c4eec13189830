//! The futex system call under shuttle, which reports a deadlock if nobody wakes a sleeper.
//!
//! A sleep with a timeout is a yield, because its time may be over at any moment.

use crate::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::Mutex;
use shuttle::thread::{Thread, current, park, yield_now};

shuttle::lazy_static! {
    /// Which threads sleep, and on which address.
    static ref SLEEPERS: Mutex<Vec<(usize, Thread)>> = Mutex::new(Vec::new());
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

/// As `platform::wait`.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    if timeout_ns.is_some() {
        return yield_now();
    }
    // Wakers see comparing and falling asleep as one step.
    let mut sleepers = SLEEPERS.lock().unwrap();
    if word.load(Ordering::SeqCst) != expected {
        return;
    }
    sleepers.push((address(word), current()));
    drop(sleepers);
    park();
    // shuttle also wakes threads for no reason. A thread that is awake must not be in the list, or it would use up
    // another's wake-up.
    SLEEPERS.lock().unwrap().retain(|(_, thread)| thread.id() != current().id());
}

/// As `platform::wake`.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    for _ in 0..count {
        let Some(at) = sleepers.iter().position(|(on, _)| *on == address(word)) else { return };
        sleepers.remove(at).1.unpark();
    }
}
