//! A control for [`Booster`]: visits of the same kind, under the same bounds, that follow a clock instead of grace
//! periods.
//!
//! Each vCPU is due for a given number of visits per second, at random times. A visit begins when the vCPU is next
//! descheduled, and lasts for the cap.

use super::{Booster, Look, Order, Settings, Vcpu};
use crate::SECOND_NS;

/// Makes the decisions for one VM.
#[derive(Clone, Debug)]
pub struct Unaimed {
    booster: Booster,
    threshold_ns: u64,
    /// Mean time between two visits.
    every_ns: u64,
    /// When each vCPU is due.
    due_ns: Vec<u64>,
    /// The vCPUs in the form that is passed to the booster: a vCPU that is due counts as a holdout.
    told: Vec<Vcpu>,
    random: u64,
}

impl Unaimed {
    /// Decisions for a VM with `vcpus` vCPUs, from `now_ns` on. Each vCPU is due `per_s` times per second, at least
    /// once. The times follow from the seed.
    pub fn new(settings: Settings, vcpus: usize, now_ns: u64, per_s: u64, seed: u64) -> Unaimed {
        let mut unaimed = Unaimed {
            booster: Booster::new(settings, vcpus, now_ns),
            threshold_ns: settings.threshold_ns,
            every_ns: SECOND_NS / per_s.max(1),
            due_ns: vec![now_ns; vcpus],
            told: vec![Vcpu::default(); vcpus],
            random: seed,
        };
        for v in 0..vcpus {
            unaimed.due_ns[v] += unaimed.pause_ns();
        }
        unaimed
    }

    /// Takes a look and returns what to do. Of the look, only the time and the vCPUs' states matter.
    ///
    /// # Panics
    /// If the number of vCPUs is not the number given to [`Unaimed::new`].
    pub fn look(&mut self, look: &Look<'_>) -> &[Order] {
        for (v, vcpu) in look.vcpus.iter().enumerate() {
            let is_due = look.at_ns >= self.due_ns[v];
            self.told[v] = Vcpu { is_holdout: is_due, has_kthread: false, ..*vcpu };
        }
        // Each look shows the booster a different grace period that is old enough, so its patience never runs out.
        let open_since_ns = Some(look.at_ns.saturating_sub(self.threshold_ns));
        let orders = self.booster.look(&Look { at_ns: look.at_ns, open_since_ns, vcpus: &self.told });
        for order in orders {
            if let Order::End(v) = *order {
                self.random = next(self.random);
                self.due_ns[v] += pause_ns(self.every_ns, self.random);
            }
        }
        orders
    }

    fn pause_ns(&mut self) -> u64 {
        self.random = next(self.random);
        pause_ns(self.every_ns, self.random)
    }
}

/// The next state of a linear congruential generator (Knuth, MMIX).
fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// A pause of half to one and a half times the mean.
fn pause_ns(every_ns: u64, random: u64) -> u64 {
    every_ns / 2 + (random >> 32).saturating_mul(every_ns) / (1 << 32)
}

#[cfg(test)]
mod tests {
    use super::super::tests::MS;
    use super::*;

    /// The times at which visits of the second of two vCPUs begin. It is descheduled whenever it is not visited.
    fn begins(per_s: u64, seed: u64) -> Vec<u64> {
        let mut unaimed = Unaimed::new(Settings::default(), 2, 0, per_s, seed);
        let (mut begins, mut is_visited) = (Vec::new(), false);
        for at_ns in (0..10 * SECOND_NS).step_by(MS as usize / 10) {
            let vcpus = [Vcpu::default(), Vcpu { is_off: !is_visited, ..Vcpu::default() }];
            for order in unaimed.look(&Look { at_ns, open_since_ns: None, vcpus: &vcpus }) {
                is_visited = *order == Order::Begin(1);
                begins.extend(is_visited.then_some(at_ns));
            }
        }
        begins
    }

    #[test]
    fn visits_come_as_often_as_asked_for_and_follow_from_the_seed() {
        let visits = begins(50, 7);
        assert!(visits.len().abs_diff(500) < 15, "{}", visits.len());
        assert_eq!(visits, begins(50, 7));
        assert_ne!(visits, begins(50, 8));
    }

    #[test]
    fn a_vcpu_in_debt_is_not_visited() {
        let settings = Settings::default();
        let mut unaimed = Unaimed::new(settings, 1, 0, 100, 1);
        let owes = Vcpu { is_off: true, is_holdout: true, debt_ns: settings.debt_ns, ..Vcpu::default() };
        for at_ns in (0..SECOND_NS).step_by(MS as usize) {
            assert_eq!(unaimed.look(&Look { at_ns, open_since_ns: Some(0), vcpus: &[owes] }), []);
        }
    }
}
