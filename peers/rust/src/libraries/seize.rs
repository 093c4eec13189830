//! seize: readers hold a guard, and the last guard that was active when a batch was retired frees it. Batches have 32
//! nodes by default. With batches of one node the library tries at each delete; it can only when a batch has as many
//! nodes as guards are active, and tries again at the next.

use crate::{Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer};
use seize::{Collector, Guard as _};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The library, with batches of one node if it is eager.
pub struct Seize<const EAGER: bool>(Collector);

/// A thread's part, the same for readers and the writer.
pub struct Participant<'s>(&'s Collector);

impl<const EAGER: bool> Scheme for Seize<EAGER> {
    const IDENTITY: Identity = Identity {
        scheme: if EAGER { "seize" } else { "seize-default" },
        library: "seize",
        version: env!("LIBRARY_VERSION_seize"),
        kind: "lock",
    };
    type Reader<'s> = Participant<'s>;
    type Writer<'s> = Participant<'s>;

    fn new(_: &Options) -> Result<Self, String> {
        let collector = Collector::new();
        Ok(Self(if EAGER { collector.batch_size(1) } else { collector }))
    }

    fn notes(&self) -> Vec<String> {
        let batches =
            if EAGER { "batches of one node (default 32)" } else { "batches of 32 nodes, the default" };
        vec![format!("{batches}; freed by the writer, or by the last reader that leaves")]
    }

    fn reader(&self, _: usize) -> Participant<'_> {
        Participant(&self.0)
    }

    fn writer(&self) -> Participant<'_> {
        Participant(&self.0)
    }

    fn finish(self) {
        // SAFETY: the readers have ended, and the writer holds no reference.
        unsafe { self.0.reclaim_all() };
    }
}

impl Reader for Participant<'_> {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        let guard = self.0.enter();
        // SAFETY: a node loaded through the guard is not freed until the guard is dropped.
        section.hold(key, unsafe { table.find(key, |link| guard.protect(link, Ordering::Acquire)) })
    }
}

impl Writer for Participant<'_> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        // SAFETY: the node is unlinked, so guards made later do not reach it.
        unsafe { self.0.retire(node.as_ptr(), free) };
    }
}

/// # Safety
///
/// As [`Node::free`].
unsafe fn free(node: *mut Node, _: &Collector) {
    let node = NonNull::new(node).expect("retired nodes are not null");
    // SAFETY: seize calls this once for each retired node, when no guard protects it.
    unsafe { Node::free(node) };
}
