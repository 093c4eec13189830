//! Systems without narrow sections, where no traversal is one. The functions are `unsafe` because those of x86-64 are.

use super::{Chained, Path, TrieNode};
use crate::sync::AtomicU32;
use std::sync::atomic::AtomicPtr;

#[inline(always)]
pub(super) unsafe fn follow<P: Path>(
    _: &AtomicU32,
    _: &AtomicPtr<P::First>,
    _: P,
) -> Option<Option<P::Value>> {
    None
}

#[inline(always)]
pub(super) unsafe fn find_in_chain<N: Chained>(
    _: &AtomicU32,
    _: &AtomicPtr<N>,
    _: &N::Key,
) -> Option<Option<N::Value>> {
    None
}

#[inline(always)]
pub(super) unsafe fn longest_prefix<N: TrieNode<BRANCHES>, const BRANCHES: usize>(
    _: &AtomicU32,
    _: &AtomicPtr<N>,
    _: u128,
) -> Option<Option<N::Value>> {
    None
}
