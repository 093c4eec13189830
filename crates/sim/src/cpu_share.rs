//! The share of the CPU time that a guest wants which its host gives it, as measured: what a run without less CPU time
//! (the counterfactual `cpu-share`) makes up for.
//!
//! The share is taken from a run of the same condition and seed in which nothing is made up for, so that quotas, pauses,
//! spikes, neighbours and the guest's own idleness are in it as they happened.

use std::borrow::Cow;

use reprieve_study::Observation;
use reprieve_study::scenario::{Cause, Condition};

/// Time that all vCPUs of a guest ran, and time that they ran or were runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare {
    run_ns: u64,
    wanted_ns: u64,
}

impl CpuShare {
    /// All that it wants.
    pub const ALL: CpuShare = CpuShare { run_ns: 1, wanted_ns: 1 };

    /// The guest's share in the window of a run. All if it never ran: there is nothing to make up for by speed.
    pub fn of(run: &Observation) -> CpuShare {
        let vcpus = &run.provenance.vcpus;
        let run_ns: u64 = vcpus.iter().map(|vcpu| vcpu.run_ns).sum();
        let delay_ns: u64 = vcpus.iter().map(|vcpu| vcpu.delay_ns).sum();
        if run_ns == 0 {
            return CpuShare::ALL;
        }
        CpuShare { run_ns, wanted_ns: run_ns + delay_ns }
    }

    /// The speed with which a guest computes as much in its share of the time as one of this speed in all of it. Both in
    /// thousandths; rounded down.
    pub fn speed_that_makes_up(self, speed_permille: u64) -> u64 {
        let product = u128::from(speed_permille) * u128::from(self.wanted_ns);
        u64::try_from(product / u128::from(self.run_ns)).unwrap_or(u64::MAX)
    }
}

/// The condition with the guest's CPU time left as it is, and whether that is to be made up for.
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
        // More than a u64 holds on the way.
        assert_eq!(share(1 << 61, 1 << 62).speed_that_makes_up(1_000_000), 2_000_000);
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
