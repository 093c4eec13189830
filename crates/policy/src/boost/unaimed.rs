//! A control for [`Booster`]: the same visits, under the same bounds, that follow a clock instead of the grace periods.
//!
//! Each vCPU is due for a visit that many times a second, at random times. The visit begins once the vCPU is off, and lasts
//! for the cap.

use super::{Booster, Look, Order, Settings, Vcpu};
use crate::SECOND_NS;

/// Decides for one VM.
#[derive(Clone, Debug)]
pub struct Unaimed {
    booster: Booster,
    threshold_ns: u64,
    /// Mean time between two visits.
    every_ns: u64,
    /// When each vCPU is due.
    due_ns: Vec<u64>,
    /// The vCPUs as the booster is told of them.
    told: Vec<Vcpu>,
    random: u64,
}

impl Unaimed {
    /// For a VM with that many vCPUs, each due that often per second (at least once), from `now_ns` on. The times follow
    /// from the seed.
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

    /// Takes a look, of which only the time and what the vCPUs do count, and says what to do.
    ///
    /// # Panics
    /// If the number of vCPUs is not the one given at first.
    pub fn look(&mut self, look: &Look<'_>) -> &[Order] {
        for (v, vcpu) in look.vcpus.iter().enumerate() {
            let is_due = look.at_ns >= self.due_ns[v];
            self.told[v] = Vcpu { is_holdout: is_due, has_kthread: false, ..*vcpu };
        }
        // Each look tells of another grace period, old enough: so patience never ends.
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

    /// Times at which visits of the second of two vCPUs begin, off whenever it is not visited.
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
