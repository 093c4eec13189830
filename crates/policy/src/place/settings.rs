//! What the placer is told before it starts.

use std::fmt;

use crate::io::IoSettings;
use crate::signal::Known;

/// How I/O tasks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Not at all: the guest's scheduler alone.
    None,
    /// Away from a vCPU when its beat is late. The negative control: it gave back -0.59 of what was lost, since the I/O in
    /// flight completes only when that vCPU is back, and then the task sits where it is about to get dark.
    React,
    /// All to the vCPU that comes back, at its first beat.
    Pull,
    /// Away from a vCPU ahead of its predicted end, whatever the prediction was worth lately.
    Predict,
    /// Ahead of the end, as early as ends are uncertain, and pulled by the vCPU that comes back; spread, by weight and
    /// remaining slice; and where no vCPU has time, to the one that is back first ([`Why::Park`]).
    Combined,
    /// As [`Policy::Combined`], but told when vCPUs go off and come back ([`Signal::NextOff`](crate::signal::Signal::NextOff)), and
    /// only to where a vCPU is on, as the oracle that was measured on real guests.
    Oracle,
    /// As [`Policy::Oracle`], and where none has time its tasks wait on a vCPU that is off and comes back earlier
    /// ([`Why::Park`]): the bound of what can be had.
    OracleParks,
}

impl Policy {
    /// All of them, from doing nothing to knowing everything.
    pub const ALL: [Policy; 7] = [
        Policy::None,
        Policy::React,
        Policy::Pull,
        Policy::Predict,
        Policy::Combined,
        Policy::Oracle,
        Policy::OracleParks,
    ];

    /// Its name on command lines and in records.
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

    /// Whether it listens to [`Signal::NextOff`](crate::signal::Signal::NextOff).
    pub fn is_oracle(self) -> bool {
        matches!(self, Policy::Oracle | Policy::OracleParks)
    }

    /// Whether it lets tasks wait on vCPUs that are off.
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
    /// vCPUs, numbered from 0 as in masks; at most [`MAX_CPUS`](crate::cpus::MAX_CPUS).
    pub vcpus: usize,
    /// Tasks it can hold, numbered from 0 by the caller.
    pub tasks: usize,
    /// How to place.
    pub policy: Policy,
    /// What an I/O task is.
    pub io: IoSettings,
    /// Something is wrong where some vCPU is off for this share of the last second, in thousandths, and until all are off for
    /// less than half of it; else nothing is moved, and what was moved is released.
    pub act_off_permille: u64,
    /// Most moves of one task in a second, on average; [`Settings::BURST`] more at once. A task whose moves cost much is moved
    /// less often: they take a twentieth of its time at most.
    pub moves_per_s: u64,
    /// What a move costs besides the working set, ns.
    pub move_cost_ns: u64,
    /// What it costs to fetch a working set into another vCPU's caches, ns for each KiB.
    pub refill_ns_per_kib: u64,
}

impl Settings {
    /// Moves of one task that may follow each other at once.
    pub const BURST: u64 = 8;

    /// [`Policy::Combined`] for so many vCPUs and tasks. Something is wrong from a hundredth of the time on: a late beat of 2
    /// ms a second, as emulation has undisturbed, is none. A task moves 1000 times a second at most, though each slice lets it
    /// come and go once only, which is less. 20 us a move and 100 ns a KiB (10 GiB/s) are estimates, of a stopper and a
    /// wake-up, and of memory.
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

    /// The same with another policy.
    pub fn with(self, policy: Policy) -> Settings {
        Settings { policy, ..self }
    }
}

/// Where a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this vCPU alone; it is in the task's mask.
    Vcpu(usize),
    /// Back to the mask of its user.
    Home,
}

/// Why a task goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A vCPU came back, and there is more for the task there than where it is.
    Pull,
    /// Its vCPU may be about to be descheduled, another is safer, and I/O in flight has time to drain.
    Ahead,
    /// Its vCPU may be about to be descheduled and none has time, so it waits on one that is off and expected back earlier.
    Park,
    /// Its vCPU is off, and it waits there with no I/O in flight that would have to complete there.
    Rescue,
    /// Its vCPU is late ([`Policy::React`] only).
    React,
    /// Others crowd its vCPU.
    Spread,
    /// Nothing is wrong any more, it does no I/O any more, or the placer was told to stop.
    Release,
}

impl Why {
    /// All reasons.
    pub const ALL: [Why; 7] =
        [Why::Pull, Why::Ahead, Why::Park, Why::Rescue, Why::React, Why::Spread, Why::Release];

    /// Its name in records and metrics.
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
    /// Where it is for all that is known.
    pub from: Option<usize>,
    /// Where it goes.
    pub to: Target,
    /// Why.
    pub why: Why,
}

/// The text form of a decision: `move TASK FROM TO WHY`, where `home` is the mask of the task's user.
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
