//! What a kernel's log says about stalls: RCU, lockups, the clock, suspensions, memory.
//!
//! The log is text from anywhere, so nothing of it is trusted: lines are cut, events are limited, and numbers that do not fit
//! are left out. Source: the kernel's Documentation/RCU/stallwarn.rst, admin-guide/lockup-watchdogs.rst, and the texts that
//! kernels 4.14 to 6.18 print.

use std::collections::VecDeque;

/// The most events of a log; a kernel that stalls for hours repeats itself.
pub const MOST_EVENTS: usize = 10_000;
/// The most bytes of a line that are looked at.
const LINE_BYTES: usize = 1_000;

/// Something in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds since boot, if the line has a time.
    pub at_s: Option<f64>,
    /// What it says.
    pub kind: Kind,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// RCU waits too long: `detected stalls`, `self-detected stall`.
    Stall,
    /// A CPU for which RCU waits, and how many timer ticks it took in this grace period.
    Holdout {
        /// The CPU.
        cpu: u64,
        /// Its ticks; a CPU that runs has one each jiffy.
        ticks: u64,
    },
    /// The age of the grace period in jiffies: `t=5252 jiffies`.
    Age {
        /// The age.
        jiffies: u64,
    },
    /// RCU's kthread did not run: `kthread starved for N jiffies`.
    Starved {
        /// For so long.
        jiffies: u64,
    },
    /// RCU's kthread sleeps though its timer is overdue: `kthread timer wakeup didn't happen`.
    LateTimer,
    /// `soft lockup - CPU#1 stuck for 22s`.
    SoftLockup {
        /// Seconds.
        seconds: u64,
    },
    /// `task X blocked for more than 120 seconds`.
    Blocked,
    /// The clock is unreliable: a clocksource is unstable, or its watchdog was late.
    Clock,
    /// The machine was suspended or stood still.
    Suspended,
    /// The kernel is out of memory, or an allocation failed.
    Memory,
    /// `RT throttling activated`: real-time tasks took all CPU time.
    RealTime,
    /// The machine is a VM: `Hypervisor detected`, `paravirtualized kernel`.
    Virtual,
}

/// Whether any line looks like a kernel's: it has a time since boot.
pub fn is_one(log: &str) -> bool {
    log.lines().any(|line| split_time(cut(line)).0.is_some())
}

/// The latest events of a log, in its order.
pub fn events(log: &str) -> Vec<Event> {
    let of_line = |line: &str| {
        let (at_s, text) = split_time(cut(line));
        kinds(text).into_iter().map(move |kind| Event { at_s, kind }).collect::<Vec<_>>()
    };
    let mut kept = VecDeque::new();
    for event in log.lines().flat_map(of_line) {
        kept.push_back(event);
        if kept.len() > MOST_EVENTS {
            kept.pop_front();
        }
    }
    kept.into()
}

fn cut(line: &str) -> &str {
    let end = (0..=LINE_BYTES.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    &line[..end.unwrap_or(0)]
}

/// The time in `[   12.345678]`, wherever that is in the line, and the text behind it.
fn split_time(line: &str) -> (Option<f64>, &str) {
    let found = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match found.and_then(|(time, text)| Some((time.trim().parse::<f64>().ok()?, text))) {
        Some((at_s, text)) if at_s.is_finite() && at_s >= 0.0 => (Some(at_s), text),
        _ => (None, line),
    }
}

/// What a line without its time says: mostly nothing, rarely two things.
fn kinds(text: &str) -> Vec<Kind> {
    let has = |words: &str| text.contains(words);
    let mut kinds = Vec::new();
    if has("rcu") && (has("detected stall") || has("detected expedited stall")) {
        kinds.push(Kind::Stall);
    }
    kinds.extend(holdout(text));
    kinds.extend(number_between(text, "t=", " jiffies").map(|jiffies| Kind::Age { jiffies }));
    if has("kthread starved for") {
        kinds.push(Kind::Starved { jiffies: number_between(text, "for ", " jiffies").unwrap_or(0) });
    }
    if has("soft lockup - CPU#") {
        kinds.push(Kind::SoftLockup { seconds: number_between(text, "stuck for ", "s!").unwrap_or(0) });
    }
    let is_of = |all: &[&str]| all.iter().any(|words| has(words));
    let simple = [
        (&["blocked for more than"][..], Kind::Blocked),
        (&["as unstable", "TSC unstable", "timekeeping watchdog", "Long readout interval"], Kind::Clock),
        (&["Timekeeping suspended for", "PM: suspend exit", "Restarting kernel threads"], Kind::Suspended),
        (&["Out of memory", "page allocation failure", "page allocation stalls"], Kind::Memory),
        (&["RT throttling activated"], Kind::RealTime),
        (&["kthread timer wakeup didn't happen"], Kind::LateTimer),
        (&["Hypervisor detected:", "paravirtualized kernel on"], Kind::Virtual),
    ];
    // Bare hardware announces itself as a paravirtualized kernel, too.
    let is_bare = has("paravirtualized kernel on bare hardware");
    kinds.extend(simple.into_iter().filter(|(words, _)| is_of(words) && !is_bare).map(|(_, kind)| kind));
    kinds
}

/// `1-...!: (0 ticks this GP) idle=...`, or `(3 GPs behind)`: the CPU before the dash.
fn holdout(text: &str) -> Option<Kind> {
    // A CPU that has not even noticed the grace period is some of them behind, and took no tick in this one.
    let behind = number_between(text, "(", " GPs behind").map(|_| 0);
    let ticks = number_between(text, "(", " ticks this GP").or(behind)?;
    let (before, _) = text.split_once('(')?;
    let (cpu, _) = before.split_whitespace().next_back()?.split_once('-')?;
    Some(Kind::Holdout { cpu: cpu.parse().ok()?, ticks })
}

/// The number between these words.
fn number_between(text: &str, before: &str, after: &str) -> Option<u64> {
    let (head, _) = text.split_once(after)?;
    let (_, number) = head.rsplit_once(before)?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: &str = "\
[  143.213011] rcu: INFO: rcu_sched self-detected stall on CPU
[  143.213020] rcu: \t1-....: (5249 ticks this GP) idle=a1b/1/0x4000000000000002 softirq=1204/1204 fqs=2617
[  143.213022] \t(t=5252 jiffies g=2369 q=12 ncpus=2)
Nov 25 12:00:01 web-01 kernel: [  200.000001] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[  200.000002] rcu: \t0-...!: (0 ticks this GP) idle=5e6/0/0x0 softirq=1/1 fqs=0 (false positive?)
[  200.000003] \t(detected by 1, t=5263 jiffies, g=2373, q=3 ncpus=2)
[  200.000004] rcu: rcu_sched kthread starved for 5263 jiffies! g2373 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=0
";

    #[test]
    fn stalls_have_their_holdouts_ages_and_starved_kthreads() {
        let kinds: Vec<Kind> = events(STALL).into_iter().map(|event| event.kind).collect();
        let expected = [
            Kind::Stall,
            Kind::Holdout { cpu: 1, ticks: 5249 },
            Kind::Age { jiffies: 5252 },
            Kind::Stall,
            Kind::Holdout { cpu: 0, ticks: 0 },
            Kind::Age { jiffies: 5263 },
            Kind::Starved { jiffies: 5263 },
        ];
        assert_eq!(kinds, expected);
        let times: Vec<Option<f64>> = events(STALL).into_iter().map(|event| event.at_s).collect();
        assert_eq!((times[0], times[3]), (Some(143.213011), Some(200.000001)));
    }

    #[test]
    fn other_complaints_are_known_and_ordinary_lines_are_none() {
        let kind = |line: &str| events(line).into_iter().map(|event| event.kind).collect::<Vec<_>>();
        for (line, expected) in [
            (
                "[1.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]",
                Kind::SoftLockup { seconds: 22 },
            ),
            ("[1.0] INFO: task jbd2/vda1-8:190 blocked for more than 120 seconds.", Kind::Blocked),
            ("[1.0] clocksource: timekeeping watchdog on CPU1: hpet wd-tsc read-back delay", Kind::Clock),
            ("[1.0] PM: suspend exit", Kind::Suspended),
            ("Out of memory: Killed process 12 (a)", Kind::Memory),
            ("sched: RT throttling activated", Kind::RealTime),
            ("[0.0] Hypervisor detected: KVM", Kind::Virtual),
        ] {
            assert_eq!(kind(line), [expected], "{line}");
        }
        for line in
            ["", "[", "[1.0] eth0: link up", "[x] y", "[0.1] Booting paravirtualized kernel on bare hardware"]
        {
            assert_eq!(kind(line), [], "{line}");
        }
    }

    #[test]
    fn nothing_of_a_log_is_trusted() {
        let behind =
            "Nov 25 12:00:01 web-01 kernel: rcu: \t1-...!: (3 GPs behind) idle=5e6/0/0x0 softirq=1/1 fqs=0";
        assert_eq!(events(behind)[0].kind, Kind::Holdout { cpu: 1, ticks: 0 });
        assert!(is_one("x\n[1.5] y") && !is_one("x\n[y] z"));
        let long = format!("[1.0] {} rcu_sched self-detected stall on CPU", "é".repeat(2_000));
        assert_eq!(events(&long), []);
        let many = "sched: RT throttling activated\n".repeat(MOST_EVENTS + 5);
        assert_eq!(events(&many).len(), MOST_EVENTS);
        let last = events(&format!("{many}[9.0] PM: suspend exit"));
        assert_eq!(last.last().map(|event| event.kind.clone()), Some(Kind::Suspended));
        assert_eq!(
            events("[1.0] kthread starved for 99999999999999999999999 jiffies!")[0].kind,
            Kind::Starved { jiffies: 0 }
        );
        assert_eq!(events("[nan] PM: suspend exit")[0].at_s, None);
    }
}
