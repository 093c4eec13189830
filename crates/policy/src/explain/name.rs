//! Names of causes in output for machines: JSON, metrics.

use super::Cause;

impl Cause {
    /// The names of all causes, in the order of the rules.
    pub const NAMES: [&str; 10] = [
        "pause",
        "clock-step",
        "own-quota",
        "quota",
        "busy-neighbour",
        "contention",
        "own-cpu",
        "own-memory",
        "starved-kthread",
        "long-reader",
    ];

    /// Its name; one of [`NAMES`](Cause::NAMES).
    pub fn name(&self) -> &'static str {
        Cause::NAMES[match self {
            Cause::Pause { .. } => 0,
            Cause::ClockStep { .. } => 1,
            Cause::OwnQuota { .. } => 2,
            Cause::Quota { .. } => 3,
            Cause::BusyNeighbour { .. } => 4,
            Cause::Contention { .. } => 5,
            Cause::OwnCpu => 6,
            Cause::OwnMemory => 7,
            Cause::StarvedKthread => 8,
            Cause::LongReader => 9,
        }]
    }
}
