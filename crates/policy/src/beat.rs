//! Beats: was a vCPU descheduled, by whom, and how much of its slice remains.
//!
//! A timer thread pinned to each vCPU beats every period. A vCPU that the host deschedules misses beats, and beats late
//! when it comes back: the *gap*. Time from the first beat after a gap to the last before the next is the *slice* (the time
//! on); the gap is the time off. Both are kept in windows and asked for quantiles, so that neither a spurious gap nor one
//! odd slice spoils the estimate, and nothing is assumed of the host's scheduler.
//!
//! A late beat is not yet a descheduled vCPU: the guest itself may have kept the beat thread waiting. Steal is looked at
//! first, then the beat thread's own run delay; else the verdict is unknown. Steal may be booked a tick late, so a gap is
//! judged again for some beats; and it is booked in grains, so it clears the host only of gaps of two grains or more. All
//! other unknown ones count as descheduled: on a host that books no steal (emulation), and those too short to show in it.
//!
//! What the caller must do:
//! - hand in the beats of all vCPUs merged by their times, for a vCPU whose beats wait unread looks off;
//! - pass each beat through [`StealReads`], which says when to read steal. Growth counts only from a reading of the last second;
//! - read the beat thread's run delay, where the system tells it, at each beat later than [`grain_ns`] and at one ordinary beat
//!   in [`READ_EVERY`].
//!
//! Source: the vCPU monitor of Jia et al., "Effectively Mitigating I/O Inactivity in vCPU Scheduling", USENIX ATC 2018
//! (slice = last beat before the gap less first beat after the previous one); its constants are estimated here instead.

mod frugal;
mod lateness;
mod pace;
mod recent;
mod slice;
mod steal;
mod steal_reads;
mod vcpu;
mod work;

pub use lateness::{Lateness, grain_ns};
pub use pace::Pace;
pub use slice::{Odds, Remaining, Slices};
pub use steal_reads::{READ_EVERY, StealReads};
pub(crate) use vcpu::LEAP_NS;
pub use vcpu::Vcpu;
pub use work::Work;

/// What a beat thread saw as it woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Whose beat it is: a vCPU's number.
    pub vcpu: usize,
    /// When it was due, ns.
    pub due_ns: u64,
    /// When it came, ns.
    pub at_ns: u64,
    /// Time between two beats now, ns.
    pub period_ns: u64,
    /// Steal of this vCPU since boot, ns, if it was read at this beat; [`StealReads`] says when.
    pub steal_ns: Option<u64>,
    /// Time the beat thread was runnable and not running since it began, ns, if it was read at this beat.
    pub run_delay_ns: Option<u64>,
}

impl Beat {
    /// How late it came, ns.
    pub fn lateness_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.due_ns)
    }
}

/// Who made a beat late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host had descheduled the vCPU: steal grew by half the lateness or more.
    Host,
    /// The guest kept the beat thread waiting: its run delay grew by half the lateness or more, and steal did not.
    Guest,
    /// Neither explains it.
    Unknown,
}

/// A stretch without beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The vCPU.
    pub vcpu: usize,
    /// The last beat before, ns. The vCPU went off between this and the time the next beat was due.
    pub last_beat_ns: u64,
    /// The first beat after, ns: when the vCPU came back.
    pub back_ns: u64,
    /// How late that beat was, ns: the time off, short by less than a period.
    pub late_ns: u64,
    /// Who did it, as far as is known at the first beat.
    pub verdict: Verdict,
}

/// What a beat tells about its vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// On time.
    OnTime,
    /// The first beat after a gap.
    Back(Gap),
    /// Time went backwards or leapt (a suspended machine, a broken clock): all that was open is dropped.
    ClockFault,
}

/// How often each verdict was given, and what was thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Gaps that are the host's.
    pub host: u64,
    /// Gaps that are the guest's.
    pub guest: u64,
    /// Gaps that nothing explains.
    pub unknown: u64,
    /// Beats whose time was impossible.
    pub clock_faults: u64,
}
