//! Shared entries that only grow in number, are walked without a lock, and are used again.
//!
//! Readers' records and hazard slots live here. A thread that ends gives its entry back and another thread takes it.
//! So there are only as many entries as were in use at one time, however many threads come and go.
//!
//! Entries lie in chunks, each twice as large as the one before, and not in a list. A scanner finds them outside of
//! its caches, because readers had the CPU meanwhile; the addresses of an array are known before its memory arrives.
//!
//! Invariants: an entry's address is stable, and its memory lives as long as the pool. An entry is walked from its
//! first use on. Whoever took an entry owns it until it is given back.

use crate::futex::Lock;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ptr::{self, NonNull};

/// Two cache lines, because the adjacent-line prefetcher of x86 fetches lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Node<T>(T);

/// How many entries the first chunk has.
const FIRST: usize = 8;
/// How many chunks there are: enough for 2^31 entries.
const CHUNKS: usize = 28;

/// See the text at the top of this file.
pub(crate) struct Pool<T> {
    len: AtomicUsize,
    chunks: [AtomicPtr<Node<T>>; CHUNKS],
    pub(crate) free: Lock<Vec<Entry<T>>>,
}

/// An entry that was taken. A pointer instead of a borrow: its owner keeps it longer than any borrow of the pool, but
/// not longer than the pool.
pub(crate) struct Entry<T>(NonNull<Node<T>>);

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entry<T> {}
impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: apart from its lifetime, an entry is a shared reference to its value.
unsafe impl<T: Sync> Send for Entry<T> {}

impl<T> Entry<T> {
    /// The value.
    ///
    /// # Safety
    /// The pool is alive for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: nodes live as long as their pool, which the caller keeps alive, and are only ever shared.
        unsafe { &(*self.0.as_ptr()).0 }
    }
}

/// How many entries chunk `chunk` has.
fn size(chunk: usize) -> usize {
    FIRST << chunk
}

/// The chunk of entry `index`, and the entry's place in it.
fn place(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST + 1).ilog2() as usize;
    (chunk, index - (size(chunk) - FIRST))
}

impl<T: Default> Pool<T> {
    pub(crate) fn new() -> Self {
        let chunks = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
        Self { len: AtomicUsize::new(0), chunks, free: Lock::new(Vec::new()) }
    }

    /// Takes a free entry, or a new one unless there are `limit` entries. Its value is as its last owner left it.
    pub(crate) fn take(&self, limit: usize) -> Option<Entry<T>> {
        if let Some(entry) = self.free.lock().pop() {
            return Some(entry);
        }
        // SeqCst, here and in `chunk`: the entry becomes part of the walk before its owner's first section, against
        // the fence of a writer that scans.
        let more = |len| (len < limit).then_some(len + 1);
        let index = self.len.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).ok()?;
        let (chunk, at) = place(index);
        // SAFETY: the place lies within the chunk.
        Some(Entry(unsafe { self.chunk(chunk).add(at) }))
    }

    /// The first entry of chunk number `chunk`, which is allocated at first use.
    fn chunk(&self, chunk: usize) -> NonNull<Node<T>> {
        if let Some(made) = NonNull::new(self.chunks[chunk].load(Ordering::Acquire)) {
            return made;
        }
        let nodes: Box<[Node<T>]> = (0..size(chunk)).map(|_| Node::default()).collect();
        let new = Box::into_raw(nodes).cast();
        // Acquire and Release pair with each other and with the Acquire in `entries`: a thread that finds the chunk
        // finds it initialised.
        match self.chunks[chunk].compare_exchange(ptr::null_mut(), new, Ordering::SeqCst, Ordering::Acquire) {
            // SAFETY: it came from a box, and is not null.
            Ok(_) => unsafe { NonNull::new_unchecked(new) },
            Err(made) => {
                // SAFETY: another thread's chunk is in its place, and nobody else has seen this one.
                drop(unsafe { boxed(new, chunk) });
                // SAFETY: the exchange failed because the place is not null.
                unsafe { NonNull::new_unchecked(made) }
            }
        }
    }
}

/// The box that chunk number `chunk` came from.
///
/// # Safety
/// `nodes` was made by `Pool::chunk` for that number, and nobody uses it any more.
unsafe fn boxed<T>(nodes: *mut Node<T>, chunk: usize) -> Box<[Node<T>]> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(nodes, size(chunk))) }
}

impl<T> Pool<T> {
    /// Gives an entry back. The caller must not use it afterwards.
    pub(crate) fn give(&self, entry: Entry<T>) {
        self.free.lock().push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// All entries, in use or free. May miss entries that are added meanwhile.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|e| {
            // SAFETY: the pool is borrowed for as long as the value.
            unsafe { e.get() }
        })
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<T>> + '_ {
        (0..self.len.load(Ordering::Acquire)).filter_map(|index| {
            let (chunk, at) = place(index);
            // If an entry is counted but its chunk is not there yet, the entry has no owner so far.
            let first = NonNull::new(self.chunks[chunk].load(Ordering::Acquire))?;
            // SAFETY: the place lies within the chunk.
            Some(Entry(unsafe { first.add(at) }))
        })
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            let nodes = *chunk.get_mut();
            if !nodes.is_null() {
                // SAFETY: the chunk was made for this place, and nobody else can reach it now.
                drop(unsafe { boxed(nodes, number) });
            }
        }
    }
}

// SAFETY: the pool owns its values and shares them between threads.
unsafe impl<T: Send + Sync> Sync for Pool<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Pool<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn places_are_dense() {
        let mut next = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), next);
            next = if next.1 + 1 == size(next.0) { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
        }
    }

    #[test]
    fn every_entry_that_was_taken_is_walked() {
        let pool = Pool::<AtomicU64>::new();
        for n in 1..=100 {
            // SAFETY: the pool is alive.
            unsafe { pool.take(100).unwrap().get() }.store(n, Ordering::Relaxed);
            let sum: u64 = pool.iter().map(|v| v.load(Ordering::Relaxed)).sum();
            assert_eq!((pool.iter().count() as u64, sum), (n, n * (n + 1) / 2));
        }
        assert!(pool.take(100).is_none());
    }

    #[test]
    fn entries_are_used_again() {
        let pool = Pool::<AtomicU64>::new();
        for _ in 0..1_000 {
            let (a, b) = (pool.take(2).unwrap(), pool.take(2).unwrap());
            assert!(pool.take(2).is_none());
            pool.give(a);
            pool.give(b);
        }
        assert_eq!((pool.len(), pool.iter().count()), (2, 2));
    }

    #[test]
    fn concurrent_takers_own_their_entries() {
        let pool = Pool::<AtomicU64>::new();
        std::thread::scope(|s| {
            for id in 1..=4u64 {
                let pool = &pool;
                s.spawn(move || {
                    for _ in 0..5_000 {
                        let entry = pool.take(usize::MAX).unwrap();
                        // SAFETY: the pool outlives the scope.
                        let value = unsafe { entry.get() };
                        assert_eq!(value.swap(id, Ordering::SeqCst), 0);
                        assert_eq!(value.swap(0, Ordering::SeqCst), id);
                        pool.give(entry);
                    }
                });
            }
        });
        assert!(pool.len() <= 4);
        assert_eq!(pool.iter().count(), pool.len());
    }
}
