//! Traversals of structures of your own, each in one piece of assembly: along a path of pointers, along a chain of
//! nodes, or to the longest prefix in a trie.
//!
//! Each ends with a copy of what it found. Like [`RcuMap::copied`](crate::RcuMap::copied), it is a restartable
//! section of a few instructions, which usually stores nothing. A closure in [`Domain::read`] can do the same and
//! anything else, and costs more.
//!
//! This holds for values of up to 128 bytes and, in a chain, for keys that are one word of 1, 2, 4 or 8 bytes
//! (integers, `Ipv4Addr`). For others, [`Domain::read`] runs a closure. Without restartable sections, all of them are
//! short locked sections.
//!
//! Writers publish with [`Release`](Ordering::Release), unlink, and then [`retire`](Domain::retire) in the same domain.
//!
//! ```
//! use reprieve_rcu::traverse::Chained;
//! use reprieve_rcu::{Domain, Field, field};
//! use std::ptr::null_mut;
//! use std::sync::atomic::{AtomicPtr, Ordering};
//!
//! struct Node { next: AtomicPtr<Node>, key: u32, value: u64 }
//! impl Chained for Node {
//!     type Key = u32;
//!     type Value = u64;
//!     const NEXT: Field<Self, AtomicPtr<Self>> = field!(Node, next);
//!     const KEY: Field<Self, u32> = field!(Node, key);
//!     const VALUE: Field<Self, u64> = field!(Node, value);
//! }
//!
//! let domain = Domain::default();
//! let first = AtomicPtr::new(null_mut());
//! for (key, value) in [(7, 70), (8, 80)] {
//!     let next = AtomicPtr::new(first.load(Ordering::Relaxed));
//!     first.store(Box::into_raw(Box::new(Node { next, key, value })), Ordering::Release);
//! }
//! // SAFETY: nodes are unlinked first and then retired in this domain; the last one's `next` is null.
//! assert_eq!(unsafe { domain.find_in_chain(&first, &7) }, Some(70));
//! assert_eq!(unsafe { domain.find_in_chain(&first, &9) }, None);
//!
//! let eight = first.load(Ordering::Relaxed);
//! // SAFETY: as above; the node came from a box, and nobody can find it any more.
//! unsafe {
//!     first.store((*eight).next.load(Ordering::Relaxed), Ordering::Release);
//!     domain.retire(eight);
//! }
//! # unsafe { drop(Box::from_raw(first.into_inner())) };
//! ```

#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
))]
mod short;
#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
)))]
#[path = "traverse/none.rs"]
mod short;

use crate::map::Plain;
use crate::{Domain, Field};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A tuple of fields: up to three pointer fields, each leading to the next object, and then the field to copy.
pub trait Path: Copy + sealed::Sealed {
    /// Where the path begins.
    type First;
    /// What it leads to.
    type Value: Copy;
    #[doc(hidden)]
    const HOPS: usize;
    /// The offsets of the pointers, and that of the value.
    #[doc(hidden)]
    fn offsets(self) -> ([usize; 3], usize);
}

mod sealed {
    /// Only tuples of fields are paths, because fields guarantee their offsets.
    pub trait Sealed {}
}

macro_rules! paths {
    ($($hops:literal: $first:ident [$($from:ident $to:ident)*] $last:ident, ($($hop:ident)*), [$($zero:literal)*];)*) => {$(
        impl<$first, $($to,)* V: Copy> sealed::Sealed for ($(Field<$from, AtomicPtr<$to>>,)* Field<$last, V>,) {}
        impl<$first, $($to,)* V: Copy> Path for ($(Field<$from, AtomicPtr<$to>>,)* Field<$last, V>,) {
            type First = $first;
            type Value = V;
            const HOPS: usize = $hops;
            #[inline(always)]
            fn offsets(self) -> ([usize; 3], usize) {
                let ($($hop,)* value,) = self;
                ([$($hop.offset(),)* $($zero),*], value.offset())
            }
        }
    )*};
}
paths! {
    0: A [] A, (), [0 0 0];
    1: A [A B] B, (one), [0 0];
    2: A [A B B C] C, (one two), [0];
    3: A [A B B C C D] D, (one two three), [];
}

/// A node of a singly linked chain: of a list, or of one bucket of a hash table.
pub trait Chained: Sized {
    /// The key by which look-ups find the node.
    type Key: Plain;
    /// What a look-up copies.
    type Value: Copy;
    /// The next node; null at the end.
    const NEXT: Field<Self, AtomicPtr<Self>>;
    /// The key. It must not change from when the node is published until it is freed.
    const KEY: Field<Self, Self::Key>;
    /// The value. It must not change from when the node is published until it is freed.
    const VALUE: Field<Self, Self::Value>;
}

/// A node of a trie. Each level branches on one digit of the key, the most significant first. `BRANCHES` is a power
/// of two from 2 to 65,536.
pub trait TrieNode<const BRANCHES: usize>: Sized {
    /// What a look-up copies.
    type Value: Copy;
    /// The next node for each digit, or null.
    const CHILDREN: Field<Self, [AtomicPtr<Self>; BRANCHES]>;
    /// The value of the prefix that leads to this node, or null.
    const VALUE: Field<Self, AtomicPtr<Self::Value>>;
}

/// Keys with prefixes: an address or an integer.
pub trait Digits: Copy {
    /// The key's bits, starting at the most significant bit, with zeros after them.
    fn aligned(self) -> u128;
}

macro_rules! digits {
    ($($t:ty, $bits:literal, $to:expr;)*) => {
        $(impl Digits for $t {
            #[inline(always)]
            fn aligned(self) -> u128 {
                let bits: u128 = $to(self).into();
                bits << (128 - $bits)
            }
        })*
    };
}
digits! {
    u16, 16, u128::from;
    u32, 32, u128::from;
    u64, 64, u128::from;
    u128, 128, u128::from;
    Ipv4Addr, 32, Ipv4Addr::to_bits;
    Ipv6Addr, 128, Ipv6Addr::to_bits;
}

/// How many bits one digit has.
const fn digit_bits(branches: usize) -> u32 {
    assert!(
        branches.is_power_of_two() && branches >= 2 && branches <= 1 << 16,
        "a trie's nodes have 2, 4, 8 and so on up to 65,536 branches"
    );
    branches.trailing_zeros()
}

impl Domain {
    /// A copy of the value at the end of `path`, which begins at the object that `first` points to. None if a pointer
    /// on the way is null.
    ///
    /// ```
    /// use reprieve_rcu::{Domain, field};
    /// use std::sync::atomic::AtomicPtr;
    ///
    /// struct Config { limits: AtomicPtr<Limits> }
    /// struct Limits { requests: u32, timeout_ms: u64 }
    ///
    /// let domain = Domain::default();
    /// let limits = Box::into_raw(Box::new(Limits { requests: 10, timeout_ms: 250 }));
    /// let config = Box::into_raw(Box::new(Config { limits: AtomicPtr::new(limits) }));
    /// let first = AtomicPtr::new(config);
    /// // SAFETY: both objects are unlinked first and then retired in this domain.
    /// let timeout_ms = unsafe { domain.follow(&first, (field!(Config, limits), field!(Limits, timeout_ms))) };
    /// assert_eq!(timeout_ms, Some(250));
    /// # unsafe { assert_eq!((*limits).requests, 10); drop((Box::from_raw(config), Box::from_raw(limits))) };
    /// ```
    ///
    /// # Safety
    /// `first` and each pointer on the way are null, or point to an object that is unlinked before it is retired in
    /// this domain. If `path` names a field of a union, the union holds that field. The value does not change from
    /// when it is published until it is freed.
    #[inline(always)]
    pub unsafe fn follow<P: Path>(&self, first: &AtomicPtr<P::First>, path: P) -> Option<P::Value> {
        // SAFETY: objects that can be found live as long as the section. The offsets are those of fields.
        unsafe {
            if let Some(found) = short::follow(&self.core().clock.mode, first, path) {
                return found;
            }
            self.read(|| {
                let (hops, value) = path.offsets();
                let mut at = first.load(Ordering::Acquire).cast::<u8>();
                for &hop in &hops[..P::HOPS] {
                    if at.is_null() {
                        return None;
                    }
                    at = (*at.add(hop).cast::<AtomicPtr<u8>>()).load(Ordering::Acquire);
                }
                (!at.is_null()).then(|| at.add(value).cast::<P::Value>().read_unaligned())
            })
        }
    }

    /// A copy of the value of the first node with `key` in the chain that begins at the node that `first` points to.
    /// See [`traverse`](crate::traverse) for an example.
    ///
    /// # Safety
    /// `first` and each node's pointer to the next are null, or point to a node that is unlinked before it is retired
    /// in this domain. The last node's pointer is null. Keys and values do not change from when a node is published
    /// until it is freed.
    #[inline(always)]
    pub unsafe fn find_in_chain<N: Chained>(&self, first: &AtomicPtr<N>, key: &N::Key) -> Option<N::Value> {
        // SAFETY: nodes that can be found live as long as the section.
        unsafe {
            if let Some(found) = short::find_in_chain(&self.core().clock.mode, first, key) {
                return found;
            }
            let key = *key;
            self.read(move || {
                let mut node = first.load(Ordering::Acquire);
                while !node.is_null() {
                    if N::KEY.of(node).read_unaligned() == key {
                        return Some(N::VALUE.of(node).read_unaligned());
                    }
                    node = (*N::NEXT.of(node)).load(Ordering::Acquire);
                }
                None
            })
        }
    }

    /// A copy of the value of the longest prefix of `key` that has one, in the trie whose topmost node `root` points to.
    ///
    /// The value of the topmost node is that of the empty prefix. If the length of a prefix lies between two levels,
    /// store its value with each of its continuations to the lower level, as in DIR-24-8 (Gupta, Lin and McKeown,
    /// INFOCOM 1998) and other multibit tries.
    ///
    /// ```
    /// use reprieve_rcu::traverse::TrieNode;
    /// use reprieve_rcu::{Domain, Field, field};
    /// use std::net::Ipv4Addr;
    /// use std::ptr::null_mut;
    /// use std::sync::atomic::AtomicPtr;
    ///
    /// /// A level for each byte of an address.
    /// struct Node { interface: AtomicPtr<u32>, children: [AtomicPtr<Node>; 256] }
    /// impl TrieNode<256> for Node {
    ///     type Value = u32;
    ///     const CHILDREN: Field<Self, [AtomicPtr<Self>; 256]> = field!(Node, children);
    ///     const VALUE: Field<Self, AtomicPtr<u32>> = field!(Node, interface);
    /// }
    /// let node = |interface| Node {
    ///     interface: AtomicPtr::new(Box::into_raw(Box::new(interface))),
    ///     children: [const { AtomicPtr::new(null_mut()) }; 256],
    /// };
    ///
    /// let domain = Domain::default();
    /// let mut all = node(1);
    /// all.children[10] = AtomicPtr::new(Box::into_raw(Box::new(node(2))));
    /// let root = AtomicPtr::new(&raw mut all);
    /// // SAFETY: nodes and values live until all look-ups are over.
    /// let interface = |a, b| unsafe { domain.longest_prefix(&root, Ipv4Addr::new(a, b, 0, 1)) };
    /// assert_eq!(interface(10, 7), Some(2)); // by 10.0.0.0/8
    /// assert_eq!(interface(11, 7), Some(1)); // by 0.0.0.0/0
    /// # let ten = unsafe { Box::from_raw(*all.children[10].get_mut()) };
    /// # for node in [&all, &ten] { drop(unsafe { Box::from_raw(node.interface.load(std::sync::atomic::Ordering::Relaxed)) }) }
    /// ```
    ///
    /// # Safety
    /// `root` and each node's children are null, or point to a node that is unlinked before it is retired in this
    /// domain. Each node's pointer to a value is null, or points to a value of which the same holds. Values do not
    /// change from when they are published until they are freed. No node is its own descendant.
    #[inline(always)]
    pub unsafe fn longest_prefix<N: TrieNode<BRANCHES>, const BRANCHES: usize>(
        &self,
        root: &AtomicPtr<N>,
        key: impl Digits,
    ) -> Option<N::Value> {
        // Checked when this is compiled, on every system.
        const { digit_bits(BRANCHES) };
        let key = key.aligned();
        // SAFETY: nodes and values that can be found live as long as the section.
        unsafe {
            if let Some(found) = short::longest_prefix(&self.core().clock.mode, root, key) {
                return found;
            }
            self.read(|| {
                let (mut node, mut rest) = (root.load(Ordering::Acquire), key);
                let mut longest = std::ptr::null_mut::<N::Value>();
                while !node.is_null() {
                    let value = (*N::VALUE.of(node)).load(Ordering::Acquire);
                    if !value.is_null() {
                        longest = value;
                    }
                    let digit = (rest >> (128 - digit_bits(BRANCHES))) as usize;
                    rest <<= digit_bits(BRANCHES);
                    node = (*N::CHILDREN.of(node).cast::<AtomicPtr<N>>().add(digit)).load(Ordering::Acquire);
                }
                (!longest.is_null()).then(|| longest.read())
            })
        }
    }
}
