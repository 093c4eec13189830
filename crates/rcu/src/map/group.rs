//! Sixteen control bytes, compared at once.
//!
//! A group is a copy: two words in registers. With SSE2, which every x86-64 has, SSE2 compares it; elsewhere ordinary
//! arithmetic on words does. Sources: the groups of Abseil's Swiss tables, and for the arithmetic Hacker's Delight,
//! 6-1 (find a zero byte, exact form).

#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
use std::sync::atomic::AtomicU64;

/// The slot has never held an entry since the table was made.
pub(super) const EMPTY: u8 = 0xff;
/// The slot holds a removed entry, which readers may still read.
pub(super) const RETIRED: u8 = 0xfe;
/// The slot holds nothing, but it did: entries beyond it may belong to the same probe sequence.
pub(super) const FREE: u8 = 0x80;

/// How many lanes a group has.
pub(super) const WIDTH: usize = 16;

/// A copy of a group's control bytes.
#[derive(Clone, Copy)]
pub(super) struct Group(Bytes);

#[cfg(target_arch = "x86_64")]
type Bytes = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Bytes = [u64; 2];

/// Some of a group's lanes. Iterates over them in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes(u32);

impl Group {
    /// The lanes that hold an entry with `tag`.
    #[inline(always)]
    pub(super) fn tagged(self, tag: u8) -> Lanes {
        self.equal(tag)
    }

    /// The lanes that never held an entry.
    #[inline(always)]
    pub(super) fn empty(self) -> Lanes {
        self.equal(EMPTY)
    }

    /// The lanes that may be filled.
    pub(super) fn vacant(self) -> Lanes {
        Lanes(self.equal(EMPTY).0 | self.equal(FREE).0)
    }

    /// The lanes that hold an entry.
    #[inline]
    pub(super) fn full(self) -> Lanes {
        Lanes(!self.topmost_bits() & 0xffff)
    }
}

#[cfg(target_arch = "x86_64")]
impl Group {
    /// Lanes 0 to 7 and lanes 8 to 15, the lowest in the lowest byte.
    #[cfg(any(test, miri, loom))]
    #[inline(always)]
    pub(super) fn new(low: u64, high: u64) -> Self {
        // SAFETY: an instruction of SSE2, which is part of x86-64; it touches no memory.
        Self(unsafe { std::arch::x86_64::_mm_set_epi64x(high as i64, low as i64) })
    }

    /// Two loads with Acquire, the lower word first, into one register. The compiler would go through two other registers.
    #[cfg(not(any(miri, loom)))]
    #[inline(always)]
    pub(super) fn load(words: &[AtomicU64; 2]) -> Self {
        let bytes;
        // SAFETY: two loads of eight aligned bytes each. x86 executes them atomically, in program order, and before
        // later loads, as Acquire demands. The assembly counts as one that may write memory, so that the compiler
        // keeps this order, too.
        unsafe {
            std::arch::asm!(
                "movq {bytes}, qword ptr [{words}]",
                "movhps {bytes}, qword ptr [{words} + 8]",
                // As 64 bits, because x32 has shorter pointers.
                words = in(reg) words.as_ptr().expose_provenance() as u64,
                bytes = out(xmm_reg) bytes,
                options(nostack, preserves_flags),
            );
        }
        Self(bytes)
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> Lanes {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: as in `new`.
        unsafe { Lanes(_mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_set1_epi8(byte as i8))) as u32) }
    }

    #[inline(always)]
    fn topmost_bits(self) -> u32 {
        // SAFETY: as in `new`.
        unsafe { std::arch::x86_64::_mm_movemask_epi8(self.0) as u32 }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Group {
    /// Lanes 0 to 7 and lanes 8 to 15, the lowest in the lowest byte.
    #[inline(always)]
    pub(super) fn new(low: u64, high: u64) -> Self {
        Self([low, high])
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> Lanes {
        words_equal(self.0, byte)
    }

    #[inline(always)]
    fn topmost_bits(self) -> u32 {
        gather(self.0[0]) | gather(self.0[1]) << 8
    }
}

/// The lanes of two words that hold `byte`.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn words_equal(words: [u64; 2], byte: u8) -> Lanes {
    Lanes(gather(zero_bytes(words[0] ^ spread(byte))) | gather(zero_bytes(words[1] ^ spread(byte))) << 8)
}

impl Lanes {
    pub(super) const NONE: Self = Self(0);

    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    /// The lanes above `lane`.
    pub(super) fn beyond(self, lane: usize) -> Self {
        Self(self.0 & (!1 << lane))
    }
}

impl Iterator for Lanes {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

/// The topmost bit of each byte of a word, gathered in the lowest bits.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn gather(word: u64) -> u32 {
    // The multiplication moves bit 8i to bit 56 + i, and no two products collide.
    (((word >> 7) & spread(1)).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn zero_bytes(word: u64) -> u64 {
    let low_bits = spread(0x7f);
    !(((word & low_bits) + low_bits) | word | low_bits)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
const fn spread(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups with every byte that occurs, at every lane, among bytes that differ from it by a borrow or a carry.
    fn groups() -> impl Iterator<Item = [u8; 16]> {
        let bytes = [EMPTY, FREE, RETIRED, 0, 1, 0x7f, 0x41];
        (0..16 * bytes.len() * bytes.len()).map(move |n| {
            let mut group = [bytes[n / 16 % bytes.len()]; 16];
            group[n % 16] = bytes[n / 16 / bytes.len()];
            group
        })
    }

    fn lanes_where(bytes: [u8; 16], holds: impl Fn(u8) -> bool) -> Vec<usize> {
        (0..16).filter(|&i| holds(bytes[i])).collect()
    }

    #[test]
    fn comparisons_agree_with_bytes() {
        for bytes in groups() {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let words = [word(0), word(8)];
            let group = Group::new(words[0], words[1]);
            #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
            assert_eq!(Group::load(&words.map(AtomicU64::new)).topmost_bits(), group.topmost_bits());
            for tag in [0, 1, 0x41, 0x7f] {
                assert_eq!(group.tagged(tag).collect::<Vec<_>>(), lanes_where(bytes, |b| b == tag));
                assert_eq!(group.tagged(tag), words_equal(words, tag));
            }
            assert_eq!(group.empty(), words_equal(words, EMPTY));
            assert_eq!(group.empty().collect::<Vec<_>>(), lanes_where(bytes, |b| b == EMPTY));
            assert_eq!(group.vacant().collect::<Vec<_>>(), lanes_where(bytes, |b| b == EMPTY || b == FREE));
            assert_eq!(group.full().collect::<Vec<_>>(), lanes_where(bytes, |b| b < 0x80));
            let beyond_5: Vec<_> = group.full().beyond(5).collect();
            assert_eq!(beyond_5, group.full().filter(|&i| i > 5).collect::<Vec<_>>());
            assert!(!group.full().beyond(15).any());
        }
    }
}
