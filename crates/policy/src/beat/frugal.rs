//! A running quantile of many values, kept in one word.
//!
//! Source: Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating Quantiles", 2013: each value moves the
//! estimate one step up or down. Here a step is a share of the estimate, so small and large quantiles are found equally
//! fast.

/// A step is so many times 1 / this of the estimate...
const STEP_SHARE: u64 = 32;
/// ... plus so many times this, ns, so that the estimate can leave zero.
const STEP_NS: u64 = 500;

/// A quantile of durations: the one at which so many steps up for each greater value and so many down for each smaller one are in
/// balance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frugal<const UP: u64, const DOWN: u64> {
    quantile_ns: u64,
}

/// The median.
pub(super) type Median = Frugal<2, 2>;
/// The 25th percentile.
pub(super) type LowerQuartile = Frugal<1, 3>;

impl<const UP: u64, const DOWN: u64> Frugal<UP, DOWN> {
    /// Takes in a value.
    pub(super) fn learn(&mut self, ns: u64) {
        let distance_ns = ns.abs_diff(self.quantile_ns);
        match ns > self.quantile_ns {
            true => self.quantile_ns += distance_ns.min(self.step_ns(UP)),
            false => self.quantile_ns -= distance_ns.min(self.step_ns(DOWN)),
        }
    }

    fn step_ns(&self, steps: u64) -> u64 {
        self.quantile_ns.saturating_mul(steps) / STEP_SHARE + STEP_NS * steps
    }

    /// The estimate, ns. It starts at 0.
    pub(super) fn ns(&self) -> u64 {
        self.quantile_ns
    }
}
