//! The traversals as narrow sections, for x86-64. Each ends with a copy of what it found.
//!
//! All return `Some(None)` if there is nothing to be found, and `None` if a narrow section is not possible. Loads on
//! x86 are Acquire, in program order.

use super::{Chained, Path, TrieNode, digit_bits};
use crate::map::Plain;
use crate::section::arch::copy::{copy, word_of};
use crate::sync::AtomicU32;
use std::arch::x86_64::_mm_cvtsi64_si128;
use std::sync::atomic::AtomicPtr;

/// Follows the pointers of `path`, one after another, and copies the value at its end.
///
/// # Safety
/// In a section of a domain with this mode, `first` and each pointer on the way are null or point to an object that is alive.
#[inline(always)]
pub(super) unsafe fn follow<P: Path>(
    mode: &AtomicU32,
    first: &AtomicPtr<P::First>,
    path: P,
) -> Option<Option<P::Value>> {
    let ([one, two, three], value) = path.offsets();
    // SAFETY: the lines lead to the value, or to a null pointer on the way.
    unsafe {
        copy!(
            mode,
            P::Value,
            [
                "mov {at}, qword ptr [{first}]",
                "test {at}, {at}",
                "jz 4f",
                ".if {hops} >= 1",
                "mov {at}, qword ptr [{at} + {one_at}]",
                "test {at}, {at}",
                "jz 4f",
                ".endif",
                ".if {hops} >= 2",
                "mov {at}, qword ptr [{at} + {two_at}]",
                "test {at}, {at}",
                "jz 4f",
                ".endif",
                ".if {hops} >= 3",
                "mov {at}, qword ptr [{at} + {three_at}]",
                "test {at}, {at}",
                "jz 4f",
                ".endif",
            ],
            " + {value_at}",
            first = in(reg) first.as_ptr(),
            hops = const P::HOPS,
            one_at = in(reg) one,
            two_at = in(reg) two,
            three_at = in(reg) three,
            value_at = in(reg) value,
        )
    }
}

/// Goes from node to node until one has `key`, and copies its value. Returns `None` for keys that are not a word of
/// 1, 2, 4 or 8 bytes.
///
/// # Safety
/// In a section of a domain with this mode, `first` and each node's pointer to the next are null or point to a node that is
/// alive, and the last one's is null.
#[inline(always)]
pub(super) unsafe fn find_in_chain<N: Chained>(
    mode: &AtomicU32,
    first: &AtomicPtr<N>,
    key: &N::Key,
) -> Option<Option<N::Value>> {
    if !N::Key::IS_WORD {
        return None;
    }
    // SAFETY: `IS_WORD` promises that no byte is padding.
    let key = unsafe { word_of(key) };
    macro_rules! find {
        ($compare:literal) => {
            // SAFETY: the lines lead to the value of a node, or to the chain's end.
            unsafe {
                copy!(
                    mode,
                    N::Value,
                    [
                        "mov {at}, qword ptr [{first}]",
                        "20:",
                        "test {at}, {at}",
                        "jz 4f",
                        concat!("cmp ", $compare),
                        "je 21f",
                        "mov {at}, qword ptr [{at} + {next_at}]",
                        "jmp 20b",
                        "21:",
                    ],
                    " + {value_at}",
                    first = in(reg) first.as_ptr(),
                    key = in(reg) key,
                    next_at = const N::NEXT.offset(),
                    key_at = const N::KEY.offset(),
                    value_at = const N::VALUE.offset(),
                )
            }
        };
    }
    match size_of::<N::Key>() {
        1 => find!("byte ptr [{at} + {key_at}], {key:l}"),
        2 => find!("word ptr [{at} + {key_at}], {key:x}"),
        4 => find!("dword ptr [{at} + {key_at}], {key:e}"),
        8 => find!("qword ptr [{at} + {key_at}], {key}"),
        _ => None,
    }
}

/// Goes down a trie by the bits of `key`, from the most significant on. Copies the value of the last node on the way
/// that has one.
///
/// # Safety
/// In a section of a domain with this mode, `root` and each node's pointers to children are null or point to a node that is
/// alive, and each node's pointer to a value is null or points to one that is alive. No node is its own descendant.
#[inline(always)]
pub(super) unsafe fn longest_prefix<N: TrieNode<BRANCHES>, const BRANCHES: usize>(
    mode: &AtomicU32,
    root: &AtomicPtr<N>,
    key: u128,
) -> Option<Option<N::Value>> {
    // SAFETY: instructions of SSE2, which is part of x86-64; they touch no memory.
    let [upper, lower] = [key >> 64, key].map(|half| unsafe { _mm_cvtsi64_si128(half as i64) });
    // SAFETY: the lines lead to the value that was found last, or to null.
    unsafe {
        copy!(
            mode,
            N::Value,
            [
                "mov {node}, qword ptr [{root}]",
                "movq {high}, {key_high}",
                "movq {low}, {key_low}",
                "xor {at:e}, {at:e}",
                "20:",
                "test {node}, {node}",
                "jz 21f",
                "mov {t}, qword ptr [{node} + {value_at}]",
                "test {t}, {t}",
                "cmovnz {at}, {t}",
                // The next digit.
                "mov {t}, {high}",
                "shr {t}, 64 - {bits}",
                "shld {high}, {low}, {bits}",
                "shl {low}, {bits}",
                "mov {node}, qword ptr [{node} + 8 * {t} + {children_at}]",
                "jmp 20b",
                "21:",
                "test {at}, {at}",
                "jz 4f",
            ],
            "",
            root = in(reg) root.as_ptr(),
            key_high = in(xmm_reg) upper,
            key_low = in(xmm_reg) lower,
            children_at = const N::CHILDREN.offset(),
            value_at = const N::VALUE.offset(),
            bits = const digit_bits(BRANCHES),
            node = out(reg) _,
            high = out(reg) _,
            low = out(reg) _,
        )
    }
}
