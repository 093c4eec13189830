use super::*;

#[test]
fn the_numbers_of_a_stream_are_fixed() {
    // Worked out apart from this code, from the published algorithms; the logarithms with floats.
    let mut stream = Stream::new(1, "vcpu", 3);
    let draws = [(); 4].map(|()| stream.within(0, u64::MAX));
    let expected = [18422896137060203586, 5539925033106282940, 9577968114401481819, 1854071698373329065];
    assert_eq!(draws, expected);
    assert_eq!([(); 4].map(|()| stream.within(10, 99)), [39, 30, 94, 61]);
    assert_eq!([(); 4].map(|()| stream.exponential(1_000_000)), [1_026_081, 1_742_911, 816_456, 1_025_089]);
}

#[test]
fn hashes_are_the_published_ones() {
    // draft-eastlake-fnv, appendix C: test vectors of the 64-bit FNV-1a.
    assert_eq!(fnv_1a(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv_1a("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(fnv_1a("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn streams_of_different_entities_are_unrelated() {
    let first = |seed, kind, number| Stream::new(seed, kind, number).within(0, u64::MAX);
    let mut draws = Vec::new();
    for seed in 0..10 {
        for kind in ["vcpu", "task", ""] {
            draws.extend((0..1000).map(|number| first(seed, kind, number)));
        }
    }
    // Half of the bits are set, and half of them differ between neighbours: 64 x 30000 bits, so within 0.3 %.
    let bits =
        |numbers: &[u64]| numbers.iter().map(|n| n.count_ones() as f64).sum::<f64>() / numbers.len() as f64;
    let neighbours: Vec<u64> = draws.windows(2).map(|pair| pair[0] ^ pair[1]).collect();
    assert!((bits(&draws) - 32.0).abs() < 0.1, "{}", bits(&draws));
    assert!((bits(&neighbours) - 32.0).abs() < 0.1, "{}", bits(&neighbours));
    let count = draws.len();
    draws.sort_unstable();
    draws.dedup();
    assert_eq!(draws.len(), count);
}

#[test]
fn what_one_entity_draws_does_not_move_another() {
    let mut alone = Stream::new(5, "task", 1);
    let (mut one, mut other) = (Stream::new(5, "task", 1), Stream::new(5, "task", 2));
    for _ in 0..100 {
        other.exponential(10);
        assert_eq!(one.within(0, 1000), alone.within(0, 1000));
    }
}

#[test]
fn numbers_within_a_range_are_equally_likely() {
    let mut stream = Stream::new(7, "test", 0);
    let mut seen = [0; 6];
    for _ in 0..600_000 {
        seen[(stream.within(10, 15) - 10) as usize] += 1;
    }
    // Five standard deviations of a count of 100000.
    assert!(seen.iter().all(|&count: &i32| (count - 100_000).abs() < 1_500), "{seen:?}");
    assert_eq!(stream.within(4, 4), 4);
}

/// Of 2^64 draws for 3/4 as many numbers, every third number would come up twice as often without rejection.
#[test]
fn a_range_that_does_not_divide_the_draws_is_unbiased() {
    let mut stream = Stream::new(7, "test", 1);
    let mut seen = [0; 3];
    for _ in 0..300_000 {
        seen[(stream.within(0, 3 * (1 << 62) - 1) % 3) as usize] += 1;
    }
    assert!(seen.iter().all(|&count: &i32| (count - 100_000).abs() < 1_500), "{seen:?}");
}

#[test]
fn one_in_n_is_true_once_in_n() {
    let mut stream = Stream::new(7, "test", 2);
    let hits = (0..1_000_000).filter(|_| stream.one_in(50)).count();
    assert!((19_300..20_700).contains(&hits), "{hits}");
    assert!((0..100).all(|_| stream.one_in(1)));
    assert!((0..100).all(|_| !stream.one_in(0)));
}

#[test]
fn exponential_durations_have_the_mean_and_the_variance() {
    const DRAWS: usize = 1_000_000;
    let mean_ns = 2_500_000;
    let mut stream = Stream::new(7, "test", 3);
    let draws: Vec<f64> = (0..DRAWS).map(|_| stream.exponential(mean_ns) as f64 / mean_ns as f64).collect();
    let mean = draws.iter().sum::<f64>() / DRAWS as f64;
    let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / DRAWS as f64;
    // Five standard errors: 0.1 % of the mean, 0.28 % of the variance.
    assert!((mean - 1.0).abs() < 0.005, "{mean}");
    assert!((variance - 1.0).abs() < 0.015, "{variance}");
    for means in [0.01, 0.1, 0.5, 1.0, 2.0, 5.0] {
        let beyond = draws.iter().filter(|&&draw| draw > means).count() as f64 / DRAWS as f64;
        assert!((beyond - f64::exp(-means)).abs() < 0.0025, "{beyond} beyond {means}");
    }
}

#[test]
fn an_exponential_duration_is_minus_the_logarithm_of_the_draw() {
    let mean = 1_000_000_000_000;
    for step in 1..40_000_u64 {
        let draw = step.wrapping_mul(0x0001_0003_0007_000f).max(1 << 42);
        let exact = -(draw as f64 / 2f64.powi(64)).ln() * mean as f64;
        let error = (exponential(draw, mean) as f64 - exact).abs() / mean as f64;
        assert!(error < 3e-6, "{draw:#x} is off by {error}");
    }
}

#[test]
fn an_exponential_duration_is_at_least_1_and_at_most_16_means() {
    for draw in [0, 1, 1 << 20, 1 << 40] {
        assert_eq!(exponential(draw, 1_000), 16_000);
    }
    assert_eq!(exponential(u64::MAX, 1_000), 1);
    assert_eq!(exponential(1 << 63, 0), 1);
    assert_eq!(exponential(1 << 63, 1_000_000), 693_147);
    assert_eq!(exponential(0, u64::MAX), u64::MAX);
}

#[test]
fn the_table_is_that_of_the_logarithm() {
    for (index, &entry) in LOG2.iter().enumerate() {
        let exact = (1.0 + index as f64 / 256.0).log2() * 2f64.powi(32);
        assert!((entry as f64 - exact).abs() <= 1.001, "{index}: {entry} for {exact}");
    }
}
