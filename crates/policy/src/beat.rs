//! Beats: detect from inside a guest when a vCPU is descheduled, and predict how much of its slice remains.
//!
//! A timer thread pinned to each vCPU *beats* once a period. A vCPU that the host deschedules (it is *off*) misses
//! beats, and its next beat comes late: the time without beats is a *gap*. The time between two gaps is a *slice*,
//! during which the vCPU is *on*. Windows keep the latest gaps and slices, and estimates are quantiles of these
//! windows: one spurious gap or one odd slice changes them little, and they assume nothing about the host's scheduler.
//!
//! A late beat does not prove that the vCPU was off: the guest itself may have kept the beat thread waiting. If the
//! vCPU's steal explains the lateness, the verdict is the host; else, if the beat thread's own run delay does, the
//! guest; else it is unknown. The kernel may book steal one tick late, so a gap is judged again for a few beats. It
//! also books steal in coarse units, the *grain*, so missing steal clears the host only of gaps of at least two grains.
//! All other unknown gaps count as descheduled: the host may book no steal at all (emulation), or the gap may be too
//! short to show in it.
//!
//! The caller must:
//! - hand in the beats of all vCPUs in the order of their times: a vCPU whose beats wait unread looks as if it were
//!   off;
//! - pass each beat through [`StealReads`], which says when to read steal; a reading older than a second is no base for
//!   growth;
//! - read the beat thread's run delay, if the system reports it, at each beat later than [`grain_ns`] and at one
//!   ordinary beat in [`READ_EVERY`].
//!
//! Source: the vCPU monitor of Jia et al., "Effectively Mitigating I/O Inactivity in vCPU Scheduling", USENIX ATC 2018:
//! a slice runs from the first beat after one gap to the last beat before the next. Their constants are estimates here.

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
pub use slice::{Odds, Slices};
pub use steal_reads::{READ_EVERY, StealReads};
pub(crate) use vcpu::LEAP_NS;
pub use vcpu::Vcpu;
pub use work::Work;

/// What a beat thread saw as it woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The vCPU's number.
    pub vcpu: usize,
    /// When the beat was due, ns.
    pub due_ns: u64,
    /// When it came, ns.
    pub at_ns: u64,
    /// The current time between two beats, ns.
    pub period_ns: u64,
    /// This vCPU's steal since boot, ns, if it was read at this beat; [`StealReads`] says when to.
    pub steal_ns: Option<u64>,
    /// How long the beat thread has waited on the runqueue since it started, ns, if it was read at this beat.
    pub run_delay_ns: Option<u64>,
}

impl Beat {
    /// How late the beat came, ns.
    pub fn lateness_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.due_ns)
    }
}

/// What made a beat late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host had descheduled the vCPU: steal grew by at least half the lateness.
    Host,
    /// The guest kept the beat thread waiting: its run delay grew by at least half the lateness, and steal did not.
    Guest,
    /// Neither steal nor run delay explains it.
    Unknown,
}

/// A stretch without beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The vCPU.
    pub vcpu: usize,
    /// Time of the last beat before the gap, ns. The vCPU went off after it and before the next beat was due.
    pub last_beat_ns: u64,
    /// Time of the first beat after the gap, ns: the vCPU is back.
    pub back_ns: u64,
    /// How late that beat was, ns. The time off is longer than this by less than a period.
    pub late_ns: u64,
    /// The most lateness of this vCPU's ordinary beats, ns. The vCPU was back about so long before its first beat: that one is later
    /// than most, since ticks that were due meanwhile come before it.
    pub ordinary_late_ns: u64,
    /// The cause, as far as the first beat shows it.
    pub verdict: Verdict,
}

/// What a beat shows about its vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The beat came on time.
    OnTime,
    /// The first beat after a gap.
    Back(Gap),
    /// The time went backwards or leapt (a suspended machine, a broken clock). The open slice and gap are dropped.
    ClockFault,
}

/// How many gaps got each verdict, and how many beats were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Gaps caused by the host.
    pub host: u64,
    /// Gaps caused by the guest.
    pub guest: u64,
    /// Gaps without an explanation.
    pub unknown: u64,
    /// Beats with an impossible time.
    pub clock_faults: u64,
}
