//! What can be tuned, what differs between Xen's versions, and which of the three bugs are fixed.

use reprieve_study::units::MILLISECOND_NS;

use crate::sched::Cpu;

pub use reprieve_study::scenario::XenVersion as Version;

/// Which of the three bugs are fixed, each by the smallest change of its mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixes {
    /// Bug 1: the current vCPU is marked as migrating only if it may run on an idle pCPU, and a wake by its own migration
    /// gives no BOOST.
    pub boost_on_migration: bool,
    /// Bug 2: credit is limited to a slice's worth, in place of leaving the active list with half of it. (A new vCPU still
    /// burns credit unseen until a tick first finds it running.)
    pub inactive_debt: bool,
    /// Bug 3: BOOST is kept apart from UNDER and OVER, so that accounting, which writes those, does not take it.
    pub boost_erased: bool,
}

impl Fixes {
    /// Those that a version has: 4.5 and 4.6 have all three bugs.
    pub fn of(version: Version) -> Fixes {
        Fixes { boost_on_migration: version != Version::V4_5, ..Fixes::default() }
    }
}

/// How long the timer runs if the rate limit keeps the current vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearm {
    /// The whole limit once more: before 4.17.
    Whole,
    /// What is left of it, to the last ns: 4.17. In a trace of 4.17.7 it and the run time made 1 ms in each of 995 cases, whose run
    /// times were 30 us to 999.5 us. The timer comes after 50 us at the soonest (`timer_slop`).
    Left,
}

/// Ticks in a slice of as many milliseconds or more; a shorter one has one tick. (Xen counts slices in whole
/// milliseconds. In a trace of 4.17.7 with slices of 1 ms a pCPU ticks once a slice.)
pub const TICKS_PER_SLICE: u64 = 3;
/// Xen's default slice.
pub const SLICE_NS: u64 = 30 * MILLISECOND_NS;
/// Xen's default rate limit.
pub const RATELIMIT_NS: u64 = MILLISECOND_NS;

/// What a credit scheduler is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// pCPUs of the machine, at least one.
    pub cpus: u32,
    /// pCPUs of the pool; all if empty. The first of them does the accounting.
    pub pool: Vec<Cpu>,
    /// Length of a slice, and time between two accountings. See [`Params::tick_ns`].
    pub slice_ns: u64,
    /// What a vCPU runs at least before another may take its pCPU; 0 for no limit.
    pub ratelimit_ns: u64,
    /// What the version has fixed, and more.
    pub fixes: Fixes,
    /// As the version does it.
    pub rearm: Rearm,
    /// Bug 3's race: how long after a wake stored BOOST it looks at the priority again, to decide whether to preempt. An
    /// accounting of the first pCPU between the two goes unseen by a wake on another. 0 for never.
    pub race_window_ns: u64,
    /// When the first accounting is, from the first wake.
    pub accounting_phase_ns: u64,
    /// When the first tick of each pCPU is, from the first wake; a missing one is the slice's first third.
    pub tick_phases_ns: Vec<u64>,
}

impl Params {
    /// Xen's defaults in that version, on all of so many pCPUs, with everything at its first chance.
    pub fn xen(version: Version, cpus: u32) -> Params {
        Params {
            cpus: cpus.max(1),
            pool: Vec::new(),
            slice_ns: SLICE_NS,
            ratelimit_ns: RATELIMIT_NS,
            fixes: Fixes::of(version),
            rearm: if version == Version::V4_17 { Rearm::Left } else { Rearm::Whole },
            race_window_ns: 1,
            accounting_phase_ns: SLICE_NS,
            tick_phases_ns: Vec::new(),
        }
    }

    /// Time between two ticks of a pCPU.
    pub fn tick_ns(&self) -> u64 {
        let ticks = if self.slice_ns < TICKS_PER_SLICE * MILLISECOND_NS { 1 } else { TICKS_PER_SLICE };
        (self.slice_ns / ticks).max(1)
    }
}

impl std::ops::BitOr for Fixes {
    type Output = Fixes;

    fn bitor(self, other: Fixes) -> Fixes {
        Fixes {
            boost_on_migration: self.boost_on_migration | other.boost_on_migration,
            inactive_debt: self.inactive_debt | other.inactive_debt,
            boost_erased: self.boost_erased | other.boost_erased,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_have_one_tick() {
        let tick_ns = |slice_ns| Params { slice_ns, ..Params::xen(Version::V4_17, 1) }.tick_ns();
        assert_eq!(
            [30, 5, 3, 2, 1].map(|ms| tick_ns(ms * MILLISECOND_NS)),
            [10_000_000, 1_666_666, 1_000_000, 2_000_000, 1_000_000]
        );
    }
}
