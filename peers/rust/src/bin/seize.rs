//! seize: readers hold a guard, and the last guard that was active when a batch was retired frees it. Batches of one
//! node, so that the library tries at each delete; it can only when a batch has as many nodes as guards are active, and
//! tries again at the next.

use reprieve_peers::{Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer};
use seize::{Collector, Guard as _};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

struct Seize(Collector);

struct Participant<'s>(&'s Collector);

impl Scheme for Seize {
    const IDENTITY: Identity =
        Identity { scheme: "seize", library: "seize", version: env!("LIBRARY_VERSION_seize"), kind: "lock" };
    type Reader<'s> = Participant<'s>;
    type Writer<'s> = Participant<'s>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self(Collector::new().batch_size(1)))
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "batches of one node (default 32); freed by the writer, or by the last reader that leaves".into(),
        ]
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

fn main() -> ExitCode {
    reprieve_peers::main::<Seize>()
}
