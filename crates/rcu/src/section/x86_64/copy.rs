//! Copies of a shared value, each in one narrow section.
//!
//! The section loads into registers, so that nothing is written before it is known that it came to its end. A size that is
//! not one of a register's is covered by loads that overlap.

use super::narrow::narrow;
use crate::sync::AtomicU32;
use std::arch::x86_64::__m128i;
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
            put::<T, $word>(&mut copy, 0, word as $word);
            lines
        }};
    }
    macro_rules! two {
        ($word:ty, $low:literal, $high:literal) => {{
            let (low, high): (u64, u64);
            // SAFETY: the lines load from the `T`, which is alive by the caller's promise, and only within it.
            let lines = unsafe {
                narrow!(
                    mode,
                    [
                        "mov {t}, qword ptr [{place}]",
                        concat!($low, " ptr [{t} + {offset}]"),
                        concat!($high, " ptr [{t} + {offset} + {last}]"),
                    ],
                    place = in(reg) place,
                    offset = in(reg) offset,
                    last = const last::<T, $word>(),
                    low = out(reg) low,
                    high = out(reg) high,
                )
            };
            put::<T, $word>(&mut copy, 0, low as $word);
            put::<T, $word>(&mut copy, last::<T, $word>(), high as $word);
            lines
        }};
    }
    // (a register, where in the value, the same as a number)
    macro_rules! vectors {
        ($([$word:ident, $place:literal, $at:expr]),+) => {{
            $(let $word: __m128i;)+
            // SAFETY: the lines load from the `T`, which is alive by the caller's promise, and only within it.
            let lines = unsafe {
                narrow!(
                    mode,
                    [
                        "mov {t}, qword ptr [{place}]",
                        $(concat!("movups {", stringify!($word), "}, xmmword ptr [{t} + {offset}", $place, "]"),)+
                    ],
                    place = in(reg) place,
                    offset = in(reg) offset,
                    last = const last::<T, __m128i>(),
                    $($word = out(xmm_reg) $word,)+
                )
            };
            $(put(&mut copy, $at, $word);)+
            lines
        }};
    }
    let end = last::<T, __m128i>();
    let done = match size_of::<T>() {
        0 => true,
        1 => one!(u8, "movzx {word:e}, byte"),
        2 => one!(u16, "movzx {word:e}, word"),
        3 => two!(u16, "movzx {low:e}, word", "movzx {high:e}, word"),
        4 => one!(u32, "mov {word:e}, dword"),
        5..=7 => two!(u32, "mov {low:e}, dword", "mov {high:e}, dword"),
        8 => one!(u64, "mov {word}, qword"),
        9..=16 => two!(u64, "mov {low}, qword", "mov {high}, qword"),
        17..=32 => vectors!([a, "", 0], [z, " + {last}", end]),
        33..=64 => {
            vectors!([a, "", 0], [b, " + 16", 16], [y, " + {last} - 16", end - 16], [z, " + {last}", end])
        }
        65..=128 => vectors!(
            [a, "", 0],
            [b, " + 16", 16],
            [c, " + 32", 32],
            [d, " + 48", 48],
            [w, " + {last} - 48", end - 48],
            [x, " + {last} - 32", end - 32],
            [y, " + {last} - 16", end - 16],
            [z, " + {last}", end]
        ),
        _ => false,
    };
    // SAFETY: the section loaded all bytes of a `T`, which was alive throughout, and they were put in their places.
    done.then(|| unsafe { copy.assume_init() })
}

/// Where the last `W` of a `T` begins.
const fn last<T, W>() -> usize {
    size_of::<T>().saturating_sub(size_of::<W>())
}

/// Puts `word` at the byte `at` of `copy`, in which it lies.
#[inline(always)]
fn put<T, W>(copy: &mut MaybeUninit<T>, at: usize, word: W) {
    assert!(at + size_of::<W>() <= size_of::<T>());
    // SAFETY: checked above.
    unsafe { copy.as_mut_ptr().cast::<u8>().add(at).cast::<W>().write_unaligned(word) };
}
