//! The readers of the adaptive scheme: restartable sections while membarrier is quick, hazard slots and fences of their own
//! while it is slow. A vCPU that is away then holds up the nodes that its readers pin.
//!
//! While readers go hand over hand the writer must mark what it unlinks (see `haphazard.rs`); it always does, because
//! readers and writer do not switch at the same time.

use crate::reprieve::{Kind, Registered, identity};
use crate::{Found, Identity, Node, Options, Reader, Section, Sleep, Table};
use reprieve_rcu::{Fencing, Slot};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The scheme. Slow calls of membarrier are left to a thread; with `AHEAD` all of them are, and readers use slots from
/// the first call on.
pub struct Adaptive<const AHEAD: bool>;

/// A reader, and slots for the node that it stands on and the next.
pub struct Hands {
    registered: &'static reprieve_rcu::Reader,
    here: Slot<'static>,
    next: Slot<'static>,
}

impl Registered for Hands {
    fn new(registered: reprieve_rcu::Reader, _: &Options) -> Self {
        // Leaked: the slots borrow it. The thread's end gives the registration back.
        let registered: &'static _ = Box::leak(Box::new(registered));
        let slot = || registered.slot().expect("at most 256 readers");
        Self { registered, here: slot(), next: slot() }
    }
}

impl<const AHEAD: bool> Kind for Adaptive<AHEAD> {
    const IDENTITY: Identity =
        identity(if AHEAD { "reprieve-adaptive-ahead" } else { "reprieve-adaptive" }, "restartable");
    const MARKS: bool = true;
    const NOTES: &'static [&'static str] = &[if AHEAD {
        "readers go hand over hand by hazard slots; freed by the writer, in a call that retires"
    } else {
        "readers go hand over hand by hazard slots while membarrier takes more than 1 ms; freed by the writer, in a call \
         that retires"
    }];
    type Reader = Hands;

    fn options() -> reprieve_rcu::Options {
        let options = reprieve_rcu::Options::new().fencing(Fencing::Adaptive);
        if AHEAD { options.call_limit_ns(0) } else { options }
    }
}

/// A link, without the mark of the node that it is in: a restartable section may go on from a node that was unlinked.
fn unmarked(link: &AtomicPtr<Node>) -> *mut Node {
    Node::without_mark(link.load(Ordering::Acquire))
}

impl Reader for Hands {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // The hash needs no protection, and the bucket's address does not change.
        let bucket = table.bucket(key);
        if self.registered.is_fenced() {
            return self.walk(bucket, key, section);
        }
        // SAFETY: the section loads and computes, and its result is a copy; a node that it may reach is not freed
        // before it ends or starts again.
        let found = unsafe {
            self.registered.read(move || section.hold_awake(key, Table::find_from(bucket, key, unmarked)))
        };
        section.stall();
        found
    }
}

impl Hands {
    /// Hand over hand along the bucket, from its start again after a mark.
    #[inline(never)]
    fn walk<S: Sleep>(&mut self, bucket: &AtomicPtr<Node>, key: u64, section: &Section<S>) -> Found {
        let mut link = bucket;
        loop {
            let Some(found) = NonNull::new(self.next.pin(link)) else { return section.hold(key, None) };
            if Node::is_mark(found.as_ptr()) {
                link = bucket;
                continue;
            }
            // SAFETY: the link led to it after it was pinned, and its own node was not marked then: it was not retired
            // before. It stays pinned until its slot is used again, which is after the next node is pinned.
            let node: &Node = unsafe { found.as_ref() };
            if node.key() == key {
                return section.hold(key, Some(node));
            }
            std::mem::swap(&mut self.here, &mut self.next);
            link = node.next();
        }
    }
}
