//! Tokens and epochs under loom: every interleaving, and every order that the C++ memory model allows.
//!
//! Readers are fenced, because loom has no membarrier (for that see `model_tests.rs`). Freeing is a write to the
//! object's cell, so that loom reports a use that does not happen before the free. Run with `RUSTFLAGS="--cfg loom"
//! cargo test --release --lib loom`.

use super::*;
use crate::mode::FENCED;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct World {
    clock: Clock,
    acks: Acknowledged,
    words: Vec<AtomicU64>,
    linked: AtomicU32,
    object: UnsafeCell<u32>,
}

// SAFETY: loom checks the object's cell, and reports an access that races: that is what the tests are about.
unsafe impl Sync for World {}

impl World {
    fn new(readers: usize) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::new(FENCED),
            acks: Acknowledged::default(),
            words: (0..readers).map(|_| AtomicU64::new(0)).collect(),
            linked: AtomicU32::new(1),
            object: UnsafeCell::new(1),
        })
    }

    fn read(&self, reader: usize) {
        enter(&self.words[reader], &self.clock);
        if self.linked.load(Ordering::Acquire) == 1 {
            // SAFETY: loom checks it.
            self.object.with(|o| assert_eq!(unsafe { *o }, 1));
        }
        leave(&self.words[reader]);
    }

    fn start(&self) -> u64 {
        let token = self.clock.tick();
        fence(Ordering::SeqCst);
        self.acks.fence_done(token);
        token
    }

    fn wait(&self, token: u64) {
        while !self.acks.has_passed(token) && self.acks.scan(|| self.words.iter()) < token {
            thread::yield_now();
        }
    }

    fn free(&self) {
        // SAFETY: loom checks it.
        self.object.with_mut(|o| unsafe { *o = 0 });
    }
}

#[test]
fn loom_an_object_is_freed_after_its_readers() {
    loom::model(|| {
        let world = World::new(1);
        let reader = world.clone();
        let reader = thread::spawn(move || reader.read(0));
        world.linked.store(0, Ordering::Release);
        world.wait(world.start());
        world.free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_quiescent_state_ends_what_precedes_it() {
    loom::model(|| {
        let world = World::new(1);
        enter(&world.words[0], &world.clock);
        let reader = world.clone();
        let reader = thread::spawn(move || {
            if reader.linked.load(Ordering::Acquire) == 1 {
                // SAFETY: loom checks it.
                reader.object.with(|o| assert_eq!(unsafe { *o }, 1));
            }
            refresh(&reader.words[0], &reader.clock);
            leave(&reader.words[0]);
        });
        world.linked.store(0, Ordering::Release);
        world.wait(world.start());
        world.free();
        reader.join().unwrap();
    });
}

/// One writer relies on what another writer's scan has found.
#[test]
fn loom_a_token_that_another_writer_saw_pass_may_be_relied_upon() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let world = World::new(1);
        let (reader, other) = (world.clone(), world.clone());
        let reader = thread::spawn(move || reader.read(0));
        let other = thread::spawn(move || {
            other.start();
            other.acks.scan(|| other.words.iter());
        });
        world.linked.store(0, Ordering::Release);
        world.wait(world.start());
        world.free();
        reader.join().unwrap();
        other.join().unwrap();
    });
}
