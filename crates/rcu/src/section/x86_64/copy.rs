//! Copies of a shared value, each in one narrow section.
//!
//! The section loads into registers, so that nothing is written before it is known that it came to its end. Each byte is
//! loaded and stored once: a value's parts that overlapped would be slow to read, because a processor forwards a load from
//! one pending store, not from two.

use super::narrow::narrow;
use crate::sync::AtomicU32;
use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicPtr;

/// A copy of the `T` that lies `offset` bytes into what `place` points to. None where a narrow section cannot have it, and
/// for values of more than 128 bytes, which eight vector registers hold.
///
/// # Safety
/// In a section of a domain with this mode, `place` points to an object that is alive, and that has a `T` there.
#[inline(always)]
pub(crate) unsafe fn copied<T: Copy, P>(mode: &AtomicU32, place: &AtomicPtr<P>, offset: usize) -> Option<T> {
    let place = place.as_ptr();
    let mut copy = MaybeUninit::<T>::uninit();
    macro_rules! one {
        ($word:ty, $load:literal) => {{
            let word: u64;
            // SAFETY: the lines load from the `T`, which is alive by the caller's promise, and only within it.
            let lines = unsafe {
                narrow!(
                    mode,
                    ["mov {t}, qword ptr [{place}]", concat!($load, " ptr [{t} + {offset}]")],
                    place = in(reg) place,
                    offset = in(reg) offset,
                    word = out(reg) word,
                )
            };
            put(&mut copy, 0, size_of::<T>(), word as $word);
            lines
        }};
    }
    // As many vector registers as given, as far as the size needs them; then what is left, in parts of 8, 4, 2 and 1.
    macro_rules! parts {
        ($([$word:ident, $place:literal]),*) => {{
            $(let $word: __m128i;)*
            let (eight, four): (__m128i, __m128i);
            let (two, one): (u64, u64);
            // SAFETY: the lines load from the `T`, which is alive by the caller's promise, and only within it.
            let lines = unsafe {
                narrow!(
                    mode,
                    [
                        "mov {t}, qword ptr [{place}]",
                        $(
                            concat!(".if {size} >= 16 + ", $place),
                            concat!("movups {", stringify!($word), "}, xmmword ptr [{t} + {offset} + ", $place, "]"),
                            ".endif",
                        )*
                        ".if {size} & 8",
                        "movq {eight}, qword ptr [{t} + {offset} + ({size} & -16)]",
                        ".endif",
                        ".if {size} & 4",
                        "movd {four}, dword ptr [{t} + {offset} + ({size} & -8)]",
                        ".endif",
                        ".if {size} & 2",
                        "movzx {two:e}, word ptr [{t} + {offset} + ({size} & -4)]",
                        ".endif",
                        ".if {size} & 1",
                        "movzx {one:e}, byte ptr [{t} + {offset} + ({size} & -2)]",
                        ".endif",
                    ],
                    place = in(reg) place,
                    offset = in(reg) offset,
                    size = const size_of::<T>(),
                    $($word = out(xmm_reg) $word,)*
                    eight = out(xmm_reg) eight,
                    four = out(xmm_reg) four,
                    two = out(reg) two,
                    one = out(reg) one,
                )
            };
            $(put(&mut copy, $place, 16, $word);)*
            put_rest(&mut copy, 8, low(eight));
            put_rest(&mut copy, 4, low(four) as u32);
            put_rest(&mut copy, 2, two as u16);
            put_rest(&mut copy, 1, one as u8);
            lines
        }};
    }
    let done = match size_of::<T>() {
        0 => true,
        1 => one!(u8, "movzx {word:e}, byte"),
        2 => one!(u16, "movzx {word:e}, word"),
        4 => one!(u32, "mov {word:e}, dword"),
        8 => one!(u64, "mov {word}, qword"),
        3..=15 => parts!(),
        16..=31 => parts!([a, 0]),
        32..=63 => parts!([a, 0], [b, 16], [c, 32]),
        64..=128 => parts!([a, 0], [b, 16], [c, 32], [d, 48], [e, 64], [f, 80], [g, 96], [h, 112]),
        _ => false,
    };
    // SAFETY: the section loaded all bytes of a `T`, which was alive throughout, and they were put in their places.
    done.then(|| unsafe { copy.assume_init() })
}

/// Puts `word`, of so many bytes, at the byte `at` of `copy`, if the value goes so far.
#[inline(always)]
pub(crate) fn put<T, W>(copy: &mut MaybeUninit<T>, at: usize, bytes: usize, word: W) {
    debug_assert_eq!(bytes, size_of::<W>());
    if at + bytes <= size_of::<T>() {
        // SAFETY: checked above.
        unsafe { copy.as_mut_ptr().cast::<u8>().add(at).cast::<W>().write_unaligned(word) };
    }
}

/// Puts the part of so many bytes into its place, if the value has one: where the larger parts end.
#[inline(always)]
pub(crate) fn put_rest<T, W>(copy: &mut MaybeUninit<T>, bytes: usize, word: W) {
    if size_of::<T>() & bytes != 0 {
        put(copy, size_of::<T>() & !(2 * bytes - 1), bytes, word);
    }
}

/// The lower half of a vector register.
#[inline(always)]
pub(crate) fn low(word: __m128i) -> u64 {
    // SAFETY: an instruction of SSE2, which is part of x86-64; it touches no memory.
    unsafe { _mm_cvtsi128_si64(word) as u64 }
}
