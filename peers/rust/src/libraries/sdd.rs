//! sdd: readers hold a guard in an epoch; memory is freed three epochs later, by the thread that retired it, when one of
//! its guards ends. The library tries to advance the epoch at every 128th guard of a thread with garbage; with
//! `Guard::accelerate` at each.
//!
//! Nodes are deferred as closures, by `Guard::defer_execute`. The library's own pointers would put its link into each node,
//! which then takes two cache lines; the closure costs the writer one small allocation per delete instead, and readers
//! find the same table as under the other schemes.

use crate::{Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer, table::acquire};
use sdd::Guard;
use std::ptr::NonNull;

/// Guards enough for the last node: it waits for three epochs.
const LAST_EPOCHS: usize = 8;

/// The library, which has one state per process; the writer accelerates each guard if it is eager.
pub struct Sdd<const EAGER: bool>;

/// A reader's part: the library registers threads by itself.
pub struct Guards;

/// The writer's part.
pub struct Retirer<const EAGER: bool>;

impl<const EAGER: bool> Scheme for Sdd<EAGER> {
    const IDENTITY: Identity = Identity {
        scheme: if EAGER { "sdd-batch-1" } else { "sdd" },
        library: "sdd",
        version: env!("LIBRARY_VERSION_sdd"),
        kind: "lock",
    };
    type Reader<'s> = Guards;
    type Writer<'s> = Retirer<EAGER>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self)
    }

    fn notes(&self) -> Vec<String> {
        let advance = if EAGER {
            "an attempt to advance the epoch per delete (default: every 128th)"
        } else {
            "an attempt to advance the epoch at every 128th delete, the default"
        };
        vec![format!("{advance}; freed by the writer; a closure is allocated per delete")]
    }

    fn reader(&self, _: usize) -> Guards {
        Guards
    }

    fn writer(&self) -> Retirer<EAGER> {
        Retirer
    }

    fn finish(self) {
        for _ in 0..LAST_EPOCHS {
            Guard::new().accelerate();
        }
    }
}

impl Reader for Guards {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        let _guard = Guard::new();
        // SAFETY: a node that the thread may reach is not freed until the guard is dropped.
        section.hold(key, unsafe { table.find(key, acquire) })
    }
}

impl<const EAGER: bool> Writer for Retirer<EAGER> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        let guard = Guard::new();
        // SAFETY: the closure runs once, when no guard is left that was there at the unlink.
        guard.defer_execute(move || unsafe { Node::free(node) });
        if EAGER {
            guard.accelerate();
        }
    }
}
