//! Tests that the policy allocates nothing after construction. It is a program of its own, because its allocator
//! counts.

#[path = "../../policy/tests/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use reprieve_policy::guard::Guard;
use reprieve_policy::place::{Placer, Policy, Settings};
use support::{MS, antiphase, run};

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

fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

#[test]
fn nothing_is_allocated_after_construction() {
    let end_ns = 3_000 * MS;
    let schedule = antiphase(end_ns, 10 * MS);
    for policy in Policy::ALL {
        let settings = Settings::new(2, 4).with(policy);
        let recorded = run(&mut Placer::new(settings), &schedule, 4, end_ns);
        assert_eq!(recorded.moves.is_empty(), policy == Policy::None, "{policy:?}: something must happen");
        let mut placer = Placer::new(settings);
        let count = allocations(|| {
            for signal in &recorded.signals {
                std::hint::black_box(placer.take(signal));
            }
        });
        assert_eq!(count, 0, "{policy:?}");
    }
    let mut guard = Guard::default();
    let readings = || {
        for i in 0..1000 {
            guard.reading(i % 7, true);
        }
    };
    assert_eq!(allocations(readings), 0);
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8]))), 1, "the counter counts");
}

#[test]
fn the_decider_allocates_nothing_after_construction() {
    use reprieve_linux::migrate::{
        Decider, Events, IoEvent, IoKind, Lines, Mover, OffTimes, Shared, Sleeper, Sorter, Table,
    };
    use reprieve_linux::proc::{ProcRoot, StealReader};
    use reprieve_policy::signal::Signal;
    use std::sync::Arc;

    let end_ns = 1_500 * MS;
    let settings = Settings::new(2, 4);
    let recorded = run(&mut Placer::new(settings), &antiphase(end_ns, 0), 4, end_ns);
    let (mut beats, from_beats): (Vec<_>, Vec<_>) = (0..2).map(|_| rtrb::RingBuffer::new(8)).unzip();
    let (mut main_loop, from_main_loop) = rtrb::RingBuffer::new(8);
    let (log, mut told) = rtrb::RingBuffer::new(1 << 10);
    let (orders, mut taken) = rtrb::RingBuffer::new(1 << 10);
    let movers = vec![Mover::new(orders, Arc::new(Sleeper::default()))];
    /// One I/O of an unmanaged task at each run.
    struct Unmanaged(u64);
    impl Events for Unmanaged {
        fn next(&mut self) -> Option<IoEvent> {
            self.0 += 1;
            let event = IoEvent { pid: 4, tid: self.0 as i32 / 2, at_ns: 0, kind: IoKind::Begin };
            self.0.is_multiple_of(2).then_some(event)
        }

        fn watch(&mut self, _: bool) {}
    }
    let events = Some(Sorter::new(Box::new(Unmanaged(0)), 4));
    let steal = StealReader::open(&ProcRoot::default(), 2).ok();
    let off_times = OffTimes::default();
    let lines = Lines {
        beats: from_beats,
        main_loop: from_main_loop,
        events,
        log,
        movers,
        steal,
        off_times,
        records: false,
    };
    let shared = Arc::new(Shared::new(2, MS));
    let mut decider = Decider::new(settings, lines, Arc::new(Table::new(4, None)), shared);
    let mut decided = 0;
    let count = allocations(|| {
        // The time of an oracle's signal is in the future, so do not run the decider at it.
        let known = |signal: &&Signal| !matches!(signal, Signal::NextOff { .. });
        for signal in recorded.signals.iter().filter(known) {
            let pushed = match signal {
                Signal::Beat(beat) => beats[beat.vcpu].push(*signal).is_ok(),
                other => main_loop.push(*other).is_ok(),
            };
            assert!(pushed);
            decider.step(signal.at_ns().min(end_ns));
            while told.pop().is_ok() {
                decided += 1;
            }
            while taken.pop().is_ok() {}
        }
    });
    assert!(decided > 20, "{decided}");
    assert_eq!(count, 0);
}
