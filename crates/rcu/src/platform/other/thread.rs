//! Ids of threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

/// The id of the calling thread, which its first call assigns; never 0. Ids repeat after 2^32 threads.
pub(crate) fn thread_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    thread_local! {
        /// Has no destructor, and so is usable for as long as the thread lives.
        static MINE: Cell<i32> = const { Cell::new(0) };
    }
    while MINE.get() == 0 {
        // `fetch_add` wraps, and 0 stands for nobody.
        MINE.set(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
    }
    MINE.get()
}
