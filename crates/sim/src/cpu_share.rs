//! How much of the CPU time that a guest wanted it got. The counterfactual `cpu-share` makes the guest faster by the
//! inverse. The ideal `even-share` turns this around: the guest has its pCPUs to itself, and is slower by the share.
//!
//! The share is measured in a run of the same condition and seed at the normal speed, so it includes quotas, pauses,
//! spikes, neighbours and the guest's own idle time as they happened.

use std::borrow::Cow;

use reprieve_study::Observation;
use reprieve_study::scenario::{Cause, Condition, Remedy};

/// Time that all vCPUs of a guest ran, and time that they ran or were runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare {
    run_ns: u64,
    wanted_ns: u64,
}

impl CpuShare {
    /// The guest got all that it wanted.
    pub const ALL: CpuShare = CpuShare { run_ns: 1, wanted_ns: 1 };

    /// The guest's share in the window of a run; [`CpuShare::ALL`] if it never ran, because no speed makes up for that.
    pub fn of(run: &Observation) -> CpuShare {
        let vcpus = &run.provenance.vcpus;
        let run_ns: u64 = vcpus.iter().map(|vcpu| vcpu.run_ns).sum();
        let delay_ns: u64 = vcpus.iter().map(|vcpu| vcpu.delay_ns).sum();
        if run_ns == 0 {
            return CpuShare::ALL;
        }
        CpuShare { run_ns, wanted_ns: run_ns + delay_ns }
    }

    /// The share of a guest that has all that it wants, when it should have this one: above all. Making up for it slows the
    /// guest down.
    pub fn inverse(self) -> CpuShare {
        CpuShare { run_ns: self.wanted_ns, wanted_ns: self.run_ns }
    }

    /// The speed at which a guest with this share does as much as one of `speed_permille` with all the time. In
    /// thousandths, rounded down.
    pub fn speed_that_makes_up(self, speed_permille: u64) -> u64 {
        let product = u128::from(speed_permille) * u128::from(self.wanted_ns);
        u64::try_from(product / u128::from(self.run_ns)).unwrap_or(u64::MAX)
    }
}

/// The condition in which the share for an even share is measured: the same neighbours, and nothing done about them.
pub fn uneven(condition: &Condition) -> Option<Condition> {
    let is_even = condition.remedies.contains(&Remedy::EvenShare);
    is_even.then(|| Condition { remedies: Vec::new(), ..condition.clone() })
}

/// The condition without the counterfactual `cpu-share`, and whether it had it.
pub fn as_given(condition: &Condition) -> (Cow<'_, Condition>, bool) {
    if !condition.without.contains(&Cause::CpuShare) {
        return (Cow::Borrowed(condition), false);
    }
    let mut given = condition.clone();
    given.without.retain(|cause| *cause != Cause::CpuShare);
    (Cow::Owned(given), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_makes_up_for_time() {
        let share = |run_ns, wanted_ns| CpuShare { run_ns, wanted_ns };
        assert_eq!(CpuShare::ALL.speed_that_makes_up(8000), 8000);
        assert_eq!(share(500, 1000).speed_that_makes_up(8000), 16_000);
        assert_eq!(share(3, 10).speed_that_makes_up(1000), 3333);
        // The product exceeds 64 bits.
        assert_eq!(share(1 << 61, 1 << 62).speed_that_makes_up(1_000_000), 2_000_000);
    }

    #[test]
    fn an_even_share_is_a_slower_guest() {
        let beside = Condition { overcommit: 1.5, ..Condition::default() };
        let even = Condition { remedies: vec![Remedy::EvenShare], ..beside.clone() };
        assert_eq!((uneven(&even), uneven(&beside)), (Some(beside), None));
        let share = CpuShare { run_ns: 2, wanted_ns: 3 };
        assert_eq!(share.inverse().speed_that_makes_up(8000), 5333);
    }

    #[test]
    fn other_causes_stay_left_out_while_the_share_is_measured() {
        let both =
            Condition { without: vec![Cause::CpuShare, Cause::MemoryPressure], ..Condition::default() };
        let (given, made_up) = as_given(&both);
        assert_eq!((&given.without[..], made_up), (&[Cause::MemoryPressure][..], true));
        let (same, made_up) = as_given(&given);
        assert_eq!((&*same, made_up), (&*given, false));
    }
}
