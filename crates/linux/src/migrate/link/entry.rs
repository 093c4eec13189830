//! What the decider tells the house thread: signals as they were taken (for the record), and decisions with their reason.

use reprieve_policy::place::{Move, Target, Why};
use reprieve_policy::signal::Signal;

/// A decision with what was known when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What.
    pub made: Move,
    /// What remained of the slice of the vCPU that the task left, ns, the median; `None` if not known, or off.
    pub left_here_ns: Option<u64>,
    /// What remained of the slice of the vCPU it goes to, ns, the median.
    pub left_there_ns: Option<u64>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A signal that the policy was given.
    Signal(Signal),
    /// A decision it made on the signal before.
    Decision(Decision),
    /// So many entries did not fit into the ring here.
    Lost(u64),
    /// A task that is not looked after does I/O.
    Unmanaged {
        /// Its process.
        pid: i32,
        /// Its number.
        tid: i32,
    },
}

impl Decision {
    /// Why, in words.
    pub fn reason(&self) -> String {
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let here = self
            .left_here_ns
            .map_or("its vCPU is off or unknown".into(), |ns| format!("its slice has {} left", ms(ns)));
        let there =
            self.left_there_ns.map_or("a slice of unknown length".into(), |ns| format!("{} left", ms(ns)));
        match self.made.why {
            Why::Ahead => format!("ahead of the end: {here}; there {there}"),
            Why::Park => format!("{here}, and no vCPU has time; that one is back first"),
            Why::Pull => format!("that vCPU is back with {there}; {here}"),
            Why::Rescue => format!("its vCPU is off and no I/O is in flight; there {there}"),
            Why::React => "its vCPU's beat is late".into(),
            Why::Spread => "its vCPU has more I/O tasks than that one".into(),
            Why::Release => "nothing is wrong any more, or it does no I/O".into(),
        }
    }

    /// Where it goes, for people.
    pub fn target(&self) -> String {
        match self.made.to {
            Target::Vcpu(vcpu) => format!("vCPU {vcpu}"),
            Target::Home => "its user's mask".into(),
        }
    }
}
