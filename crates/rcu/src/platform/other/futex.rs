//! Sleeping on a word, by what `std` offers: a few queues. A word's address selects its queue.
//!
//! A sleeper compares the word under its queue's lock, and a waker takes that lock after it has changed the word. So
//! the sleeper either sees the change, or is in the queue when the waker wakes it.

use crate::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Words that share a queue wake each other's sleepers needlessly, which callers expect. More queues make that rarer.
const QUEUES: usize = 64;

struct Queue {
    lock: Mutex<()>,
    woken: Condvar,
}

static ALL: [Queue; QUEUES] = [const { Queue { lock: Mutex::new(()), woken: Condvar::new() } }; QUEUES];

fn queue_of(word: &AtomicU32) -> &'static Queue {
    // A multiplicative hash gives different queues to neighbouring words, which the same threads use.
    let hash = (word.as_ptr().addr() as u32 >> 2).wrapping_mul(0x9e37_79b1);
    &ALL[hash as usize >> (u32::BITS - QUEUES.ilog2())]
}

/// Sleeps while `*word == expected`, for at most `timeout_ns` if given. May return early, so callers loop.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let queue = queue_of(word);
    let held = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
    if word.load(Ordering::SeqCst) != expected {
        return;
    }
    // A poisoned lock has no meaning here: it guards no data, and its holder runs no code that panics.
    match timeout_ns {
        None => drop(queue.woken.wait(held)),
        Some(ns) => drop(queue.woken.wait_timeout(held, Duration::from_nanos(ns))),
    }
}

/// Wakes all threads that sleep on `word`, whatever `count` says, because the queue does not know which thread sleeps
/// on which word.
pub(crate) fn wake(word: &AtomicU32, _count: i32) {
    let queue = queue_of(word);
    drop(queue.lock.lock());
    queue.woken.notify_all();
}
