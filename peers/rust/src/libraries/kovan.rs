//! kovan: readers pin, and each load of a link checks an epoch. Retired nodes wait in batches of 64; a batch is handed to
//! the threads that may hold one of its nodes, and the last of them frees it. A writer that flushes after each delete
//! offers batches of one node; like seize, the library can place a batch only when it has as many nodes as threads may
//! hold one, and tries again at the next.
//!
//! The library wants its header at the beginning of each object, with the epoch of its allocation. A header and a node
//! take two cache lines. Readers touch the node's only, but the table is twice as large as under the other schemes.

use crate::{Found, Identity, Ledger, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer};
use kovan::{Atomic, Reclaimable, RetiredNode};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The library, which has one state per process; the writer flushes after each delete if it is eager.
pub struct Kovan<const EAGER: bool>;

/// A reader's part: the library registers threads by itself.
pub struct Pins;

/// The writer's part.
pub struct Retirer<const EAGER: bool>;

/// The allocation of a node.
#[repr(C)]
struct Headed {
    header: RetiredNode,
    node: Node,
}

impl<const EAGER: bool> Scheme for Kovan<EAGER> {
    const IDENTITY: Identity = Identity {
        scheme: if EAGER { "kovan-batch-1" } else { "kovan" },
        library: "kovan",
        version: env!("LIBRARY_VERSION_kovan"),
        kind: "lock",
    };
    type Reader<'s> = Pins;
    type Writer<'s> = Retirer<EAGER>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self)
    }

    fn node(key: u64, ledger: &'static Ledger) -> NonNull<Node> {
        let headed = Headed { header: RetiredNode::new(), node: Node::new(key, ledger) };
        let headed = Box::into_raw(Box::new(headed));
        // The library turns links into numbers and back.
        headed.expose_provenance();
        // SAFETY: just allocated. Not through a reference to the node, for retire goes back to the header.
        unsafe { NonNull::new_unchecked(&raw mut (*headed).node) }
    }

    fn notes(&self) -> Vec<String> {
        let batches = if EAGER {
            "the writer flushes after each delete (default: batches of 64 nodes)"
        } else {
            "batches of 64 nodes, the default"
        };
        let header = "a header doubles each node to two cache lines; readers touch one";
        vec![format!("{batches}; freed by the writer, or by a reader that pins"), header.into()]
    }

    fn reader(&self, _: usize) -> Pins {
        Pins
    }

    fn writer(&self) -> Retirer<EAGER> {
        Retirer
    }

    /// The readers' threads have ended and given back what they held: a flush submits the last batch, and with no
    /// thread pinned it is freed at once or by the next.
    fn finish(self) {
        for _ in 0..2 {
            kovan::flush();
        }
    }
}

impl Reader for Pins {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        let guard = kovan::pin();
        let load = |link: &AtomicPtr<Node>| as_atomic(link).load(Ordering::Acquire, &guard).as_raw();
        // SAFETY: a node loaded by the library under the guard is not freed until the guard is dropped.
        section.hold(key, unsafe { table.find(key, load) })
    }
}

// An `Atomic` is one word: its only field that has a size is an AtomicUsize, which the library turns into a pointer.
const _: () = assert!(size_of::<Atomic<Node>>() == size_of::<AtomicPtr<Node>>());
const _: () = assert!(align_of::<Atomic<Node>>() == align_of::<AtomicPtr<Node>>());

/// The link as the library's type, whose loads are protected.
#[inline(always)]
fn as_atomic(link: &AtomicPtr<Node>) -> &Atomic<Node> {
    // SAFETY: both are one atomic word at offset 0, of the size and alignment asserted above; the nodes' addresses are
    // exposed.
    unsafe { &*std::ptr::from_ref(link).cast() }
}

impl<const EAGER: bool> Writer for Retirer<EAGER> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        // SAFETY: nodes of this scheme lie within a `Headed`.
        let headed = unsafe { node.byte_sub(offset_of!(Headed, node)) }.cast::<Headed>();
        // SAFETY: the header is at the beginning, and a node is retired once; any thread may free it.
        unsafe { kovan::retire_reclaimable(headed.as_ptr()) };
        if EAGER {
            kovan::flush();
        }
    }
}

// SAFETY: the header is the first field of a `repr(C)` struct.
unsafe impl Reclaimable for Headed {
    fn retired_node(&self) -> &RetiredNode {
        &self.header
    }

    fn retired_node_mut(&mut self) -> &mut RetiredNode {
        &mut self.header
    }

    unsafe fn dealloc(headed: *mut Self) {
        // SAFETY: it came from a box, and the library calls this once, when no guard protects it.
        let owned = unsafe { Box::from_raw(headed) };
        let ledger = owned.node.end();
        drop(owned);
        ledger.count_freed();
    }
}
