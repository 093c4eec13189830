//! haphazard: readers publish the address of each node they stand on in a hazard pointer. The library waits for 1,000
//! nodes or two seconds; an eager writer reclaims after each delete.
//!
//! A list needs two hazard pointers, hand over hand, and marks: a reader that has published `next` must know that the
//! node it read it from was still linked then, or `next` may have been freed before. The writer marks the link of a node
//! it has unlinked, and a reader that reads a mark begins again at the bucket. Without the marks, `--entries 16
//! --deletes-per-s 300000` crashes or hangs in one run of five.

use crate::{Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer};
use haphazard::{Domain, Global, HazardPointer, raw::Pointer};
use std::ops::Deref;
use std::ptr::NonNull;

/// The library; the writer reclaims after each delete if it is eager.
pub struct Hazards<const EAGER: bool>;

/// A reader's two hazard pointers.
pub struct Hands {
    here: HazardPointer<'static, Global>,
    next: HazardPointer<'static, Global>,
}

/// The writer's part.
pub struct Retirer<const EAGER: bool>;

impl<const EAGER: bool> Scheme for Hazards<EAGER> {
    const IDENTITY: Identity = Identity {
        scheme: if EAGER { "haphazard" } else { "haphazard-default" },
        library: "haphazard",
        version: env!("LIBRARY_VERSION_haphazard"),
        kind: "hazard",
    };
    const MARKS: bool = true;
    type Reader<'s> = Hands;
    type Writer<'s> = Retirer<EAGER>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self)
    }

    fn notes(&self) -> Vec<String> {
        let freed = if EAGER {
            "the writer reclaims eagerly after each delete"
        } else {
            "the writer reclaims at 1,000 nodes or after 2 s"
        };
        vec![format!("{freed}; readers run a fence per node")]
    }

    fn reader(&self, _: usize) -> Hands {
        Hands { here: HazardPointer::new(), next: HazardPointer::new() }
    }

    fn writer(&self) -> Retirer<EAGER> {
        Retirer
    }

    fn finish(self) {
        Domain::global().eager_reclaim();
    }
}

impl Reader for Hands {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        loop {
            if let Some(found) = self.walk(table, key, section) {
                self.here.reset_protection();
                self.next.reset_protection();
                return found;
            }
        }
    }
}

impl Hands {
    /// One walk along the bucket; none when it met a mark.
    #[inline(always)]
    fn walk<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Option<Found> {
        let mut link = table.bucket(key);
        loop {
            let Some((found, _)) = self.next.protect_ptr(link) else {
                return Some(section.hold(key, None));
            };
            if Node::is_mark(found.as_ptr()) {
                return None;
            }
            // SAFETY: the link was read again after `next` was published, and its node was not marked then: the found
            // node was not retired before, and the writer sees the hazard pointer after.
            let node: &Node = unsafe { found.as_ref() };
            if node.key() == key {
                return Some(section.hold(key, Some(node)));
            }
            std::mem::swap(&mut self.here, &mut self.next);
            link = node.next();
        }
    }
}

impl<const EAGER: bool> Writer for Retirer<EAGER> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        let domain = Domain::global();
        // SAFETY: the node is unlinked and marked, so no hazard pointer will come to protect it; it is retired once.
        unsafe { domain.retire_ptr::<Node, Retired>(node.as_ptr()) };
        if EAGER {
            domain.eager_reclaim();
        }
    }
}

/// A retired node, which is freed when dropped.
struct Retired(NonNull<Node>);

impl Deref for Retired {
    type Target = Node;

    fn deref(&self) -> &Node {
        // SAFETY: the node is freed by this value's drop.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: the library makes this value once for a retired node, when no hazard pointer protects it.
        unsafe { Node::free(self.0) };
    }
}

// SAFETY: both directions keep the pointer, and the node lives until the value is dropped.
unsafe impl Pointer<Node> for Retired {
    fn into_raw(self) -> *mut Node {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    unsafe fn from_raw(node: *mut Node) -> Self {
        Self(NonNull::new(node).expect("retired nodes are not null"))
    }
}
