//! Pseudo-random numbers: splitmix64 (Steele, Lea and Flood 2014) to mix and to seed, xorshift64 (Marsaglia 2003) for
//! streams. The C body uses the same, so that both languages look up and delete the same sequence of keys.

/// The output function of splitmix64: a bijection on 64 bits.
#[inline]
pub fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The stream of number `stream` under `seed`. Its state is never 0, where xorshift would stay.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix64(mix64(seed).wrapping_add(stream)) | 1)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in `0..bound`, by the high half of a product (Lemire 2019), without its rejection step: the bias is
    /// below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix64_is_splitmix64() {
        // The first outputs of the reference implementation for the seed 1234567.
        let outputs = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for (i, expected) in outputs.into_iter().enumerate() {
            let state = 1_234_567u64.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64));
            assert_eq!(mix64(state), expected);
        }
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut stream = Stream::new(7, 0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[stream.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn streams_differ() {
        assert_ne!(Stream::new(1, 0).draw(), Stream::new(1, 1).draw());
        assert_ne!(Stream::new(1, 0).draw(), Stream::new(2, 0).draw());
    }
}
