//! crossbeam-epoch: readers pin an epoch; memory is freed two epochs later, by whoever pins or flushes. The writer
//! flushes after each delete: without that the library keeps up to 64 nodes in the thread before it offers them.

use crossbeam_epoch::{Collector, LocalHandle};
use reprieve_peers::{
    Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer, table::acquire,
};
use std::process::ExitCode;
use std::ptr::NonNull;

struct Epochs(Collector);

struct Participant(LocalHandle);

impl Scheme for Epochs {
    const IDENTITY: Identity = Identity {
        scheme: "crossbeam-epoch",
        library: "crossbeam-epoch",
        version: env!("LIBRARY_VERSION_crossbeam_epoch"),
        kind: "lock",
    };
    type Reader<'s> = Participant;
    type Writer<'s> = Participant;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self(Collector::new()))
    }

    fn notes(&self) -> Vec<String> {
        vec!["the writer flushes after each delete; freed by the writer, or by a reader that pins".into()]
    }

    fn reader(&self, _: usize) -> Participant {
        Participant(self.0.register())
    }

    fn writer(&self) -> Participant {
        Participant(self.0.register())
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

impl Writer for Participant {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        let guard = self.0.pin();
        // SAFETY: the node is unlinked, so readers that pin later do not reach it; it is freed once, on any thread.
        unsafe { guard.defer_unchecked(move || Node::free(node)) };
        guard.flush();
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Epochs>()
}
