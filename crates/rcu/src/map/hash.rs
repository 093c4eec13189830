//! A quick hasher for keys that no adversary chooses.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`FastHasher`]s: `RcuMap::<u64, u64, FastHash>::with_hasher(&domain, FastHash::default())`.
pub type FastHash = BuildHasherDefault<FastHasher>;

/// A hasher that multiplies and folds: one multiplication for each 8 bytes. Its results are the same in every
/// process, so whoever chooses the keys can make them collide: use it where that cannot harm.
///
/// Source: the folded multiplication of wyhash (Wang Yi, 2019).
#[derive(Clone, Default)]
pub struct FastHasher(u64);

/// The fractional digits of the golden ratio and of the square root of 3 in binary, made odd: no structure.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const START: u64 = 0xbb67_ae85_84ca_a73b;

impl FastHasher {
    #[inline(always)]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ START) * u128::from(STEP);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

macro_rules! words {
    ($($write:ident $word:ty),*) => {$(
        #[inline(always)]
        fn $write(&mut self, n: $word) {
            self.mix(n as u64);
        }
    )*};
}

impl Hasher for FastHasher {
    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
        }
        let rest = chunks.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells a short chunk from one that ends in zeros.
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    words!(write_u8 u8, write_u16 u16, write_u32 u32, write_u64 u64, write_usize usize);

    #[inline(always)]
    fn write_u128(&mut self, n: u128) {
        self.mix(n as u64);
        self.mix((n >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn consecutive_integers_spread_over_all_bits_in_use() {
        let hashes: Vec<u64> = (0..4096u64).map(|n| FastHash::default().hash_one(n)).collect();
        for shift in [0, 41, 58] {
            let mut counts = [0; 64];
            hashes.iter().for_each(|h| counts[(h >> shift) as usize % 64] += 1);
            assert!(counts.iter().all(|&c| (20..140).contains(&c)), "bits from {shift}: {counts:?}");
        }
    }

    #[test]
    fn strings_of_every_length_differ() {
        let hash = |bytes: &[u8]| {
            let mut hasher = FastHasher::default();
            hasher.write(bytes);
            hasher.finish()
        };
        let zeros = [0; 40];
        assert_eq!((0..40).map(|n| hash(&zeros[..n])).collect::<HashSet<_>>().len(), 40);
    }
}
