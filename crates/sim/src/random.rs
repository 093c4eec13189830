//! Random streams: one per entity, all derived from the run's seed. What one entity draws never affects another.
//!
//! The generator is xoshiro256++ of `rand_xoshiro` (Blackman and Vigna, "Scrambled Linear Pseudorandom Number
//! Generators", 2021). Ranges and distributions are implemented here: those of the `rand` crates may change with a
//! release, and their exponential distribution needs floats.

use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// A stream: xoshiro256++, seeded through SplitMix64. It is small because there are many entities.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of that kind and number. Streams that differ in seed, kind or number are independent.
    pub fn new(seed: u64, kind: &str, number: u64) -> Stream {
        // Each step is a bijection, so no two numbers of a kind share a stream.
        let of_kind = scramble(scramble(seed) ^ fnv_1a(kind));
        Stream(Xoshiro256PlusPlus::seed_from_u64(scramble(of_kind ^ number)))
    }

    /// A uniform number in `low..=high`. `low` must not exceed `high`.
    ///
    /// Source: Lemire, "Fast Random Integer Generation in an Interval", 2019.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high, "no number lies in {low}..={high}");
        let Some(count) = (high - low).checked_add(1) else {
            return self.0.next_u64();
        };
        let mut product = u128::from(self.0.next_u64()) * u128::from(count);
        if (product as u64) < count {
            // Draws to reject, so that each number has equally many of the 2^64 draws.
            let left_over = count.wrapping_neg() % count;
            while (product as u64) < left_over {
                product = u128::from(self.0.next_u64()) * u128::from(count);
            }
        }
        low + (product >> 64) as u64
    }

    /// True once in `n` draws on average; never if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.within(1, n) == 1
    }

    /// A duration from the exponential distribution of that mean, within 1 to 16 means. Computed without floats, so
    /// that it is the same on every machine.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        exponential(self.0.next_u64(), mean)
    }
}

/// SplitMix64's mixing of one number into another.
fn scramble(number: u64) -> u64 {
    SplitMix64::seed_from_u64(number).next_u64()
}

/// The 64-bit hash of Fowler, Noll and Vo (RFC 9923), variant 1a.
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Fraction bits of the logarithms.
const FRACTION: u32 = 32;
/// Longest duration, in means. One in nine million draws would exceed it.
const MOST_MEANS: u64 = 16;
/// ln 2 in units of 2^-64.
const LN_2: u128 = 0xb172_17f7_d1cf_79ac;

/// By inversion: `-mean ln u`, with `u` the draw over 2^64. The error is below 3 millionths of the mean.
fn exponential(draw: u64, mean: u64) -> u64 {
    let nats = ((u128::from(minus_log2(draw.max(1))) * LN_2) >> 64).min(u128::from(MOST_MEANS << FRACTION));
    let duration = (u128::from(mean) * nats + (1 << (FRACTION - 1))) >> FRACTION;
    u64::try_from(duration).unwrap_or(u64::MAX).max(1)
}

/// `-log2(draw / 2^64)` in units of 2^-32, for a draw above 0. The leading zeros give the whole part. The bits after
/// the first one give the fraction, by linear interpolation in a table.
fn minus_log2(draw: u64) -> u64 {
    let zeros = draw.leading_zeros();
    let mantissa = (draw << zeros) << 1;
    let index = (mantissa >> 56) as usize;
    let (below, above) = (LOG2[index], LOG2[index + 1]);
    let between = (mantissa << 8) >> (64 - FRACTION);
    let log2 = below + (((above - below) * between) >> FRACTION);
    (u64::from(zeros + 1) << FRACTION) - log2
}

/// `log2(1 + i / 256)` in units of 2^-32.
static LOG2: [u64; 257] = {
    let mut table = [0; 257];
    let mut index = 0;
    while index < 256 {
        table[index] = log2_bits(256 + index as u64);
        index += 1;
    }
    table[256] = 1 << FRACTION;
    table
};

/// `log2(number / 256)` in units of 2^-32 for a number in 256..512, bit by bit: squaring a number doubles its
/// logarithm.
const fn log2_bits(number: u64) -> u64 {
    const ONE: u64 = 1 << 63;
    let mut power = number * (ONE / 256);
    let mut bits = 0;
    let mut done = 0;
    while done < FRACTION {
        let square = (power as u128 * power as u128) >> 63;
        let carry = square >= 2 * ONE as u128;
        power = if carry { (square >> 1) as u64 } else { square as u64 };
        bits = bits << 1 | carry as u64;
        done += 1;
    }
    bits
}

#[cfg(test)]
mod tests;
