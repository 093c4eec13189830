//! The hash table of the benchmark: an array of 2^k buckets (at least one a node on average), each the head of a singly
//! linked list. One writer, any number of readers, no lock.
//!
//! Invariants. A reader reaches a node by acquire loads only, which pair with the release stores of the writer: it sees
//! the node's key, value and link as the writer made them. An unlinked node keeps its link, so that a reader that stands
//! on it walks on into the list; for hazard pointers the writer marks the link by its lowest bit. Which thread frees a
//! node, and when, is up to the scheme; a scheme also allocates the nodes, for a library may keep a header with each.

use crate::ledger::Ledger;
use crate::random::mix64;
use reprieve_rcu::traverse::Chained;
use reprieve_rcu::{Field, field};
use std::hint::black_box;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const POISON: u64 = 0xdead_dead_dead_dead;
const MARK: usize = 1;

/// An entry: one cache line, so that a look-up touches one line a node whatever the allocator does.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Node {
    key: AtomicU64,
    value: AtomicU64,
    next: AtomicPtr<Node>,
    unlinked_ns: AtomicU64,
    ledger: &'static Ledger,
}

/// What a reader must find under `key`.
#[inline]
fn value_of(key: u64) -> u64 {
    key.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(1)
}

impl Node {
    /// A node for `key`, not in a table, whose free will be recorded in `ledger`.
    pub fn new(key: u64, ledger: &'static Ledger) -> Self {
        Self {
            key: AtomicU64::new(key),
            value: AtomicU64::new(value_of(key)),
            next: AtomicPtr::new(ptr::null_mut()),
            unlinked_ns: AtomicU64::new(0),
            ledger,
        }
    }

    /// A node in an allocation of its own, which [`Node::free`] frees.
    pub fn boxed(key: u64, ledger: &'static Ledger) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self::new(key, ledger))))
    }

    /// The key; anything once the node is freed.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// The link to the next node of the bucket.
    #[inline]
    pub fn next(&self) -> &AtomicPtr<Node> {
        &self.next
    }

    /// Whether a link read from a node says that this node was unlinked; see [`Table::unlink`].
    #[inline]
    pub fn is_mark(link: *mut Node) -> bool {
        link.addr() & MARK != 0
    }

    /// Where `link` leads, whether its own node is marked or not.
    #[inline]
    pub fn without_mark(link: *mut Node) -> *mut Node {
        link.map_addr(|address| address & !MARK)
    }

    /// Computes for `rounds`, and tells whether the node held `key` and its value all the while.
    #[inline]
    pub fn dwell(&self, key: u64, rounds: u64) -> bool {
        let mut holds = self.value.load(Relaxed) == value_of(key);
        for _ in 0..rounds {
            holds &= (self.key() == key) & (self.value.load(Relaxed) == value_of(key));
        }
        holds
    }

    /// Stamps the time of the unlink, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn stamp(&self, unlinked_ns: u64) {
        self.unlinked_ns.store(unlinked_ns, Relaxed);
    }

    /// Overwrites the node with values no reader takes for right. Atomic, for the planted fault poisons nodes that are
    /// being read.
    fn poison(&self) {
        self.key.store(u64::MAX, Relaxed);
        self.value.store(POISON, Relaxed);
        self.next.store(ptr::null_mut(), Relaxed);
    }

    /// Records the delay and poisons the node. Its memory is freed next, and then counted in the ledger.
    pub fn end(&self) -> &'static Ledger {
        self.ledger.record(self.unlinked_ns.load(Relaxed));
        self.poison();
        self.ledger
    }

    /// Records the delay, poisons the node and frees it. The scheme calls it, from any thread.
    ///
    /// # Safety
    ///
    /// `node` came from [`Node::boxed`] and was given to [`Writer::retire`](crate::Writer::retire), is freed once, and no
    /// reader can hold it.
    pub unsafe fn free(node: NonNull<Node>) {
        // SAFETY: the node is from a box, and the caller owns it now.
        let owned = unsafe { Box::from_raw(node.as_ptr()) };
        let ledger = owned.end();
        drop(owned);
        ledger.count_freed();
    }

    /// As [`Node::free`], but the memory stays poisoned and is never freed: the planted fault calls it while readers may
    /// hold the node.
    pub fn quarantine(&self) {
        self.end().count_freed();
    }
}

/// As [`Node::dwell`], on a copy of the value.
#[inline]
pub fn dwell_on_copy(value: u64, key: u64, rounds: u64) -> bool {
    let mut holds = value == value_of(key);
    for _ in 0..rounds {
        holds &= black_box(value) == value_of(key);
    }
    holds
}

/// For look-ups in one piece of assembly, which loads a word at a time.
impl Chained for Node {
    type Key = u64;
    type Value = u64;
    const NEXT: Field<Self, AtomicPtr<Self>> = field!(Node, next);
    // SAFETY: an `AtomicU64` has the size and the alignment of a `u64`, and every value of one. Schemes that read so do it
    // where the library loads whole words only.
    const KEY: Field<Self, u64> = unsafe { Field::new(offset_of!(Node, key), |_| unreachable!()) };
    // SAFETY: as above.
    const VALUE: Field<Self, u64> = unsafe { Field::new(offset_of!(Node, value), |_| unreachable!()) };
}

/// The hash table. Its nodes live until the program ends, unless a scheme frees them.
#[derive(Debug)]
pub struct Table {
    buckets: Box<[AtomicPtr<Node>]>,
    mask: u64,
    entries: u64,
}

impl Table {
    /// A table of the keys `0..entries`, whose nodes `node` makes.
    pub fn new(entries: u64, node: impl Fn(u64) -> NonNull<Node>) -> Self {
        let buckets = entries.next_power_of_two();
        let table = Self {
            buckets: (0..buckets).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            mask: buckets - 1,
            entries,
        };
        for key in 0..entries {
            table.insert(node(key));
        }
        table
    }

    /// How many keys the table has.
    #[inline]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The head of the bucket of `key`.
    #[inline]
    pub fn bucket(&self, key: u64) -> &AtomicPtr<Node> {
        &self.buckets[(mix64(key) & self.mask) as usize]
    }

    /// The node of `key`, or none while the writer is replacing it. `load` reads a link, with acquire or stronger.
    ///
    /// # Safety
    ///
    /// From now on and as long as the result is used, no node that this thread may reach is freed; and links are not
    /// marked.
    #[inline]
    pub unsafe fn find(&self, key: u64, load: impl Fn(&AtomicPtr<Node>) -> *mut Node) -> Option<&Node> {
        // SAFETY: the caller's promise.
        unsafe { Self::find_from(self.bucket(key), key, load) }
    }

    /// As [`find`](Self::find), from the head of the key's bucket.
    ///
    /// # Safety
    ///
    /// As for `find`.
    #[inline]
    pub unsafe fn find_from(
        mut link: &AtomicPtr<Node>,
        key: u64,
        load: impl Fn(&AtomicPtr<Node>) -> *mut Node,
    ) -> Option<&Node> {
        loop {
            // SAFETY: a link is null or leads to a node, which the caller keeps.
            let node = unsafe { load(link).as_ref() }?;
            if node.key() == key {
                return Some(node);
            }
            link = node.next();
        }
    }

    /// Unlinks the node of `key` and gives it; with `mark` its link is marked afterwards, for readers that check a link
    /// again after they have published the node they found through it. The writer alone calls it.
    ///
    /// # Panics
    ///
    /// When the table has no such node.
    pub fn unlink(&self, key: u64, mark: bool) -> NonNull<Node> {
        let mut link = self.bucket(key);
        loop {
            let found = NonNull::new(link.load(Relaxed)).expect("the writer deletes entries of the table");
            // SAFETY: the writer alone unlinks, so a node that it finds in the table is not freed.
            let node = unsafe { found.as_ref() };
            if node.key() == key {
                let next = node.next.load(Relaxed);
                // Release: pairs with the acquire loads of readers.
                link.store(next, Release);
                if mark {
                    node.next.store(next.map_addr(|a| a | MARK), Release);
                }
                return found;
            }
            link = node.next();
        }
    }

    /// Adds a new node to its bucket. The writer alone calls it.
    pub fn insert(&self, node: NonNull<Node>) {
        // SAFETY: a node that is not in the table yet is not freed.
        let fresh = unsafe { node.as_ref() };
        let head = self.bucket(fresh.key());
        fresh.next.store(head.load(Relaxed), Relaxed);
        // Release: pairs with the acquire loads of readers.
        head.store(node.as_ptr(), Release);
    }
}

/// A link read with acquire: the usual `load` of [`Table::find`].
#[inline]
pub fn acquire(link: &AtomicPtr<Node>) -> *mut Node {
    link.load(Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> &'static Ledger {
        Box::leak(Box::new(Ledger::default()))
    }

    fn table(entries: u64, ledger: &'static Ledger) -> Table {
        Table::new(entries, |key| Node::boxed(key, ledger))
    }

    fn find(table: &Table, key: u64) -> Option<&Node> {
        // SAFETY: these tests free nothing that they look for.
        unsafe { table.find(key, acquire) }
    }

    #[test]
    fn every_key_is_found_with_its_value() {
        let table = table(1000, ledger());
        assert!((0..1000).all(|key| find(&table, key).is_some_and(|node| node.dwell(key, 1))));
        assert!(find(&table, 1000).is_none());
    }

    #[test]
    fn an_unlinked_key_is_gone_and_the_rest_stays() {
        let table = table(64, ledger());
        for key in 0..32 {
            table.unlink(key, key % 2 == 0);
        }
        assert!((0..64).all(|key| find(&table, key).is_some() == (key >= 32)));
    }

    #[test]
    fn a_mark_shows_on_the_unlinked_node_alone() {
        let table = table(64, ledger());
        let [plain, marked] = [(1, false), (2, true)].map(|(key, mark)| table.unlink(key, mark));
        // SAFETY: unlinked nodes of this test are not freed.
        let is_mark = |node: NonNull<Node>| Node::is_mark(unsafe { node.as_ref() }.next().load(Relaxed));
        assert_eq!((is_mark(plain), is_mark(marked)), (false, true));
    }

    #[test]
    fn a_poisoned_node_does_not_hold() {
        let table = table(4, ledger());
        let node = find(&table, 3).unwrap();
        node.quarantine();
        assert!(!node.dwell(3, 1));
    }

    #[test]
    fn free_is_counted_and_its_delay_recorded() {
        let ledger = ledger();
        let table = table(4, ledger);
        ledger.open_window(0);
        let node = table.unlink(2, false);
        ledger.count_retired();
        // SAFETY: the node is unlinked and this test is its only reader.
        unsafe { Node::free(node) };
        assert_eq!((ledger.unreclaimed(), ledger.delay().count()), (0, 1));
    }
}
