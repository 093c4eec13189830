//! A control for [`Booster`]: visits of the same kind, under the same bounds, that follow a clock instead of grace
//! periods.
//!
//! While a vCPU is descheduled, it is visited at random times, at a given rate. Each visit lasts for the cap.

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
    /// Decisions for a VM with `vcpus` vCPUs, from `now_ns` on. Between two visits of a vCPU that stays descheduled lie
    /// `1 / per_s` seconds on average, a second at most. The times follow from the seed.
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

    /// Takes a look and returns what to do, as [`Booster::look`] does, whatever the guest's grace periods are.
    ///
    /// # Panics
    /// If the number of vCPUs is not the number given to [`Unaimed::new`].
    pub fn look(&mut self, look: &Look<'_>, is_off: impl FnMut(usize) -> bool) -> &[Order] {
        for (v, vcpu) in look.vcpus.iter().enumerate() {
            let is_due = look.at_ns >= self.due_ns[v];
            self.told[v] = Vcpu { is_holdout: is_due, has_kthread: false, may_hold_lock: false, ..*vcpu };
        }
        // Each look shows the booster a different grace period that is old enough, so its patience never runs out.
        let open_since_ns = Some(look.at_ns.saturating_sub(self.threshold_ns));
        let orders = self
            .booster
            .look(&Look { at_ns: look.at_ns, open_since_ns, tick_ns: None, vcpus: &self.told }, is_off);
        for order in orders {
            if let Order::End(v) = *order {
                self.random = next(self.random);
                // The next pause begins now. Visits that the vCPU missed while it ran would otherwise follow in a burst.
                self.due_ns[v] = look.at_ns + pause_ns(self.every_ns, self.random);
            }
        }
        orders
    }

    /// When to look again after a look at `at_ns`, as [`Booster::next_look_ns`] has it.
    pub fn next_look_ns(&self, at_ns: u64, look_ns: u64) -> u64 {
        self.booster.next_look_ns(at_ns, look_ns)
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
            let look = Look { at_ns, open_since_ns: None, tick_ns: None, vcpus: &[Vcpu::default(); 2] };
            let is_off = |v| v == 1 && !is_visited;
            for order in unaimed.look(&look, is_off).to_vec() {
                is_visited = order == Order::Begin(1);
                begins.extend(is_visited.then_some(at_ns));
            }
        }
        begins
    }

    #[test]
    fn visits_come_as_often_as_asked_for_and_follow_from_the_seed() {
        let visits = begins(50, 7);
        // 20 ms lie between two visits, and a visit takes 0.5 ms.
        assert!(visits.len().abs_diff(10_000 * 10 / 205) < 15, "{}", visits.len());
        assert_eq!(visits, begins(50, 7));
        assert_ne!(visits, begins(50, 8));
    }

    #[test]
    fn a_vcpu_in_debt_is_not_visited() {
        let settings = Settings::default();
        let mut unaimed = Unaimed::new(settings, 1, 0, 100, 1);
        let owes = Vcpu { is_holdout: true, debt_ns: settings.debt_ns, ..Vcpu::default() };
        for at_ns in (0..SECOND_NS).step_by(MS as usize) {
            let look = Look { at_ns, open_since_ns: Some(0), tick_ns: None, vcpus: &[owes] };
            assert_eq!(unaimed.look(&look, |_| true), []);
        }
    }
}
