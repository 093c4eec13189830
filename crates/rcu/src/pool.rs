//! A list of shared entries that only grows, is walked without a lock, and whose entries are used again.
//!
//! Readers' records and hazard slots live here. A thread that ends gives its entry back and the next one
//! takes it, so that the list is as long as there were entries in use at one time, however many threads come
//! and go.
//!
//! Invariants: an entry's address is stable and its memory lives as long as the pool; an entry is in the list
//! from its first use on; whoever took an entry owns it until it is given back.

use crate::futex::Lock;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ptr::{self, NonNull};

/// Two cache lines: the adjacent-line prefetcher of x86 couples pairs.
#[repr(align(128))]
struct Node<T> {
    value: T,
    /// Written before the node is published, constant afterwards.
    next: *const Node<T>,
}

/// See the module's text.
pub(crate) struct Pool<T> {
    head: AtomicPtr<Node<T>>,
    len: AtomicUsize,
    pub(crate) free: Lock<Vec<Entry<T>>>,
}

/// An entry that was taken. A pointer, because its owner outlives no borrow of the pool; the pool outlives
/// it.
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

// SAFETY: an entry is a shared reference to its value in all but lifetime.
unsafe impl<T: Sync> Send for Entry<T> {}

impl<T> Entry<T> {
    /// The value.
    ///
    /// # Safety
    /// The pool is alive for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: nodes live as long as their pool, which the caller keeps alive, and are only ever shared.
        unsafe { &(*self.0.as_ptr()).value }
    }
}

impl<T: Default> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0), free: Lock::new(Vec::new()) }
    }

    /// Takes an entry that is free, or a new one; none beyond `limit` entries. Its value is as its last owner
    /// left it.
    pub(crate) fn take(&self, limit: usize) -> Option<Entry<T>> {
        if let Some(entry) = self.free.lock().pop() {
            return Some(entry);
        }
        if self.len.fetch_add(1, Ordering::Relaxed) >= limit {
            self.len.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let node = Box::into_raw(Box::new(Node { value: T::default(), next: ptr::null() }));
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until the exchange below publishes it.
            unsafe { (*node).next = head };
            // Release pairs with the Acquire in `iter`: who finds the node finds it initialised. SeqCst, so
            // that the node is in the list before its owner's first section, against the fence of a writer
            // that scans.
            match self.head.compare_exchange(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return NonNull::new(node).map(Entry),
                Err(now) => head = now,
            }
        }
    }
}

impl<T> Pool<T> {
    /// Gives an entry back. The caller does not use it afterwards.
    pub(crate) fn give(&self, entry: Entry<T>) {
        self.free.lock().push(entry);
    }

    /// How many entries there are, in use or free.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// All entries, in use or free. Those added meanwhile may be missed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|e| {
            // SAFETY: the pool is borrowed for as long as the value.
            unsafe { e.get() }
        })
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<T>> + '_ {
        let mut at: *const Node<T> = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let node = NonNull::new(at.cast_mut())?;
            // SAFETY: published nodes are initialised, their link is constant, and they live as long as the
            // pool.
            at = unsafe { (*node.as_ptr()).next };
            Some(Entry(node))
        })
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        let mut at = *self.head.get_mut();
        while !at.is_null() {
            // SAFETY: each node was made by Box::into_raw, is in the list once, and nobody else can reach it
            // now.
            let node = unsafe { Box::from_raw(at) };
            at = node.next.cast_mut();
        }
    }
}

// SAFETY: the pool owns its values and shares them between threads; the raw links are constant once
// published.
unsafe impl<T: Send + Sync> Sync for Pool<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Pool<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

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
