//! A sample is written to the hindsight ring without an allocation. A program of its own, because its allocator counts.

#[path = "../../hindsight/tests/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use reprieve_hindsight::Ring;
use support::{LIMITS, header, sample};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes every call to the system's allocator unchanged; counting uses a thread-local that needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_sample_is_written_without_an_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::open(folder.path(), header(), LIMITS).unwrap();
    let samples: Vec<_> = (0..60).map(|second| sample(second, 200)).collect();
    // The first one begins the segment, and is the longest.
    ring.push(&sample(0, 210)).unwrap();
    let count = || COUNT.with(Cell::get);
    let before = count();
    samples[1..].iter().for_each(|sample| ring.push(sample).unwrap());
    assert_eq!(count() - before, 0);
    drop(std::hint::black_box(vec![1u8]));
    assert_eq!(count() - before, 1, "the counter counts");
}
