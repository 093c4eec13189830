//! What made RCU stall, judged from a kernel's log alone. Less sure than a look at the machine: a log has no cause, only what
//! the kernel saw.
//!
//! The log is cut at each boot, its stalls are gathered ([`Stall`]), and each goes to the first of these that holds:
//!
//! | cause | rule |
//! |---|---|
//! | [`LogCause::RealTime`] | real-time tasks were throttled within the minute before |
//! | [`LogCause::ShortLimit`] | the kernel calls it a stall after less than 100 jiffies |
//! | [`LogCause::LongReader`] | a CPU for which RCU waited took at least half of its timer ticks meanwhile |
//! | [`LogCause::Pause`] | the machine was suspended or restored within the minute before |
//! | [`LogCause::Clock`] | the kernel distrusted its clock within ten seconds before or after, and no task kept RCU's kthread from running |
//! | [`LogCause::LateTimer`] | RCU's kthread slept most of the time though its timer was due, or only idle CPUs were waited for, at which nobody looked |
//! | [`LogCause::NoTicks`] | a CPU that was not idle took hardly any timer ticks, or did not notice the grace period |
//! | [`LogCause::StarvedKthread`] | RCU's kthread was not active most of the time |
//! | [`LogCause::Reader`] | RCU waited for a task that was preempted inside a read section |
//! | [`LogCause::LongReader`] | a CPU that reported itself ran no RCU softirq, or took some of its ticks |
//! | [`LogCause::Unknown`] | anything else |
//!
//! Source: the kernel's Documentation/RCU/stallwarn.rst, on what the numbers of a stall mean.

mod stall;
#[cfg(test)]
mod tests;

use super::Confidence;
use crate::kernel_log::{At, Event, Kind};
pub use stall::{Holdout, Stall};

/// A suspension, or real-time throttling, explains stalls for so long after it, s.
const AFTER_S: f64 = 60.0;
/// A clock that is distrusted explains stalls so long before and after, s.
const AROUND_S: f64 = 10.0;
/// A time since boot that goes back by more than this is another boot's, s. Lines of two CPUs can change places.
const BACK_S: f64 = 10.0;

/// What made RCU stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogCause {
    /// The machine stood still, and the kernel counted the time.
    Pause,
    /// The kernel distrusts its clock.
    Clock,
    /// Time leapt, or timers did not fire: RCU's kthread was not woken.
    LateTimer,
    /// Real-time tasks left no CPU time.
    RealTime,
    /// A CPU did not run: its vCPU was descheduled, or it ran with interrupts off.
    NoTicks,
    /// RCU's kthread did not run.
    StarvedKthread,
    /// A CPU ran in the kernel for long.
    LongReader,
    /// A task was preempted inside a read section, or left one open.
    Reader,
    /// Nothing stalled: the kernel's limit is very short.
    ShortLimit,
    /// The log does not tell.
    Unknown,
}

/// A cause, and the stalls it explains.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFinding {
    /// The cause.
    pub cause: LogCause,
    /// Stalls: grace periods, however often the kernel reported each.
    pub stalls: usize,
    /// How sure that is.
    pub confidence: Confidence,
    /// The longest of them.
    pub longest: Stall,
    /// The kernel distrusted its clock near one of them.
    pub is_near_clock: bool,
}

/// The verdict on a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogVerdict {
    /// Causes of RCU's stalls, the most frequent one first.
    pub findings: Vec<LogFinding>,
    /// The log is that of a virtual machine. If not, it may still be.
    pub is_virtual: bool,
    /// Other boots in the log that had stalls; only the last one with stalls is judged.
    pub other_boots: usize,
    /// Soft lockups, and the seconds of the longest.
    pub lockups: Option<(usize, u64)>,
    /// Tasks that were blocked for long: reports, and the task and seconds of the first.
    pub blocked: Option<(usize, String, u64)>,
    /// The longest interrupt of a timer, ns.
    pub slow_timer_ns: Option<u64>,
    /// Times at which the kernel was out of memory.
    pub out_of_memory: usize,
}

/// Judges the events of a log.
pub fn judge(events: &[Event]) -> LogVerdict {
    let has_stalls = |boot: &[Event]| boot.iter().any(|event| matches!(event.kind, Kind::Stall { .. }));
    let boots = boots(events);
    let judged =
        boots.iter().copied().rfind(|boot| has_stalls(boot)).or(boots.last().copied()).unwrap_or(&[]);
    let is_virtual = events.iter().any(|event| event.kind == Kind::Virtual);
    let nearby = Nearby::of(judged);
    let mut findings: Vec<LogFinding> = vec![];
    for longest in stall::gather(judged) {
        let (cause, is_near_clock) = (cause(&longest, &nearby), nearby.has_clock(&longest));
        match findings.iter_mut().find(|finding| finding.cause == cause) {
            Some(finding) => {
                finding.stalls += 1;
                finding.is_near_clock |= is_near_clock;
                if longest.jiffies > finding.longest.jiffies {
                    finding.longest = longest;
                }
            }
            None => {
                let confidence = confidence(cause, is_virtual);
                findings.push(LogFinding { cause, stalls: 1, confidence, longest, is_near_clock });
            }
        }
    }
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.stalls), finding.cause));
    LogVerdict {
        findings,
        is_virtual,
        other_boots: boots.iter().filter(|boot| has_stalls(boot)).count().saturating_sub(1),
        ..others(judged)
    }
}

/// What else the log complains of.
fn others(events: &[Event]) -> LogVerdict {
    let mut others = LogVerdict::default();
    for event in events {
        match &event.kind {
            Kind::SoftLockup { seconds } => {
                let (count, longest) = others.lockups.unwrap_or((0, 0));
                others.lockups = Some((count + 1, longest.max(*seconds)));
            }
            Kind::Blocked { task, seconds } => {
                let (count, ..) = others.blocked.get_or_insert_with(|| (0, task.clone(), *seconds));
                *count += 1;
            }
            Kind::SlowTimer { ns } => others.slow_timer_ns = others.slow_timer_ns.max(Some(*ns)),
            Kind::Memory => others.out_of_memory += 1,
            _ => {}
        }
    }
    others
}

/// The log of each boot.
fn boots(events: &[Event]) -> Vec<&[Event]> {
    let mut last_s: Option<f64> = None;
    let mut cuts = vec![0];
    for (index, event) in events.iter().enumerate() {
        let at_s = match event.at {
            Some(At::Boot(at_s)) => Some(at_s),
            _ => None,
        };
        let is_back = matches!((last_s, at_s), (Some(last_s), Some(at_s)) if at_s + BACK_S < last_s);
        if is_back || event.kind == Kind::Boot {
            cuts.push(index);
            last_s = at_s;
        }
        last_s = match (last_s, at_s) {
            (Some(last_s), Some(at_s)) => Some(last_s.max(at_s)),
            (last_s, at_s) => last_s.or(at_s),
        };
    }
    cuts.push(events.len());
    cuts.windows(2).map(|ends| &events[ends[0]..ends[1]]).collect()
}

/// When something was that explains stalls near it.
struct Nearby {
    suspended: Vec<At>,
    clock: Vec<At>,
    real_time: Vec<At>,
}

impl Nearby {
    fn of(events: &[Event]) -> Nearby {
        let times = |kind: Kind| {
            events.iter().filter(|event| event.kind == kind).filter_map(|event| event.at).collect()
        };
        Nearby {
            suspended: times(Kind::Suspended),
            clock: times(Kind::Clock),
            real_time: times(Kind::RealTime),
        }
    }

    /// Whether one of these times is so far before the stall, or after it.
    fn has(times: &[At], stall: &Stall, before_s: f64, after_s: f64) -> bool {
        let is_near = |at: &At| {
            let apart_s = stall.at.and_then(|stall_at| at.since(stall_at));
            apart_s.is_some_and(|apart_s| (-before_s..=after_s).contains(&apart_s))
        };
        times.iter().any(is_near)
    }

    fn has_clock(&self, stall: &Stall) -> bool {
        Nearby::has(&self.clock, stall, AROUND_S, AROUND_S)
    }
}

fn confidence(cause: LogCause, is_virtual: bool) -> Confidence {
    match cause {
        LogCause::Pause | LogCause::Clock | LogCause::RealTime | LogCause::ShortLimit => Confidence::Likely,
        LogCause::NoTicks | LogCause::LateTimer if is_virtual => Confidence::Likely,
        _ => Confidence::Possible,
    }
}

fn cause(stall: &Stall, nearby: &Nearby) -> LogCause {
    let has = |times: &[At]| Nearby::has(times, stall, AFTER_S, stall::DETAILS_S);
    let rules = [
        (LogCause::RealTime, has(&nearby.real_time)),
        (LogCause::ShortLimit, stall.has_short_limit()),
        (LogCause::LongReader, stall.has_busy_cpu()),
        (LogCause::Pause, has(&nearby.suspended)),
        (LogCause::Clock, nearby.has_clock(stall) && !stall.is_kthread_kept()),
        (LogCause::LateTimer, stall.has_late_timer()),
        (LogCause::NoTicks, stall.has_absent_cpu()),
        (LogCause::StarvedKthread, stall.is_kthread_inactive()),
        (LogCause::Reader, stall.has_reader),
        (LogCause::LongReader, stall.has_part_time_cpu()),
    ];
    rules.into_iter().find(|(_, holds)| *holds).map_or(LogCause::Unknown, |(cause, _)| cause)
}
