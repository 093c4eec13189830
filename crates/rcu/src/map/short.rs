//! Look-ups of plain keys, each as one narrow section, for x86-64: what `Table::find` does, in assembly, and then a
//! copy of the value. `table.rs` has the layout of a table, and explains why a search may end where it does.

use super::plain::Plain;
use super::table::{HEADER_BYTES, Header, Table, tag_of};
use crate::section::arch::copy::{low, put, put_rest, word_of};
use crate::section::arch::narrow::narrow;
use crate::sync::AtomicU32;
use std::arch::x86_64::{__m128i, _mm_set1_epi8};
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::AtomicPtr;

/// Where things lie, in bytes from a table's control bytes.
struct Places<K, V>(PhantomData<(K, V)>);

impl<K, V> Places<K, V> {
    /// The header's number of home groups, less 1.
    const HOME_MASK: isize = offset_of!(Header, home_mask) as isize - HEADER_BYTES as isize;
    /// The size of a slot. The entry of slot `n` begins this many bytes times `!n` from where slots end; `!n` is negative.
    const ENTRY_BYTES: usize = size_of::<(K, V)>();
    /// The same as a shift; 64 if it is not a power of two.
    const ENTRY_SHIFT: u32 =
        if Self::ENTRY_BYTES.is_power_of_two() { Self::ENTRY_BYTES.trailing_zeros() } else { 64 };
    /// Where the key of an entry lies, counted from where slots end.
    const KEY: isize = offset_of!((K, V), 0) as isize - Table::<K, V>::ALIGN as isize;
    /// Where the value of an entry lies, likewise.
    const VALUE: isize = offset_of!((K, V), 1) as isize - Table::<K, V>::ALIGN as isize;
}

/// A copy of the value of `key` in the table that `pointer` points to: `Some(None)` if the table does not have the
/// key. `None` if a narrow section is not possible, and for keys and values that do not fit into registers.
///
/// # Safety
/// In a section of a domain with this mode, `pointer` points to a table of these types that is alive.
#[inline(always)]
#[expect(clippy::too_many_lines, reason = "one asm block, which a restartable section cannot leave")]
pub(super) unsafe fn copied<K: Plain, V: Copy>(
    mode: &AtomicU32,
    pointer: &AtomicPtr<()>,
    hash: u64,
    key: &K,
) -> Option<Option<V>> {
    if !K::IS_WORD {
        return None;
    }
    // SAFETY: `IS_WORD` promises that no byte is padding.
    let key_word = unsafe { word_of(key) };
    // SAFETY: an instruction of SSE2, which is part of x86-64; it touches no memory.
    let tags = unsafe { _mm_set1_epi8(tag_of(hash) as i8) };
    let mut value = MaybeUninit::<V>::uninit();
    let found: u64;
    // One narrow section, given how to compare the key of the entry at [{t} + {entry}] and how to load its value.
    macro_rules! look_up {
        ($compare:literal, [$($load:expr),*], $($outputs:tt)*) => {
            // SAFETY: the lines load from the table that is found, which is alive by the caller's promise: from its
            // groups up to the one that ends every search, and from entries whose tags are set.
            unsafe {
                narrow!(
                    mode,
                    [
                        "mov {t}, qword ptr [{pointer}]",
                        "mov {at}, qword ptr [{t} + {home_mask}]",
                        "and {at}, {hash}",
                        "shl {at}, 4",
                        // A group. Its control bytes are loaded half by half, in order, see `control.rs`.
                        "20:",
                        "movq {group}, qword ptr [{t} + {at}]",
                        "movhps {group}, qword ptr [{t} + {at} + 8]",
                        "movdqa {equal}, {group}",
                        "pcmpeqb {equal}, {tags}",
                        "pmovmskb {found:e}, {equal}",
                        // The lanes with the tag.
                        "21:",
                        "test {found:e}, {found:e}",
                        "jz 22f",
                        // Not `bsf`, which would wait for the last look-up's value of its register. Processors
                        // without `tzcnt` execute it as `bsf`, with the same result.
                        "tzcnt {entry:e}, {found:e}",
                        "add {entry}, {at}",
                        "not {entry}",
                        ".if {entry_shift} < 64",
                        "shl {entry}, {entry_shift}",
                        ".else",
                        "imul {entry}, {entry}, {entry_bytes}",
                        ".endif",
                        concat!("cmp ", $compare),
                        "je 23f",
                        "lea {entry:e}, [{found} - 1]",
                        "and {found:e}, {entry:e}",
                        "jmp 21b",
                        // No lane has the key. The search ends here if a lane is EMPTY.
                        "22:",
                        "pcmpeqd {equal}, {equal}",
                        "pcmpeqb {equal}, {group}",
                        "pmovmskb {found:e}, {equal}",
                        "add {at}, 16",
                        "test {found:e}, {found:e}",
                        "jz 20b",
                        "xor {found:e}, {found:e}",
                        "jmp 4f",
                        "23:",
                        $($load,)*
                    ],
                    pointer = in(reg) pointer.as_ptr(),
                    hash = in(reg) hash,
                    key = in(reg) key_word,
                    tags = in(xmm_reg) tags,
                    home_mask = const Places::<K, V>::HOME_MASK,
                    entry_bytes = const Places::<K, V>::ENTRY_BYTES,
                    entry_shift = const Places::<K, V>::ENTRY_SHIFT,
                    key_at = const Places::<K, V>::KEY,
                    at = out(reg) _,
                    found = out(reg) found,
                    group = out(xmm_reg) _,
                    equal = out(xmm_reg) _,
                    $($outputs)*
                )
            }
        };
    }
    // The same for keys of any size.
    macro_rules! with_value {
        ([$($load:expr),*], $($outputs:tt)*) => {
            match size_of::<K>() {
                1 => look_up!("byte ptr [{t} + {entry} + {key_at}], {key:l}", [$($load),*], $($outputs)*),
                2 => look_up!("word ptr [{t} + {entry} + {key_at}], {key:x}", [$($load),*], $($outputs)*),
                4 => look_up!("dword ptr [{t} + {entry} + {key_at}], {key:e}", [$($load),*], $($outputs)*),
                8 => look_up!("qword ptr [{t} + {entry} + {key_at}], {key}", [$($load),*], $($outputs)*),
                _ => return None,
            }
        };
    }
    // A value of one load. The entry's place is no longer needed when its register takes the value.
    macro_rules! one {
        ($word:ty, $load:literal) => {{
            let word: u64;
            let done = with_value!(
                [concat!($load, " ptr [{t} + {entry} + {value_at}]")],
                value_at = const Places::<K, V>::VALUE,
                entry = out(reg) word,
            );
            // SAFETY: a `V` has this size. It is used only if the section ran to its end and found the key.
            unsafe { value.as_mut_ptr().cast::<$word>().write_unaligned(word as $word) };
            done
        }};
    }
    let done = match size_of::<V>() {
        0 => with_value!([], entry = out(reg) _,),
        1 => one!(u8, "movzx {entry:e}, byte"),
        2 => one!(u16, "movzx {entry:e}, word"),
        4 => one!(u32, "mov {entry:e}, dword"),
        8 => one!(u64, "mov {entry}, qword"),
        // Words of four bytes: as many vector registers as the size needs, and then what is left. Each byte is loaded
        // once, see `copy.rs`.
        size if size % 4 == 0 && size <= 64 => {
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            let (eight, four): (__m128i, __m128i);
            let done = with_value!(
                [
                    ".if {size} >= 16",
                    "movups {a}, xmmword ptr [{t} + {entry} + {value_at}]",
                    ".endif",
                    ".if {size} >= 32",
                    "movups {b}, xmmword ptr [{t} + {entry} + {value_at} + 16]",
                    ".endif",
                    ".if {size} >= 48",
                    "movups {c}, xmmword ptr [{t} + {entry} + {value_at} + 32]",
                    ".endif",
                    ".if {size} >= 64",
                    "movups {d}, xmmword ptr [{t} + {entry} + {value_at} + 48]",
                    ".endif",
                    ".if {size} & 8",
                    "movq {eight}, qword ptr [{t} + {entry} + {value_at} + ({size} & -16)]",
                    ".endif",
                    ".if {size} & 4",
                    "movd {four}, dword ptr [{t} + {entry} + {value_at} + ({size} & -8)]",
                    ".endif"
                ],
                value_at = const Places::<K, V>::VALUE,
                size = const size_of::<V>(),
                entry = out(reg) _,
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                eight = out(xmm_reg) eight,
                four = out(xmm_reg) four,
            );
            [(0, a), (16, b), (32, c), (48, d)]
                .into_iter()
                .for_each(|(at, word)| put(&mut value, at, 16, word));
            put_rest(&mut value, 8, low(eight));
            put_rest(&mut value, 4, low(four) as u32);
            done
        }
        _ => return None,
    };
    if !done {
        return None;
    }
    // SAFETY: the section ran to its end and found the key, so the whole value was loaded.
    Some((found != 0).then(|| unsafe { value.assume_init() }))
}

/// Fetches the control bytes at which a search for `hash` begins in the table that `pointer` points to. Does nothing
/// if a narrow section is not possible.
///
/// # Safety
/// As `copied`.
#[inline(always)]
pub(super) unsafe fn fetch_group<K, V>(mode: &AtomicU32, pointer: &AtomicPtr<()>, hash: u64) {
    // SAFETY: one load from a table that is alive by the caller's promise, and a prefetch, which never faults.
    let _done = unsafe {
        narrow!(
            mode,
            [
                "mov {t}, qword ptr [{pointer}]",
                "mov {at}, qword ptr [{t} + {home_mask}]",
                "and {at}, {hash}",
                "shl {at}, 4",
                "prefetcht0 byte ptr [{t} + {at}]",
            ],
            pointer = in(reg) pointer.as_ptr(),
            hash = in(reg) hash,
            home_mask = const Places::<K, V>::HOME_MASK,
            at = out(reg) _,
        )
    };
}

/// Fetches the first entry that a search for `hash` would compare, as `fetch_group` does for its control bytes.
///
/// # Safety
/// As `copied`.
#[inline(always)]
pub(super) unsafe fn fetch_entry<K, V>(mode: &AtomicU32, pointer: &AtomicPtr<()>, hash: u64) {
    // SAFETY: an instruction of SSE2, which is part of x86-64; it touches no memory.
    let tags = unsafe { _mm_set1_epi8(tag_of(hash) as i8) };
    // SAFETY: loads from a table that is alive by the caller's promise, and a prefetch, which never faults.
    let _done = unsafe {
        narrow!(
            mode,
            [
                "mov {t}, qword ptr [{pointer}]",
                "mov {at}, qword ptr [{t} + {home_mask}]",
                "and {at}, {hash}",
                "shl {at}, 4",
                "pcmpeqb {tags}, xmmword ptr [{t} + {at}]",
                "pmovmskb {entry:e}, {tags}",
                "tzcnt {entry:e}, {entry:e}",
                "add {entry}, {at}",
                "not {entry}",
                "imul {entry}, {entry}, {entry_bytes}",
                "prefetcht0 byte ptr [{t} + {entry} + {key_at}]",
            ],
            pointer = in(reg) pointer.as_ptr(),
            hash = in(reg) hash,
            tags = inout(xmm_reg) tags => _,
            home_mask = const Places::<K, V>::HOME_MASK,
            entry_bytes = const Places::<K, V>::ENTRY_BYTES,
            key_at = const Places::<K, V>::KEY,
            at = out(reg) _,
            entry = out(reg) _,
        )
    };
}
