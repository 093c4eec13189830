//! How long before its vCPU's end an I/O task must leave, so that its I/O in flight drains.
//!
//! The completion of an I/O interrupts the vCPU it was issued on. So the task leaves as long ahead as an I/O takes, twice over
//! for the one it issues just before it is moved, and as coarsely as beats can tell. Source: with I/Os of 0.5 ms and beats
//! of 1 ms, leaving 2 to 3 ms ahead gave back all there was (the project's facts).

use crate::window::Window;

/// Ordinary I/Os take no longer than this percentile.
const PERCENT: u64 = 90;
/// One completion in so many goes into the window once that is full.
const EVERY: u64 = 8;
/// A mean counts as the least of so many: one without waits for vCPUs that were off is among them.
const MEANS: usize = 8;
/// The lead is 1 / this of a slice at most: devices slower than slices cannot be drained.
const SLICE_SHARE: u64 = 4;

/// Learns how long I/Os take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lead {
    took_ns: Window,
    count: u64,
    usual_ns: u64,
    /// The latest means, a ring; 0 where there is none yet.
    means_ns: [u64; MEANS],
    next: usize,
}

impl Lead {
    /// An I/O took so long, ns. One that was in flight while its vCPU was off tells nothing of the device: do not hand it in.
    pub fn learn(&mut self, took_ns: u64) {
        self.count += 1;
        if self.took_ns.len() < Window::CAPACITY || self.count.is_multiple_of(EVERY) {
            self.took_ns.push(took_ns);
            self.usual_ns = self.took_ns.quantile(PERCENT).unwrap_or(0);
        }
    }

    /// I/Os took so long in the mean lately, ns. Such a mean holds the waits of those that were in flight while their vCPU
    /// was off, more of them in one stretch of time than in another; so it counts as the least of the last eight.
    pub fn learn_mean(&mut self, mean_ns: u64) {
        self.means_ns[self.next] = mean_ns.max(1);
        self.next = (self.next + 1) % MEANS;
        let known = self.means_ns.iter().copied().filter(|mean_ns| *mean_ns > 0);
        self.learn(known.min().unwrap_or(mean_ns));
    }

    /// How long an I/O takes, ns: the 90th percentile; 0 while none is known.
    pub fn usual_ns(&self) -> u64 {
        self.usual_ns
    }

    /// How long ahead to leave, ns, with beats of this period that are ordinarily so late, and slices of this length.
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
