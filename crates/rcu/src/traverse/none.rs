//! Systems without narrow sections, where no traversal is one.

use super::{Chained, Path, TrieNode};
use crate::sync::AtomicU32;
use std::sync::atomic::AtomicPtr;

/// # Safety
/// None needed; the signature is that of x86-64.
#[inline(always)]
pub(super) unsafe fn follow<P: Path>(
    _: &AtomicU32,
    _: &AtomicPtr<P::First>,
    _: P,
) -> Option<Option<P::Value>> {
    None
}

/// # Safety
/// None needed; the signature is that of x86-64.
#[inline(always)]
pub(super) unsafe fn find_in_chain<N: Chained>(
    _: &AtomicU32,
    _: &AtomicPtr<N>,
    _: &N::Key,
) -> Option<Option<N::Value>> {
    None
}

/// # Safety
/// None needed; the signature is that of x86-64.
#[inline(always)]
pub(super) unsafe fn longest_prefix<N: TrieNode<BRANCHES>, const BRANCHES: usize>(
    _: &AtomicU32,
    _: &AtomicPtr<N>,
    _: u128,
) -> Option<Option<N::Value>> {
    None
}
