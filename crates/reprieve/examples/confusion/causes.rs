//! The causes that are injected, and which answer counts as right for each. Fixed before any run was looked at.

use serde::{Deserialize, Serialize};

/// What is done to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A CPU quota on single vCPUs.
    Quota,
    /// A CPU quota on the whole of QEMU, with its I/O threads.
    VmQuota,
    /// Busy processes on the pCPUs of all vCPUs.
    Contention,
    /// A busy process on the pCPU of one vCPU.
    Neighbour,
    /// QEMU is stopped once.
    Pause,
    /// The guest's clock of the day is stepped.
    ClockStep,
    /// More busy tasks in the guest than vCPUs.
    OwnCpu,
    /// A task of the guest uses more memory than it may.
    OwnMemory,
    /// A real-time task of the guest keeps RCU's kthread from running.
    StarvedKthread,
    /// A task of the guest stays in the kernel.
    LongReader,
    /// Nothing.
    Quiet,
    /// Not in the matrix: how exact period and quota are.
    FingerprintQuota,
    /// Not in the matrix: how exact a slice is.
    FingerprintSlice,
    /// Not in the matrix: grace periods as the guest and as the host see them.
    GracePeriods,
}

/// A row of the table.
pub struct Row {
    /// The cause.
    pub cause: Cause,
    /// Its name, as in the record and on the command line.
    pub name: &'static str,
    /// The answer that is right, as `explain --json` names it; none if it must not find anything.
    pub right: Option<&'static str>,
    /// Why that one.
    pub why: &'static str,
}

const fn row(cause: Cause, name: &'static str, right: &'static str, why: &'static str) -> Row {
    Row { cause, name, right: Some(right), why }
}

/// All causes of the matrix.
pub const MATRIX: [Row; 11] = [
    row(Cause::Quota, "quota", "quota", "whichever vCPUs it is on, and also if explain calls it ambiguous"),
    row(Cause::VmQuota, "vm-quota", "quota", "one quota for all threads is still a quota"),
    row(
        Cause::Contention,
        "contention",
        "contention",
        "every vCPU shares its pCPU; a single neighbour is wrong",
    ),
    row(Cause::Neighbour, "neighbour", "busy-neighbour", "only one vCPU has company; contention is wrong"),
    row(Cause::Pause, "pause", "pause", "everything stood still once"),
    row(Cause::ClockStep, "clock-step", "clock-step", "no time is lost, so nothing else may come first"),
    row(Cause::OwnCpu, "own-cpu", "own-cpu", "the host gives every vCPU in use a pCPU of its own"),
    row(
        Cause::OwnMemory,
        "own-memory",
        "own-memory",
        "the memory group is too small for what its task touches",
    ),
    row(
        Cause::StarvedKthread,
        "starved-kthread",
        "starved-kthread",
        "RCU's kthread may run on that vCPU alone",
    ),
    row(
        Cause::LongReader,
        "long-reader",
        "long-reader",
        "grace periods wait for that task, whatever else waits",
    ),
    Row { cause: Cause::Quiet, name: "quiet", right: None, why: "every finding is a false alarm" },
];

/// What is measured besides.
pub const FINGERPRINTS: [Row; 3] = [
    row(Cause::FingerprintQuota, "fingerprint-quota", "quota", "its period and its quota are compared"),
    row(Cause::FingerprintSlice, "fingerprint-slice", "busy-neighbour", "its slice is compared"),
    Row {
        cause: Cause::GracePeriods,
        name: "grace-periods",
        right: None,
        why: "grace periods are compared with those in the guest's memory; what is named does not count",
    },
];

/// What is done to a guest while its grace periods are compared: each in words, and whose first strength but one it is.
pub const GRACE_SETTINGS: [(&str, Cause); 4] = [
    ("busy, undisturbed", Cause::Quiet),
    ("under quotas", Cause::Quota),
    ("in contention", Cause::Contention),
    ("with a long reader", Cause::LongReader),
];

/// Strengths of each cause of the matrix.
pub const STRENGTHS: usize = 3;

impl Cause {
    /// Its row.
    pub fn row(self) -> &'static Row {
        let mut rows = MATRIX.iter().chain(&FINGERPRINTS);
        rows.find(|row| row.cause == self).expect("every cause has a row")
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The cause of this name.
    pub fn named(name: &str) -> Option<Cause> {
        MATRIX.iter().chain(&FINGERPRINTS).find(|row| row.name == name).map(|row| row.cause)
    }
}

/// How an answer compares with the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The first cause named is the right one; or nothing was found where nothing is.
    Right,
    /// The right cause is named, but not first.
    NotFirst,
    /// Nothing was found, though something was injected.
    Unknown,
    /// Only other causes are named.
    Wrong,
}

/// Judges an answer: the causes that explain named, the first one first.
pub fn judge(cause: Cause, named: &[String]) -> Judged {
    match (cause.row().right, named.first()) {
        (None, None) => Judged::Right,
        (None, Some(_)) => Judged::Wrong,
        (Some(_), None) => Judged::Unknown,
        (Some(right), Some(first)) if first == right => Judged::Right,
        (Some(right), Some(_)) if named.iter().any(|name| name == right) => Judged::NotFirst,
        _ => Judged::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_causes() {
        for row in MATRIX.iter().chain(&FINGERPRINTS) {
            assert_eq!(Cause::named(row.name), Some(row.cause));
            assert_eq!(serde_json::to_value(row.cause).unwrap(), row.name, "{}", row.why);
        }
    }

    #[test]
    fn only_the_first_answer_is_right() {
        let named = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(judge(Cause::Pause, &named(&["pause", "own-cpu"])), Judged::Right);
        assert_eq!(judge(Cause::Pause, &named(&["own-cpu", "pause"])), Judged::NotFirst);
        assert_eq!(judge(Cause::Pause, &named(&["own-cpu"])), Judged::Wrong);
        assert_eq!(judge(Cause::Pause, &[]), Judged::Unknown);
        assert_eq!(judge(Cause::Quiet, &[]), Judged::Right);
        assert_eq!(judge(Cause::Quiet, &named(&["quota"])), Judged::Wrong);
    }
}
