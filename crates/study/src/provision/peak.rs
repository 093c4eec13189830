//! Quantiles of a window's peak, with upper bounds, from the peaks of several windows.
//!
//! The windows are repetitions with their own random numbers, so they are independent. There are two estimators:
//!
//! - *Counted*: the number of n values that exceed the quantile p is binomial. If it is at least r with a probability
//!   of 95 %, the r-th largest value is an upper bound of the quantile with that confidence. This assumes nothing about
//!   the distribution. It needs n large enough for r = 1, that is p^n <= 0.05: 5 windows for p50, 59 for p95, 2,995 for
//!   p99.9.
//! - *Fitted*, if n is too small for that: a Gumbel distribution is fitted by probability-weighted moments (Landwehr,
//!   Matalas and Wallis 1979). It is the limit of maxima of many values with an exponential tail. The bound adds 2.5
//!   standard errors of the quantile (Phien 1987). It extrapolates.
//!
//! Invariant: an upper bound is never below its own estimate. A fitted upper bound of a quantile above one half is
//! never below the largest value.

use serde::{Deserialize, Serialize};

/// Largest accepted probability that a bound is below the true quantile.
const DOUBT: f64 = 0.05;
/// Standard errors that a fitted bound adds. With 10 values of a Gumbel distribution, the bounds of p95 and p99.9 hold
/// in 95 and 94 of 100 cases; with 20 values, in 97 and 97 (6,000 draws each). The value 1.645, which is right for many
/// values, would hold in only 88 and 87.
const ERRORS: f64 = 2.5;
/// With fewer values than this, a fitted bound holds less often than in 95 of 100 cases.
pub const FEW: usize = 10;
/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// How a bound was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// By order statistics, without assumptions about the distribution.
    Counted,
    /// By a fitted tail, so the bound extrapolates.
    Fitted,
}

/// A quantile of a window's peak.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The estimate.
    pub value: f64,
    /// The upper bound: with 95 % confidence the quantile is not above it.
    pub upper: f64,
    /// How the upper bound was found.
    pub basis: Basis,
}

impl Bound {
    /// The same bound, with values below 0 replaced by 0.
    pub fn at_least_none(self) -> Bound {
        Bound { value: self.value.max(0.0), upper: self.upper.max(0.0), ..self }
    }
}

/// The quantile `share` of the values. `None` if there are fewer than two values, or one is not finite.
pub fn quantile(values: &[f64], share: f64) -> Option<Bound> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let largest = *sorted.last()?;
    if sorted.len() < 2 || !(0.0..1.0).contains(&share) || sorted.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let fitted = Gumbel::fitted(&sorted);
    let n = sorted.len();
    // The empirical quantile serves only if on average at least one window exceeds it.
    let is_seen = n as f64 * (1.0 - share) >= 1.0;
    let seen = sorted[((n as f64 * share).ceil() as usize).clamp(1, n) - 1];
    let value = if is_seen { seen } else { fitted.quantile(share).max(largest) };
    let (upper, basis) = match rank_above(n, share) {
        Some(rank) => (sorted[n - rank], Basis::Counted),
        None => (fitted.upper(share, n).max(largest), Basis::Fitted),
    };
    Some(Bound { value, upper: upper.max(value), basis })
}

/// The largest rank whose value is above the quantile `share` with enough confidence. Rank 1 is the largest of `n`
/// values.
fn rank_above(n: usize, share: f64) -> Option<usize> {
    // Logarithms, because share^n may underflow.
    let mut log_probability = n as f64 * share.ln();
    let mut at_most = 0.0;
    for exceeding in 0..n {
        at_most += log_probability.exp();
        if at_most > DOUBT {
            // That fewer than `exceeding` values exceed the quantile is improbable enough, so rank `exceeding` still
            // bounds it.
            return (exceeding > 0).then_some(exceeding);
        }
        let next = exceeding as f64 + 1.0;
        log_probability += ((n - exceeding) as f64 / next).ln() + ((1.0 - share) / share).ln();
    }
    None
}

/// A Gumbel distribution.
struct Gumbel {
    location: f64,
    scale: f64,
}

impl Gumbel {
    /// Fits at least two values in ascending order.
    fn fitted(sorted: &[f64]) -> Gumbel {
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let weighted = sorted.iter().enumerate().map(|(index, value)| index as f64 * value).sum::<f64>();
        let moment = weighted / (n * (n - 1.0));
        // Rounding must not make the scale of equal values negative.
        let scale = ((2.0 * moment - mean) / std::f64::consts::LN_2).max(0.0);
        Gumbel { location: mean - EULER * scale, scale }
    }

    fn quantile(&self, share: f64) -> f64 {
        self.location + self.scale * reduced(share)
    }

    fn upper(&self, share: f64, n: usize) -> f64 {
        let y = reduced(share);
        let variance = (1.1128 + 0.4574 * y + 0.8046 * y * y) / n as f64;
        self.quantile(share) + ERRORS * self.scale * variance.sqrt()
    }
}

/// Gumbel's reduced variate.
fn reduced(share: f64) -> f64 {
    -(-share.ln()).ln()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::statistics;

    #[test]
    fn ranks_are_those_of_the_tables_of_order_statistics() {
        // Distribution-free one-sided bounds: p^n <= 0.05 for the largest value.
        assert_eq!([4, 5].map(|n| rank_above(n, 0.5)), [None, Some(1)]);
        assert_eq!([58, 59, 92, 93].map(|n| rank_above(n, 0.95)), [None, Some(1), Some(1), Some(2)]);
        assert_eq!([2_994, 2_995].map(|n| rank_above(n, 0.999)), [None, Some(1)]);
        // Of 10 values the second largest is above the median with a probability of 98.9 %, the third with 94.5 %.
        assert_eq!(rank_above(10, 0.5), Some(2));
        assert_eq!(rank_above(100_000, 0.5).map(|rank| rank / 1_000), Some(49));
    }

    #[test]
    fn few_windows_are_fitted_and_never_below_the_largest() {
        let values = [10.0, 12.0, 11.0, 30.0, 9.0, 10.5, 11.5, 12.5, 10.2, 11.1];
        let median = quantile(&values, 0.5).unwrap();
        assert_eq!((median.value, median.upper, median.basis), (11.0, 12.5, Basis::Counted));
        let [p95, p999] = [0.95, 0.999].map(|share| quantile(&values, share).unwrap());
        assert!(p95.basis == Basis::Fitted && p95.value >= 30.0 && p95.upper >= p95.value, "{p95:?}");
        assert!(p999.value > p95.value && p999.upper > p95.upper, "{p999:?}");
    }

    #[test]
    fn equal_values_have_no_tail_and_too_few_have_no_quantile() {
        let equal = quantile(&[7.0; 4], 0.999).unwrap();
        assert_eq!((equal.value, equal.upper, equal.basis), (7.0, 7.0, Basis::Fitted));
        assert_eq!([quantile(&[], 0.5), quantile(&[1.0], 0.5)], [None; 2]);
        assert_eq!([quantile(&[1.0, f64::NAN], 0.5), quantile(&[1.0, 2.0], 1.0)], [None; 2]);
    }

    #[test]
    fn a_fit_finds_the_distribution_of_its_values() {
        let mut rng = statistics::stream(5, "gumbel");
        let mut values: Vec<f64> =
            (0..20_000).map(|_| 100.0 + 20.0 * reduced(rng.random::<f64>().max(1e-12))).collect();
        values.sort_by(f64::total_cmp);
        let fitted = Gumbel::fitted(&values);
        assert!((fitted.location - 100.0).abs() < 1.0 && (fitted.scale - 20.0).abs() < 0.5);
        assert!((fitted.quantile(0.999) / (100.0 + 20.0 * 6.907_255) - 1.0).abs() < 0.02);
    }
}
