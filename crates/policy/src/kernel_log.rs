//! What a kernel's log says about stalls: RCU, lockups, the clock, suspensions, memory.
//!
//! The log is text from anywhere, so nothing of it is trusted: lines are cut, events are limited, and numbers that do not fit
//! are left out. Source: the kernel's Documentation/RCU/stallwarn.rst, admin-guide/lockup-watchdogs.rst, and the texts that
//! kernels 3.10 to 6.18 print.

mod line;
#[cfg(test)]
mod tests;
mod time;

use std::collections::VecDeque;

pub use time::At;

/// The most events of a log; a kernel that stalls for hours repeats itself.
pub const MOST_EVENTS: usize = 10_000;
/// The most bytes of a line that are looked at.
const LINE_BYTES: usize = 1_000;

/// Something in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, if the line has a time.
    pub at: Option<At>,
    /// What it says.
    pub kind: Kind,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The kernel begins: `Linux version`.
    Boot,
    /// RCU waits too long: `detected stalls`, `self-detected stall`.
    Stall {
        /// `rcu_sched`, `rcu_preempt`: each has grace periods of its own.
        flavour: String,
        /// Of an expedited grace period.
        is_expedited: bool,
        /// The CPU that reports it is one that RCU waits for. It took the tick in which it reports.
        is_own: bool,
    },
    /// A CPU for which RCU waits.
    Holdout {
        /// The CPU.
        cpu: u64,
        /// Its timer ticks in this grace period; a CPU that runs has one each jiffy. Not told of a CPU that has not even noticed
        /// the grace period (`GPs behind`), nor if it is expedited.
        ticks: Option<u64>,
        /// It runs no task.
        is_idle: Option<bool>,
        /// Whether it took the interrupt that RCU asked it to take halfway to the stall.
        took_interrupt: Option<bool>,
        /// How often RCU's kthread looked at it meanwhile (`fqs=`).
        scans: Option<u64>,
    },
    /// Tasks that RCU waits for: they were preempted inside a read section. Their PIDs, which may be missing.
    Readers {
        /// PIDs.
        pids: Vec<u64>,
    },
    /// The age of the grace period: `t=5252 jiffies g=2369`.
    Age {
        /// The age.
        jiffies: u64,
        /// Its number.
        grace_period: Option<i64>,
    },
    /// RCU waits for no CPU any more, and its kthread has not been active for so long: `All QSes seen`.
    AllSeen {
        /// Since its last activity.
        jiffies: u64,
    },
    /// RCU's kthread did not run: `kthread starved for N jiffies`.
    Starved {
        /// For so long.
        jiffies: u64,
        /// It slept, instead of waiting for a CPU.
        is_asleep: Option<bool>,
    },
    /// RCU's kthread sleeps though its timer is overdue: `kthread timer wakeup didn't happen`.
    LateTimer {
        /// For so long.
        jiffies: u64,
    },
    /// A CPU was asked for its backtrace and idles: `NMI backtrace for cpu 0 skipped: idling`.
    Idling {
        /// The CPU.
        cpu: u64,
    },
    /// `soft lockup - CPU#1 stuck for 22s`.
    SoftLockup {
        /// Seconds.
        seconds: u64,
    },
    /// `task X blocked for more than 120 seconds`.
    Blocked {
        /// Its name and PID.
        task: String,
        /// Seconds.
        seconds: u64,
    },
    /// A timer's interrupt took long: `hrtimer: interrupt took N ns`.
    SlowTimer {
        /// Nanoseconds.
        ns: u64,
    },
    /// The clock is unreliable: a clocksource is unstable, or its watchdog was late.
    Clock,
    /// The machine was suspended or stood still.
    Suspended,
    /// The kernel is out of memory, or an allocation failed.
    Memory,
    /// `RT throttling activated`: real-time tasks took all CPU time.
    RealTime,
    /// The machine is a VM: `Hypervisor detected`, `paravirtualized kernel`, or by its hardware's name.
    Virtual,
}

/// Whether any line looks like a kernel's: it has a time.
pub fn is_one(log: &str) -> bool {
    log.lines().any(|text| time::split(line::cut(text, LINE_BYTES)).0.is_some())
}

/// The latest events of a log, in its order.
pub fn events(log: &str) -> Vec<Event> {
    let mut kept = VecDeque::new();
    for text in log.lines() {
        let text = line::cut(text, LINE_BYTES);
        let kinds = line::kinds(text);
        if kinds.is_empty() {
            continue;
        }
        let at = time::split(text).0;
        for kind in kinds {
            kept.push_back(Event { at, kind });
            if kept.len() > MOST_EVENTS {
                kept.pop_front();
            }
        }
    }
    kept.into()
}
