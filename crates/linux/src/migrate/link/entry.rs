//! The entries that the decider sends to the main loop: signals (for the record) and decisions with their reasons.

use reprieve_policy::place::{Move, Target, Why};
use reprieve_policy::signal::Signal;

/// A decision, with what was known when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The time, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The move.
    pub made: Move,
    /// Median of what remained of the slice of the vCPU that the task leaves, ns; `None` if unknown or the vCPU is off.
    pub left_here_ns: Option<u64>,
    /// Median of what remained of the slice of the vCPU it goes to, ns; `None` if unknown.
    pub left_there_ns: Option<u64>,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text at each says what the fields are")]
pub enum Entry {
    /// A signal that the policy took in.
    Signal(Signal),
    /// A decision of the policy on the signal before.
    Decision(Decision),
    /// This many entries did not fit into the ring here.
    Lost(u64),
    /// Unmanaged task `tid` of process `pid` does I/O.
    Unmanaged { pid: i32, tid: i32 },
}

impl Decision {
    /// The reason, as a sentence.
    pub fn reason(&self) -> String {
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let here = self
            .left_here_ns
            .map_or("its vCPU is off or unknown".into(), |ns| format!("its slice has {} left", ms(ns)));
        let there =
            self.left_there_ns.map_or("a slice of unknown length".into(), |ns| format!("{} left", ms(ns)));
        match self.made.why {
            Why::Ahead => format!("ahead of the end: {here}; there {there}"),
            Why::Park => format!("{here}, and no other vCPU has time; that one is back first"),
            Why::Pull => format!("that vCPU is back with {there}; {here}"),
            Why::Rescue => format!("its vCPU is off and no I/O is in flight; there {there}"),
            Why::React => "its vCPU's beat is late".into(),
            Why::Spread => "its vCPU has more I/O than that one".into(),
            Why::Release => "vCPUs stay on now, or the task does no more I/O".into(),
        }
    }

    /// The target, in words.
    pub fn target(&self) -> String {
        match self.made.to {
            Target::Vcpu(vcpu) => format!("vCPU {vcpu}"),
            Target::Home => "its user's mask".into(),
        }
    }
}
