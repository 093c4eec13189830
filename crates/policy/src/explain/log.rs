//! What made RCU stall, judged from a kernel's log alone. Less sure than a look at the machine: a log has no cause, only what
//! the kernel saw.
//!
//! Each stall goes to the first of these that holds:
//!
//! | cause | rule |
//! |---|---|
//! | [`LogCause::Pause`] | the machine was suspended or restored within the minute before |
//! | [`LogCause::Clock`] | the kernel distrusted its clock within ten seconds before or after, or a timer of RCU's was overdue |
//! | [`LogCause::RealTime`] | real-time tasks were throttled within the minute before |
//! | [`LogCause::NoTicks`] | a CPU for which RCU waited took hardly any timer ticks meanwhile |
//! | [`LogCause::StarvedKthread`] | RCU's kthread did not run |
//! | [`LogCause::LongReader`] | that CPU took its ticks, and passed no quiescent state |
//! | [`LogCause::Unknown`] | anything else |
//!
//! Source: the kernel's Documentation/RCU/stallwarn.rst, on what the numbers of a stall mean.

use super::Confidence;
use crate::kernel_log::{Event, Kind};

/// A suspension, or real-time throttling, explains stalls for so long after it, s.
const AFTER_S: f64 = 60.0;
/// A clock that is distrusted explains stalls so long before and after, s.
const AROUND_S: f64 = 10.0;
/// A stall's details follow within this time, s.
const DETAILS_S: f64 = 5.0;
/// A CPU that took less than this part of the ticks did not run, in per cent.
const FEW_TICKS_PERCENT: u64 = 10;

/// What made RCU stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogCause {
    /// The machine stood still, and the kernel counted the time.
    Pause,
    /// The clock leapt.
    Clock,
    /// Real-time tasks left no CPU time.
    RealTime,
    /// A CPU did not run: its vCPU was descheduled, or it ran with interrupts off.
    NoTicks,
    /// RCU's kthread did not run.
    StarvedKthread,
    /// A CPU ran in the kernel for long.
    LongReader,
    /// The log does not tell.
    Unknown,
}

/// A cause, and how many stalls it explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFinding {
    /// The cause.
    pub cause: LogCause,
    /// Stalls.
    pub stalls: usize,
    /// How sure that is.
    pub confidence: Confidence,
}

/// The verdict on a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogVerdict {
    /// Causes of RCU's stalls, the most frequent one first.
    pub findings: Vec<LogFinding>,
    /// Whether the log is that of a virtual machine.
    pub is_virtual: bool,
    /// Soft lockups.
    pub lockups: usize,
    /// Times at which the kernel was out of memory.
    pub out_of_memory: usize,
}

/// Judges the events of a log.
pub fn judge(events: &[Event]) -> LogVerdict {
    let is_virtual = events.iter().any(|event| event.kind == Kind::Virtual);
    let count = |is_it: fn(&Kind) -> bool| events.iter().filter(|event| is_it(&event.kind)).count();
    let starts = events.iter().enumerate().filter(|(_, event)| event.kind == Kind::Stall);
    let causes: Vec<LogCause> = starts.map(|(index, _)| cause(events, index)).collect();
    let mut kinds = causes.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let mut findings: Vec<LogFinding> = kinds
        .into_iter()
        .map(|cause| LogFinding {
            cause,
            stalls: causes.iter().filter(|other| **other == cause).count(),
            confidence: confidence(cause, is_virtual),
        })
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.stalls));
    LogVerdict {
        findings,
        is_virtual,
        lockups: count(|kind| matches!(kind, Kind::SoftLockup { .. })),
        out_of_memory: count(|kind| *kind == Kind::Memory),
    }
}

fn confidence(cause: LogCause, is_virtual: bool) -> Confidence {
    match cause {
        LogCause::Pause | LogCause::Clock | LogCause::RealTime => Confidence::Likely,
        LogCause::NoTicks if is_virtual => Confidence::Likely,
        _ => Confidence::Possible,
    }
}

/// The cause of the stall that begins at that event.
fn cause(events: &[Event], index: usize) -> LogCause {
    let stall = &events[index];
    // Without times, all that stands in the log before the next stall belongs to this one.
    let apart_s = |event: &Event| Some(event.at_s? - stall.at_s?);
    let is_near = |event: &Event, from_s: f64, to_s: f64| {
        apart_s(event).is_some_and(|apart_s| (from_s..=to_s).contains(&apart_s))
    };
    let has = |kind: &Kind, from_s: f64, to_s: f64| {
        events.iter().any(|event| event.kind == *kind && is_near(event, from_s, to_s))
    };
    if has(&Kind::Suspended, -AFTER_S, DETAILS_S) {
        return LogCause::Pause;
    }
    if has(&Kind::Clock, -AROUND_S, AROUND_S) {
        return LogCause::Clock;
    }
    if has(&Kind::RealTime, -AFTER_S, DETAILS_S) {
        return LogCause::RealTime;
    }
    let after = events[index + 1..].iter().take_while(|event| event.kind != Kind::Stall);
    let details: Vec<&Kind> = after
        .take_while(|event| apart_s(event).is_none_or(|apart_s| apart_s <= DETAILS_S))
        .map(|event| &event.kind)
        .collect();
    of_details(&details)
}

fn of_details(details: &[&Kind]) -> LogCause {
    let age = details.iter().find_map(|kind| match kind {
        Kind::Age { jiffies } => Some(*jiffies),
        _ => None,
    });
    let ticks = details.iter().filter_map(|kind| match kind {
        Kind::Holdout { ticks, .. } => Some(*ticks),
        _ => None,
    });
    let fewest = ticks.min();
    let is_off = |ticks: u64| match age {
        Some(jiffies) => ticks.saturating_mul(100) < jiffies.saturating_mul(FEW_TICKS_PERCENT),
        None => ticks == 0,
    };
    if details.contains(&&Kind::LateTimer) {
        return LogCause::Clock;
    }
    let is_starved = details.iter().any(|kind| matches!(kind, Kind::Starved { .. }));
    match fewest {
        Some(ticks) if is_off(ticks) => LogCause::NoTicks,
        _ if is_starved => LogCause::StarvedKthread,
        Some(_) => LogCause::LongReader,
        None => LogCause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_log;

    fn causes(log: &str) -> Vec<(LogCause, usize)> {
        let verdict = judge(&kernel_log::events(log));
        verdict.findings.iter().map(|finding| (finding.cause, finding.stalls)).collect()
    }

    const OFF: &str = "[200.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[200.0] rcu: \t1-...!: (0 ticks this GP) idle=5e6/0/0x0 softirq=1/1 fqs=0
[200.0] \t(detected by 0, t=5263 jiffies, g=2373, q=3 ncpus=2)
";
    const BUSY: &str = "[300.0] rcu: INFO: rcu_sched self-detected stall on CPU
[300.0] rcu: \t1-....: (5249 ticks this GP) idle=a1b/1/0x4000000000000002 softirq=1204/1204 fqs=2617
[300.0] \t(t=5252 jiffies g=2369 q=12 ncpus=2)
";

    #[test]
    fn a_cpu_without_ticks_did_not_run_and_one_with_ticks_did() {
        assert_eq!(causes(OFF), [(LogCause::NoTicks, 1)]);
        assert_eq!(causes(BUSY), [(LogCause::LongReader, 1)]);
        assert_eq!(causes(&[OFF, BUSY, BUSY].concat()), [(LogCause::LongReader, 2), (LogCause::NoTicks, 1)]);
        // Without times as well.
        assert_eq!(causes(&OFF.replace("[200.0] ", "")), [(LogCause::NoTicks, 1)]);
    }

    #[test]
    fn what_stands_near_explains_more() {
        let near = |line: &str| causes(&format!("{line}\n{OFF}"));
        assert_eq!(near("[170.0] PM: suspend exit"), [(LogCause::Pause, 1)]);
        assert_eq!(near("[100.0] PM: suspend exit"), [(LogCause::NoTicks, 1)], "long ago");
        assert_eq!(
            near("[195.0] clocksource: Long readout interval, skipping watchdog check"),
            [(LogCause::Clock, 1)]
        );
        let asleep =
            "[200.0] rcu: rcu_sched kthread timer wakeup didn't happen for 5202 jiffies! ->state=0x402";
        assert_eq!(causes(&format!("{OFF}{asleep}\n")), [(LogCause::Clock, 1)]);
        assert_eq!(near("[195.0] sched: RT throttling activated"), [(LogCause::RealTime, 1)]);
    }

    #[test]
    fn a_starved_kthread_and_a_bare_stall_are_told_apart() {
        let starved = "[1.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n[1.0] rcu: rcu_sched kthread starved for 9 jiffies! ->state=0x0 ->cpu=0\n";
        assert_eq!(causes(starved), [(LogCause::StarvedKthread, 1)]);
        assert_eq!(causes("[1.0] rcu: INFO: rcu_sched self-detected stall on CPU"), [(LogCause::Unknown, 1)]);
        assert_eq!(judge(&[]), LogVerdict::default());
    }

    #[test]
    fn a_descheduled_vcpu_is_likelier_in_a_vm() {
        let of = |log: &str| judge(&kernel_log::events(log)).findings[0].confidence;
        assert_eq!(of(OFF), Confidence::Possible);
        assert_eq!(of(&format!("[0.0] Hypervisor detected: KVM\n{OFF}")), Confidence::Likely);
    }
}
