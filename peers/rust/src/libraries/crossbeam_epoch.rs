//! crossbeam-epoch: readers pin an epoch; memory is freed two epochs later, by a thread that pins or flushes. The library
//! keeps up to 64 nodes in the writer's thread before it offers them, and tries at every 128th pin; an eager writer
//! flushes after each delete.

use crate::{Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer, table::acquire};
use crossbeam_epoch::{Collector, LocalHandle};
use std::ptr::NonNull;

/// The library; the writer flushes after each delete if it is eager.
pub struct Epochs<const EAGER: bool>(Collector);

/// A reader's part.
pub struct Participant(LocalHandle);

/// The writer's part.
pub struct Retirer<const EAGER: bool>(LocalHandle);

impl<const EAGER: bool> Scheme for Epochs<EAGER> {
    const IDENTITY: Identity = Identity {
        scheme: if EAGER { "crossbeam-epoch" } else { "crossbeam-epoch-default" },
        library: "crossbeam-epoch",
        version: env!("LIBRARY_VERSION_crossbeam_epoch"),
        kind: "lock",
    };
    type Reader<'s> = Participant;
    type Writer<'s> = Retirer<EAGER>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self(Collector::new()))
    }

    fn notes(&self) -> Vec<String> {
        let offered = if EAGER {
            "the writer flushes after each delete"
        } else {
            "the writer offers 64 nodes at a time"
        };
        vec![format!("{offered}; freed by the writer, or by a reader that pins")]
    }

    fn reader(&self, _: usize) -> Participant {
        Participant(self.0.register())
    }

    fn writer(&self) -> Retirer<EAGER> {
        Retirer(self.0.register())
    }

    /// Dropping the last reference to the collector frees all that waits.
    fn finish(self) {}
}

impl Reader for Participant {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        let _guard = self.0.pin();
        // SAFETY: a node that the pinned thread may reach is not freed until it unpins.
        section.hold(key, unsafe { table.find(key, acquire) })
    }
}

impl<const EAGER: bool> Writer for Retirer<EAGER> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        let guard = self.0.pin();
        // SAFETY: the node is unlinked, so readers that pin later do not reach it; it is freed once, on any thread.
        unsafe { guard.defer_unchecked(move || Node::free(node)) };
        if EAGER {
            guard.flush();
        }
    }
}
