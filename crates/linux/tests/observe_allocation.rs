//! Tests that a sample of tier T0 allocates nothing, neither where it is made nor in the beat threads. It is a program of its
//! own, because its allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reprieve_linux::observe::{Collector, Pace};
use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_policy::sample::{Sample, Tier};

/// Relaxed: the test reads it only for its own thread's calls and for calls of other threads long ago.
static COUNT: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: passes every call to the system's allocator unchanged; counting is an atomic addition.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.load(Ordering::Relaxed);
    work();
    COUNT.load(Ordering::Relaxed) - before
}

#[test]
fn a_sample_of_the_lowest_tier_allocates_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0, "the allocator counts");
    let cpus = allowed_cpus().unwrap();
    for pace in [Pace::Frugal, Pace::Close] {
        let mut collector = Collector::begin_in(&ProcRoot::default(), &cpus, pace, Tier::T0).unwrap();
        let mut sample = Sample::default();
        let mut samples = |count: usize| {
            for _ in 0..count {
                std::thread::sleep(Duration::from_millis(50));
                collector.sample(&mut sample);
                // More gaps than ever before may need more room, however busy this machine is.
                sample.vcpus.iter_mut().for_each(|vcpu| vcpu.offs.reserve(4096 - vcpu.offs.len()));
                sample.grace_periods_ns.reserve(1024 - sample.grace_periods_ns.len());
            }
        };
        samples(10);
        assert_eq!(allocations(|| samples(20)), 0, "{pace:?}");
        assert_eq!((sample.tier, sample.vcpus.len()), (Tier::T0, cpus.len()));
    }
}
