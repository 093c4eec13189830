//! A queue from one thread to one other, of fixed size: no lock, no allocation, nobody waits.
//!
//! A thread whose vCPU is descheduled in the middle of a push or pop stops only itself: the other end sees the queue as it
//! was. Invariants: the consumer's count never passes the producer's, nor that the consumer's by more than the size; a slot
//! is written only by the producer while it is free, and read only by the consumer while it is full.
//!
//! Orderings: the producer's count is stored with release after the slot was written, and loaded with acquire by the
//! consumer before it reads the slot; the consumer's count is stored with release after the slot was read, and loaded with
//! acquire by the producer before it writes over it. Either weaker, a slot could be read and written at once. Test:
//! `everything_arrives_in_order` (under miri or on a machine with weak ordering; x86 orders plain moves so anyway).

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Shared<T> {
    slots: Box<[UnsafeCell<Option<T>>]>,
    pushed: AtomicUsize,
    popped: AtomicUsize,
}

// SAFETY: slots are handed over between exactly one producer and one consumer by the two counts (see the orderings above),
// so no slot is accessed by both at a time; T is sent from one to the other.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The end that pushes.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
}

/// The end that pops.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
}

/// A queue that holds `size` values (at least one).
pub fn ring<T: Copy + Send>(size: usize) -> (Producer<T>, Consumer<T>) {
    let slots = (0..size.max(1)).map(|_| UnsafeCell::new(None)).collect();
    let shared = Arc::new(Shared { slots, pushed: AtomicUsize::new(0), popped: AtomicUsize::new(0) });
    (Producer { shared: Arc::clone(&shared) }, Consumer { shared })
}

impl<T: Copy> Producer<T> {
    /// Adds a value; `false` if the queue is full, and the value is lost.
    pub fn push(&mut self, value: T) -> bool {
        let shared = &*self.shared;
        // Relaxed: only this end stores it.
        let pushed = shared.pushed.load(Ordering::Relaxed);
        // Pairs with the consumer's release: what it popped has been read.
        let popped = shared.popped.load(Ordering::Acquire);
        if pushed.wrapping_sub(popped) >= shared.slots.len() {
            return false;
        }
        // SAFETY: the slot is free (the queue is not full), so the consumer does not look at it until the count below says
        // so; there is one producer, and it is `&mut self`.
        unsafe { *shared.slots[pushed % shared.slots.len()].get() = Some(value) };
        shared.pushed.store(pushed.wrapping_add(1), Ordering::Release);
        true
    }
}

impl<T: Copy> Consumer<T> {
    /// Takes the oldest value, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        let shared = &*self.shared;
        // Relaxed: only this end stores it.
        let popped = shared.popped.load(Ordering::Relaxed);
        // Pairs with the producer's release: what it pushed has been written.
        if popped == shared.pushed.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the slot is full, so the producer does not write it until the count below says so; there is one consumer,
        // and it is `&mut self`.
        let value = unsafe { *shared.slots[popped % shared.slots.len()].get() };
        shared.popped.store(popped.wrapping_add(1), Ordering::Release);
        value
    }

    /// The oldest value, which stays.
    pub fn peek(&mut self) -> Option<T> {
        let shared = &*self.shared;
        // Orderings as in `pop`.
        let popped = shared.popped.load(Ordering::Relaxed);
        if popped == shared.pushed.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: as in `pop`: the slot is full, and stays so, since only this end empties it.
        unsafe { *shared.slots[popped % shared.slots.len()].get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_an_empty_one_gives_nothing() {
        let (mut producer, mut consumer) = ring::<u64>(2);
        assert_eq!((consumer.peek(), consumer.pop()), (None, None));
        assert_eq!([1, 2, 3].map(|value| producer.push(value)), [true, true, false]);
        assert_eq!((consumer.peek(), consumer.peek()), (Some(1), Some(1)));
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(1), Some(2), None]);
        assert!(producer.push(4) && consumer.pop() == Some(4));
    }

    #[test]
    fn everything_arrives_in_order() {
        let (mut producer, mut consumer) = ring::<[u64; 4]>(7);
        let count = if cfg!(miri) { 100 } else { 200_000 };
        let sender = std::thread::spawn(move || {
            for i in 0..count {
                while !producer.push([i; 4]) {
                    std::thread::yield_now();
                }
            }
        });
        for i in 0..count {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(value, [i; 4], "torn or out of order");
        }
        sender.join().unwrap();
    }
}
