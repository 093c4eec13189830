//! How long before the end of the slice an I/O task must leave its vCPU, so that its I/O in flight drains: the *lead*.
//!
//! The completion of an I/O interrupts the vCPU that issued it, so that vCPU must still be on. The lead is twice the
//! time of an I/O, because the task may issue one just before it moves, plus the time resolution of the beats. Source:
//! measured on real guests with I/Os of 0.5 ms and beats of 1 ms, a lead of 2 to 3 ms recovered all that could be.

use crate::window::Window;

/// The usual time of an I/O is this percentile.
const PERCENT: u64 = 90;
/// Once the window is full, one completion in this many enters it.
const EVERY: u64 = 8;
/// Of this many means the least counts: at least one will be free of waits for vCPUs that were off.
const MEANS: usize = 8;
/// The lead is at most 1 / this of a slice: a device slower than slices cannot be drained anyway.
const SLICE_SHARE: u64 = 4;

/// Learns how long I/Os take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lead {
    took_ns: Window,
    count: u64,
    usual_ns: u64,
    /// The latest means, as a ring; 0 in unused places.
    means_ns: [u64; MEANS],
    next: usize,
}

impl Lead {
    /// Takes in how long an I/O took, ns. Leave out an I/O whose vCPU was off meanwhile: it took longer than the device
    /// needed.
    pub fn learn(&mut self, took_ns: u64) {
        self.count += 1;
        if self.took_ns.len() < Window::CAPACITY || self.count.is_multiple_of(EVERY) {
            self.took_ns.push(took_ns);
            self.usual_ns = self.took_ns.quantile(PERCENT).unwrap_or(0);
        }
    }

    /// Takes in how long recent I/Os took in the mean, ns. The mean includes waits for vCPUs that were off, more at
    /// some times than at others, so the least of the last eight means counts.
    pub fn learn_mean(&mut self, mean_ns: u64) {
        self.means_ns[self.next] = mean_ns.max(1);
        self.next = (self.next + 1) % MEANS;
        let known = self.means_ns.iter().copied().filter(|mean_ns| *mean_ns > 0);
        self.learn(known.min().unwrap_or(mean_ns));
    }

    /// The usual time of an I/O, ns: the 90th percentile; 0 before the first.
    pub fn usual_ns(&self) -> u64 {
        self.usual_ns
    }

    /// The lead, ns, for beats of this period and ordinary lateness, and slices of this length.
    pub fn lead_ns(&self, period_ns: u64, ordinary_late_ns: u64, slice_ns: Option<u64>) -> u64 {
        let wanted_ns =
            self.usual_ns.saturating_mul(2).saturating_add(period_ns).saturating_add(ordinary_late_ns);
        slice_ns.map_or(wanted_ns, |slice_ns| wanted_ns.min(slice_ns / SLICE_SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn the_lead_follows_the_device_within_a_slice() {
        let mut lead = Lead::default();
        assert_eq!(lead.lead_ns(1000 * US, 200 * US, None), 1200 * US);
        (0..100).for_each(|_| lead.learn(500 * US));
        assert_eq!(lead.lead_ns(1000 * US, 200 * US, Some(35_000 * US)), 2200 * US);
        (0..1000).for_each(|_| lead.learn(9_000 * US));
        assert_eq!(lead.lead_ns(1000 * US, 200 * US, Some(32_000 * US)), 8_000 * US);
    }

    #[test]
    fn a_slow_one_among_many_does_not_count() {
        let mut lead = Lead::default();
        (0..100).for_each(|i| lead.learn(if i == 7 { 30_000 * US } else { 500 * US }));
        assert_eq!(lead.usual_ns(), 500 * US);
    }

    #[test]
    fn a_mean_with_waits_in_it_counts_as_one_without() {
        let mut lead = Lead::default();
        (0..400).for_each(|i| lead.learn_mean(if i % 4 == 0 { 520 * US } else { 9_000 * US }));
        assert_eq!(lead.usual_ns(), 520 * US);
        (0..400).for_each(|_| lead.learn_mean(4_000 * US));
        assert_eq!(lead.usual_ns(), 4_000 * US, "a device that got slower is followed");
    }
}
