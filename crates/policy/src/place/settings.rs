//! The placer's vocabulary: its policies and settings, and the moves it decides on.

use std::fmt;

use crate::io::IoSettings;
use crate::signal::Known;

/// How I/O tasks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Leave all placement to the guest's scheduler.
    None,
    /// Leave a vCPU when its beat is late. This is the negative control: on real guests it lost a further 59 % of the
    /// throughput that preemption had cost. The I/O in flight completes only when the vCPU is back, and by then the
    /// task waits on another that is about to go off.
    React,
    /// Move all I/O tasks to the vCPU that comes back, at its first beat.
    Pull,
    /// Leave a vCPU before its predicted end, however reliable predictions have been.
    Predict,
    /// Leave before the end, the earlier the less certain the end is; let a vCPU that comes back pull tasks; spread
    /// tasks by weight and remaining slice; and if no vCPU has time, wait on the one that is back first
    /// ([`Why::Park`]).
    Combined,
    /// As [`Policy::Combined`], but [`Signal::NextOff`](crate::signal::Signal::NextOff) says when vCPUs go off and come
    /// back, and tasks never park. This is the oracle that was measured on real guests.
    Oracle,
    /// As [`Policy::Oracle`], but tasks park ([`Why::Park`]): the upper bound of what placement can recover.
    OracleParks,
}

impl Policy {
    /// All policies, from doing nothing to knowing everything.
    pub const ALL: [Policy; 7] = [
        Policy::None,
        Policy::React,
        Policy::Pull,
        Policy::Predict,
        Policy::Combined,
        Policy::Oracle,
        Policy::OracleParks,
    ];

    /// The policy's name on command lines and in records.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::React => "react",
            Policy::Pull => "pull",
            Policy::Predict => "predict",
            Policy::Combined => "combined",
            Policy::Oracle => "oracle",
            Policy::OracleParks => "oracle-parks",
        }
    }

    /// Whether the policy uses [`Signal::NextOff`](crate::signal::Signal::NextOff).
    pub fn is_oracle(self) -> bool {
        matches!(self, Policy::Oracle | Policy::OracleParks)
    }

    /// Whether the policy lets tasks wait on vCPUs that are off.
    pub(super) fn parks(self) -> bool {
        matches!(self, Policy::Combined | Policy::OracleParks)
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Sizes and limits of a placer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of vCPUs, numbered from 0 as in masks; at most [`MAX_CPUS`](crate::cpus::MAX_CPUS).
    pub vcpus: usize,
    /// Number of tasks the placer can hold; the caller numbers them from 0.
    pub tasks: usize,
    /// The policy.
    pub policy: Policy,
    /// What counts as an I/O task.
    pub io: IoSettings,
    /// Something is wrong once a vCPU is off for this share of the last second, in thousandths, and until all vCPUs are
    /// off for less than half of it. Otherwise nothing is moved, and all moved tasks are released.
    pub act_off_permille: u64,
    /// Most moves of one task a second, on average; [`Settings::BURST`] may follow each other at once. Costly moves are
    /// limited further: they take at most a twentieth of the task's time.
    pub moves_per_s: u64,
    /// Cost of a move without the working set, ns.
    pub move_cost_ns: u64,
    /// Cost of fetching the working set into another vCPU's caches, ns per KiB.
    pub refill_ns_per_kib: u64,
}

impl Settings {
    /// Moves of one task that may follow each other at once.
    pub const BURST: u64 = 8;

    /// [`Policy::Combined`] for this many vCPUs and tasks. Something is wrong if a vCPU is off for a hundredth of the
    /// time: undisturbed emulation delays a beat by 2 ms about once a second, which is less. The limit of 1,000 moves a
    /// second is seldom reached, since a task comes to and leaves each slice only once. 20 us per move (a stopper and a
    /// wake-up) and 100 ns per KiB (memory of 10 GiB/s) are estimates.
    pub fn new(vcpus: usize, tasks: usize) -> Settings {
        Settings {
            vcpus,
            tasks,
            policy: Policy::Combined,
            io: IoSettings::default(),
            act_off_permille: 10,
            moves_per_s: 1_000,
            move_cost_ns: 20_000,
            refill_ns_per_kib: 100,
        }
    }

    /// The same settings with another policy.
    pub fn with(self, policy: Policy) -> Settings {
        Settings { policy, ..self }
    }
}

/// Where a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this vCPU alone, which is in the task's mask.
    Vcpu(usize),
    /// Back to its user's mask.
    Home,
}

/// Why a task is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A vCPU came back and offers the task more time than its own.
    Pull,
    /// Its vCPU may soon be descheduled, another is safer, and I/O in flight has time to drain.
    Ahead,
    /// Its vCPU may soon be descheduled and no other has time, so it waits on one that is off and expected back
    /// earlier.
    Park,
    /// Its vCPU is off, and it has no I/O in flight that must complete there.
    Rescue,
    /// Its vCPU's beat is late ([`Policy::React`] only).
    React,
    /// Too many I/O tasks share its vCPU.
    Spread,
    /// Nothing is wrong any more, the task is no longer an I/O task, or the placer was halted.
    Release,
}

impl Why {
    /// All reasons.
    pub const ALL: [Why; 7] =
        [Why::Pull, Why::Ahead, Why::Park, Why::Rescue, Why::React, Why::Spread, Why::Release];

    /// The reason's name in records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Why::Pull => "pull",
            Why::Ahead => "ahead",
            Why::Park => "park",
            Why::Rescue => "rescue",
            Why::React => "react",
            Why::Spread => "spread",
            Why::Release => "release",
        }
    }
}

/// A decision: give this task this affinity, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The caller's number of the task.
    pub task: usize,
    /// The vCPU it is on, if known.
    pub from: Option<usize>,
    /// The target.
    pub to: Target,
    /// The reason.
    pub why: Why,
}

/// The text form: `move TASK FROM TO WHY`, where `home` stands for the user's mask.
impl fmt::Display for Move {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "move {} {} ", self.task, Known(self.from))?;
        match self.to {
            Target::Vcpu(vcpu) => write!(out, "{vcpu}")?,
            Target::Home => out.write_str("home")?,
        }
        write!(out, " {}", self.why.name())
    }
}
