//! What visits follow: grace periods, or, as a control, a clock.

use super::{Booster, Look, Order, Settings, Unaimed};

/// What visits follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Grace periods that are open for long.
    GracePeriods,
    /// Nothing: visits of each vCPU at random times that follow from the seed. A control.
    Clock {
        /// Visits per second of each vCPU.
        per_s: u64,
        /// Seed of the times.
        seed: u64,
    },
}

/// Decides for one VM, by either aim.
#[derive(Clone, Debug)]
pub enum Decider {
    /// By grace periods.
    Aimed(Booster),
    /// By the clock.
    Unaimed(Unaimed),
}

impl Decider {
    /// For a VM with that many vCPUs, from `now_ns` on.
    pub fn new(aim: Aim, settings: Settings, vcpus: usize, now_ns: u64) -> Decider {
        match aim {
            Aim::GracePeriods => Decider::Aimed(Booster::new(settings, vcpus, now_ns)),
            Aim::Clock { per_s, seed } => {
                Decider::Unaimed(Unaimed::new(settings, vcpus, now_ns, per_s, seed))
            }
        }
    }

    /// Takes a look, and says what to do: at most one order for each vCPU.
    ///
    /// # Panics
    /// If the number of vCPUs is not the one given at first.
    pub fn look(&mut self, look: &Look<'_>) -> &[Order] {
        match self {
            Decider::Aimed(booster) => booster.look(look),
            Decider::Unaimed(unaimed) => unaimed.look(look),
        }
    }
}
