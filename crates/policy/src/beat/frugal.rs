//! The running median of many values, kept in one word.
//!
//! Source: Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating Quantiles", 2013: each value moves the
//! estimate one step up or down. Here a step is a share of the estimate, so small and large medians are found equally
//! fast.

/// A step is 1 / this of the estimate...
const STEP_SHARE: u64 = 16;
/// ... plus this, ns, so that the estimate can leave zero.
const STEP_NS: u64 = 1_000;

/// The median of durations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frugal {
    median_ns: u64,
}

impl Frugal {
    /// Takes in a value.
    pub(super) fn learn(&mut self, ns: u64) {
        let step_ns = self.median_ns / STEP_SHARE + STEP_NS;
        let distance_ns = ns.abs_diff(self.median_ns).min(step_ns);
        match ns > self.median_ns {
            true => self.median_ns += distance_ns,
            false => self.median_ns -= distance_ns,
        }
    }

    /// The estimate, ns. It starts at 0.
    pub(super) fn ns(&self) -> u64 {
        self.median_ns
    }
}
