//! A median in one word, for values of which there are many.
//!
//! Source: Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating Quantiles", 2013: a step up or down at each value.
//! The step is a share of the median here, so that it is found as soon whatever its size.

/// A step is 1 / this of the median...
const STEP_SHARE: u64 = 16;
/// ... and so much, ns, that it leaves zero.
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

    /// The median so far, ns; from 0 at first.
    pub(super) fn ns(&self) -> u64 {
        self.median_ns
    }
}
