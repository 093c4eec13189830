//! The few statistics that a comparison needs, each from its textbook definition and deterministic from a
//! seed: median; bootstrap interval of a ratio of medians (Efron 1979, percentile method); permutation test of
//! a difference of means (exact when the number of rearrangements is small); Holm's correction (1979).

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Resamples behind a bootstrap interval.
const RESAMPLES: usize = 4_000;
/// Most rearrangements that are enumerated; if there are more, this many random ones are drawn.
const REARRANGEMENTS: usize = 20_000;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Point estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A generator for one purpose: streams of different purposes are independent of each other.
pub fn stream(seed: u64, purpose: &str) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ fnv1a(purpose))
}

/// FNV-1a, 64 bits: stable across releases of the compiler, unlike the standard hasher.
pub fn fnv1a(text: &str) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// Middle value; mean of the two middle ones for an even number; `None` when empty. NaN counts as largest.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (last, middle) = (sorted.len().checked_sub(1)?, sorted.len() / 2);
    Some((sorted[last / 2] + sorted[middle]) / 2.0)
}

/// Arithmetic mean; `None` when empty.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A value computed from the medians of several groups, with its 95 % bootstrap interval; `None` when a group is
/// empty or the value is none.
pub fn of_medians(
    groups: &[&[f64]],
    rng: &mut impl Rng,
    value: impl Fn(&[f64]) -> Option<f64>,
) -> Option<Estimate> {
    let medians =
        |groups: &[Vec<f64>]| groups.iter().map(|group| median(group)).collect::<Option<Vec<f64>>>();
    let seen: Vec<Vec<f64>> = groups.iter().map(|group| group.to_vec()).collect();
    let estimate = value(&medians(&seen)?)?;
    let mut values: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let drawn: Vec<Vec<f64>> = groups.iter().map(|group| resample(group, rng)).collect();
            value(&medians(&drawn)?)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (!values.is_empty()).then(|| Estimate { value: estimate, low: at(0.025), high: at(0.975) })
}

/// Ratio of the medians of `treated` and `base` with a 95 % bootstrap interval; `None` when either is empty
/// or the base's median is zero.
pub fn ratio_of_medians(treated: &[f64], base: &[f64], rng: &mut impl Rng) -> Option<Estimate> {
    of_medians(&[treated, base], rng, |medians| ratio(medians[0], medians[1]))
}

/// Natural logarithm of a ratio; `None` unless both are positive.
pub(crate) fn log_ratio(above: f64, below: f64) -> Option<f64> {
    (above > 0.0 && below > 0.0).then(|| (above / below).ln())
}

fn ratio(treated: f64, base: f64) -> Option<f64> {
    (base != 0.0).then(|| treated / base).filter(|ratio| ratio.is_finite())
}

fn resample(values: &[f64], rng: &mut impl Rng) -> Vec<f64> {
    (0..values.len()).map(|_| values[rng.random_range(0..values.len())]).collect()
}

/// Two-sided permutation test: probability that a random division of all values into groups of the same
/// sizes has a difference of means at least as large as the one seen. `None` when a group is empty.
pub fn permutation_p(first: &[f64], second: &[f64], rng: &mut impl Rng) -> Option<f64> {
    let seen = (mean(first)? - mean(second)?).abs();
    let mut all = [first, second].concat();
    let total: f64 = all.iter().sum();
    let (n, m) = (first.len() as f64, second.len() as f64);
    // Sums of the same values in another order differ in the last digits.
    let tolerance = 1e-9 * (seen + total.abs() / (n + m));
    let as_extreme = |sum: f64| ((sum / n - (total - sum) / m).abs() >= seen - tolerance) as usize;
    if rearrangements(all.len(), first.len()) <= REARRANGEMENTS {
        let (mut extreme, mut count) = (0, 0);
        each_subset_sum(&all, first.len(), 0.0, &mut |sum| {
            extreme += as_extreme(sum);
            count += 1;
        });
        return Some(extreme as f64 / count as f64);
    }
    let mut extreme = 0;
    for _ in 0..REARRANGEMENTS {
        all.shuffle(rng);
        extreme += as_extreme(all[..first.len()].iter().sum());
    }
    // The observed arrangement counts as one of them, so that p is never zero.
    Some((extreme + 1) as f64 / (REARRANGEMENTS + 1) as f64)
}

/// The smallest p-value that [`permutation_p`] can give for groups of these sizes; 1 when one is empty.
pub fn least_p(first: usize, second: usize) -> f64 {
    if first == 0 || second == 0 {
        return 1.0;
    }
    // The mirror image of an arrangement is as extreme, but it is a possible arrangement only for groups of equal
    // size.
    let mirrored = if first == second { 2.0 } else { 1.0 };
    match rearrangements(first + second, first) {
        count if count <= REARRANGEMENTS => mirrored / count as f64,
        _ => 1.0 / (REARRANGEMENTS + 1) as f64,
    }
}

/// Binomial coefficient, saturating.
fn rearrangements(all: usize, chosen: usize) -> usize {
    (0..chosen.min(all - chosen)).fold(1, |product: usize, i| product.saturating_mul(all - i) / (i + 1))
}

fn each_subset_sum(values: &[f64], size: usize, sum: f64, visit: &mut impl FnMut(f64)) {
    if size == 0 {
        return visit(sum);
    }
    for first in 0..=values.len() - size {
        each_subset_sum(&values[first + 1..], size - 1, sum + values[first], visit);
    }
}

/// Holm's step-down correction of several p-values for their number, in the order given.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut reached: f64 = 0.0;
    for (rank, index) in order.iter().enumerate() {
        reached = reached.max((p_values[*index] * (p_values.len() - rank) as f64).min(1.0));
        adjusted[*index] = reached;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn exact_p_of_separated_groups_is_two_over_the_arrangements() {
        let p = permutation_p(&[1.0, 2.0, 3.0], &[7.0, 8.0, 9.0], &mut stream(1, "t")).unwrap();
        assert_eq!(p, 2.0 / 20.0);
        let equal = permutation_p(&[1.0, 2.0], &[1.0, 2.0], &mut stream(1, "t")).unwrap();
        assert_eq!(equal, 1.0);
    }

    #[test]
    fn the_least_p_is_what_separated_groups_give() {
        for (n, m) in [(1, 1), (2, 3), (3, 3), (4, 2)] {
            let (low, high): (Vec<f64>, Vec<f64>) =
                ((0..n).map(f64::from).collect(), (90..90 + m).map(f64::from).collect());
            let p = permutation_p(&low, &high, &mut stream(1, "t")).unwrap();
            assert_eq!(p, least_p(n as usize, m as usize), "{n} and {m}");
        }
    }

    #[test]
    fn sampled_p_agrees_with_the_exact_one() {
        let (a, b): (Vec<f64>, Vec<f64>) =
            ((0..10).map(f64::from).collect(), (3..13).map(f64::from).collect());
        let sampled = permutation_p(&a, &b, &mut stream(7, "t")).unwrap();
        let (mut extreme, mut count) = (0, 0);
        let all = [a.clone(), b].concat();
        each_subset_sum(&all, 10, 0.0, &mut |sum| {
            extreme += ((sum / 10.0 - (120.0 - sum) / 10.0).abs() >= 3.0) as usize;
            count += 1;
        });
        assert_eq!(count, rearrangements(20, 10));
        assert!((sampled - extreme as f64 / count as f64).abs() < 0.01, "{sampled}");
    }

    #[test]
    fn p_values_of_equal_distributions_are_uniform() {
        let mut rng = stream(3, "uniform");
        let below = (0..400)
            .filter(|_| {
                let draw: Vec<f64> = (0..8).map(|_| rng.random::<f64>()).collect();
                permutation_p(&draw[..4], &draw[4..], &mut rng).unwrap() <= 0.1
            })
            .count();
        assert!((20..=60).contains(&below), "{below} of 400 at p <= 0.1");
    }

    #[test]
    fn ratio_has_its_value_inside_its_interval_and_repeats() {
        let (treated, base) = ([20.0, 22.0, 21.0, 19.0], [4.0, 4.1, 3.9, 4.0]);
        let one = ratio_of_medians(&treated, &base, &mut stream(1, "a")).unwrap();
        assert!(one.low <= one.value && one.value <= one.high && one.low > 4.0);
        assert_eq!(Some(one), ratio_of_medians(&treated, &base, &mut stream(1, "a")));
        assert_eq!(ratio_of_medians(&treated, &[0.0], &mut stream(1, "a")), None);
        assert_eq!(ratio_of_medians(&[], &base, &mut stream(1, "a")), None);
    }

    #[test]
    fn holm_corrects_stepwise() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), vec![0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.6, 0.7]), vec![1.0, 1.0]);
    }
}
