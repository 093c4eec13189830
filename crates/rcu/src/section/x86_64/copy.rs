//! Copies of a shared value, each in one narrow section.
//!
//! The section only loads into registers and stores nothing, so that it may start again at any point. The registers
//! are stored after it, and the copy is used only if the section ran to its end. Each byte is loaded and stored once.
//! Overlapping parts of a value would be slow to read, because a processor forwards a load from one pending store,
//! not from two.

use crate::sync::AtomicU32;
use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicPtr;

/// Runs lines of assembly that find a `T`, and copies it, in one narrow section. Gives `Some(Some(copy))`;
/// `Some(None)` if there is no `T`; and `None` if the section did not run to its end, or if `T` has more than 128
/// bytes, which is what eight vector registers hold.
///
/// The `T` is at the address that the lines leave in `at`, plus the string after them. If there is none, they put 0
/// into `at` and jump to label 4. For use in `unsafe`: what the lines find must be a `T` that is alive.
macro_rules! copy {
    ($mode:expr, $T:ty, [$($lead:expr),* $(,)?], $plus:literal, $($operands:tt)*) => {{
        use $crate::section::arch::copy as by;
        let mut copy = std::mem::MaybeUninit::<$T>::uninit();
        let done = match size_of::<$T>() {
            1 => by::word!(copy, u8, "movzx {word:e}, byte", $mode, [$($lead),*], $plus, $($operands)*),
            2 => by::word!(copy, u16, "movzx {word:e}, word", $mode, [$($lead),*], $plus, $($operands)*),
            4 => by::word!(copy, u32, "mov {word:e}, dword", $mode, [$($lead),*], $plus, $($operands)*),
            8 => by::word!(copy, u64, "mov {word}, qword", $mode, [$($lead),*], $plus, $($operands)*),
            0..=15 => by::parts!(copy, $T, [], $mode, [$($lead),*], $plus, $($operands)*),
            16..=31 => by::parts!(copy, $T, [a 0], $mode, [$($lead),*], $plus, $($operands)*),
            32..=63 => by::parts!(copy, $T, [a 0 b 16 c 32], $mode, [$($lead),*], $plus, $($operands)*),
            64..=128 => by::parts!(
                copy, $T, [a 0 b 16 c 32 d 48 e 64 f 80 g 96 h 112], $mode, [$($lead),*], $plus, $($operands)*
            ),
            _ => None,
        };
        // The section ran to its end and found a `T`, whose bytes were all loaded and put in their places.
        done.map(|found| found.then(|| copy.assume_init()))
    }};
}
pub(crate) use copy;

/// Copies a `T` that a single load brings.
macro_rules! word {
    ($copy:ident, $word:ty, $load:literal, $mode:expr, [$($lead:expr),*], $plus:literal, $($operands:tt)*) => {{
        let (word, at): (u64, u64);
        let done = $crate::section::arch::narrow::narrow!(
            $mode,
            [$($lead,)* concat!($load, " ptr [{at}", $plus, "]")],
            at = out(reg) at,
            word = out(reg) word,
            $($operands)*
        );
        $crate::section::arch::copy::put(&mut $copy, 0, size_of::<$word>(), word as $word);
        done.then_some(at != 0)
    }};
}
pub(crate) use word;

/// Copies a `T` in as many of the given vector registers as it fills, and the rest in parts of 8, 4, 2 and 1 bytes.
macro_rules! parts {
    (
        $copy:ident, $T:ty, [$($part:ident $place:literal)*], $mode:expr, [$($lead:expr),*], $plus:literal,
        $($operands:tt)*
    ) => {{
        // Only names of types and modules: a function's name would hide a variable of that name among the operands.
        use $crate::section::arch::copy as by;
        use std::arch::x86_64::__m128i;
        $(let $part: __m128i;)*
        let (eight, four): (__m128i, __m128i);
        let (two, one, at): (u64, u64, u64);
        let done = $crate::section::arch::narrow::narrow!(
            $mode,
            [
                $($lead,)*
                $(
                    concat!(".if {size} >= 16 + ", $place),
                    concat!("movups {", stringify!($part), "}, xmmword ptr [{at}", $plus, " + ", $place, "]"),
                    ".endif",
                )*
                ".if {size} & 8",
                concat!("movq {eight}, qword ptr [{at}", $plus, " + ({size} & -16)]"),
                ".endif",
                ".if {size} & 4",
                concat!("movd {four}, dword ptr [{at}", $plus, " + ({size} & -8)]"),
                ".endif",
                ".if {size} & 2",
                concat!("movzx {two:e}, word ptr [{at}", $plus, " + ({size} & -4)]"),
                ".endif",
                ".if {size} & 1",
                concat!("movzx {one:e}, byte ptr [{at}", $plus, " + ({size} & -2)]"),
                ".endif",
            ],
            at = out(reg) at,
            size = const size_of::<$T>(),
            $($part = out(xmm_reg) $part,)*
            eight = out(xmm_reg) eight,
            four = out(xmm_reg) four,
            two = out(reg) two,
            one = out(reg) one,
            $($operands)*
        );
        $(by::put(&mut $copy, $place, 16, $part);)*
        by::put_rest(&mut $copy, 8, by::low(eight));
        by::put_rest(&mut $copy, 4, by::low(four) as u32);
        by::put_rest(&mut $copy, 2, two as u16);
        by::put_rest(&mut $copy, 1, one as u8);
        done.then_some(at != 0)
    }};
}
pub(crate) use parts;

/// A copy of the `T` that lies `offset` bytes into what `place` points to. None if a narrow section is not possible,
/// and for values of more than 128 bytes.
///
/// # Safety
/// In a section of a domain with this mode, `place` points to an object that is alive and has a `T` at that offset.
#[inline(always)]
pub(crate) unsafe fn copied<T: Copy, P>(mode: &AtomicU32, place: &AtomicPtr<P>, offset: usize) -> Option<T> {
    if size_of::<T>() == 0 {
        // SAFETY: a value without bytes.
        return Some(unsafe { std::mem::zeroed() });
    }
    // SAFETY: the lines lead to the `T`, which is alive by the caller's promise.
    unsafe {
        copy!(
            mode,
            T,
            ["mov {at}, qword ptr [{place}]"],
            " + {offset}",
            place = in(reg) place.as_ptr(),
            offset = in(reg) offset,
        )
        .flatten()
    }
}

/// Stores `word`, which has this many bytes, at the byte `at` of the copy, if it lies within the value.
#[inline(always)]
pub(crate) fn put<T, W>(copy: &mut MaybeUninit<T>, at: usize, bytes: usize, word: W) {
    debug_assert_eq!(bytes, size_of::<W>());
    if at + bytes <= size_of::<T>() {
        // SAFETY: checked above.
        unsafe { copy.as_mut_ptr().cast::<u8>().add(at).cast::<W>().write_unaligned(word) };
    }
}

/// Stores the part of this many bytes behind the larger parts, if the value's size has that bit.
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

/// The bytes of a value of 1, 2, 4 or 8 bytes as a number; 0 for other sizes.
///
/// # Safety
/// All its bytes are initialised: none is padding.
#[inline(always)]
pub(crate) unsafe fn word_of<T: Copy>(value: &T) -> u64 {
    let value = std::ptr::from_ref(value);
    // SAFETY: the size is checked; the bytes are initialised by the caller's promise.
    unsafe {
        match size_of::<T>() {
            1 => u64::from(value.cast::<u8>().read()),
            2 => u64::from(value.cast::<u16>().read_unaligned()),
            4 => u64::from(value.cast::<u32>().read_unaligned()),
            8 => value.cast::<u64>().read_unaligned(),
            _ => 0,
        }
    }
}
