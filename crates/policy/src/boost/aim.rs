//! What decides when visits begin: grace periods or, as a control, a clock.

use super::{Booster, Look, Order, Settings, Unaimed};

/// What decides when visits begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Long grace periods.
    GracePeriods,
    /// A control: each vCPU is visited at random times, which follow from the seed.
    Clock {
        /// Visits per second of each vCPU.
        per_s: u64,
        /// Seed of the times.
        seed: u64,
    },
}

/// Makes the decisions for one VM, with either aim.
#[derive(Clone, Debug)]
pub enum Decider {
    /// Follows grace periods.
    Aimed(Booster),
    /// Follows the clock.
    Unaimed(Unaimed),
}

impl Decider {
    /// Decisions for a VM with `vcpus` vCPUs, from `now_ns` on.
    pub fn new(aim: Aim, settings: Settings, vcpus: usize, now_ns: u64) -> Decider {
        match aim {
            Aim::GracePeriods => Decider::Aimed(Booster::new(settings, vcpus, now_ns)),
            Aim::Clock { per_s, seed } => {
                Decider::Unaimed(Unaimed::new(settings, vcpus, now_ns, per_s, seed))
            }
        }
    }

    /// Takes a look and returns what to do, as [`Booster::look`] does.
    ///
    /// # Panics
    /// If the number of vCPUs is not the number given to [`Decider::new`].
    pub fn look(&mut self, look: &Look<'_>, is_off: impl FnMut(usize) -> bool) -> &[Order] {
        match self {
            Decider::Aimed(booster) => booster.look(look, is_off),
            Decider::Unaimed(unaimed) => unaimed.look(look, is_off),
        }
    }

    /// When to look again after a look at `at_ns`. `look_ns` is the time between looks that may find something to do.
    pub fn next_look_ns(&self, at_ns: u64, look_ns: u64) -> u64 {
        match self {
            Decider::Aimed(booster) => booster.next_look_ns(at_ns, look_ns),
            Decider::Unaimed(unaimed) => unaimed.next_look_ns(at_ns, look_ns),
        }
    }
}
