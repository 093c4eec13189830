//! A stall of RCU, gathered from the lines that tell of it.
//!
//! The kernel reports a stall that lasts again and again, and each report may be in the log twice: once by the CPU that
//! stalls and once by another. All reports of one grace period are one stall. Its evidence is that of the first report that
//! has any, because later ones grow with what the reports themselves take.

use std::collections::BTreeMap;

use crate::kernel_log::{At, Event, Kind};

/// A report's lines follow within this time, s. The kernel waits up to ten for each backtrace.
pub(super) const DETAILS_S: f64 = 15.0;
/// Two reports of a flavour within this time are of the same grace period, s: a stall takes longer.
const TOGETHER_S: f64 = 1.0;
/// The most CPUs or tasks of a stall.
const MOST_NAMES: usize = 64;
/// An expedited grace period younger than this is no stall, in jiffies: at most a second.
const SHORT_JIFFIES: u64 = 100;
/// A CPU that took less than this part of the ticks did not run, in per cent.
const FEW_TICKS_PERCENT: u64 = 10;
/// RCU's kthread looks at idle CPUs every few jiffies. With so few looks it has not run.
const FEW_SCANS: u64 = 2;

/// A CPU for which RCU waits. See [`Kind::Holdout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdout {
    /// The CPU.
    pub cpu: u64,
    /// Its timer ticks in this grace period.
    pub ticks: Option<u64>,
    /// It runs no task.
    pub is_idle: Option<bool>,
    /// It took the interrupt RCU asked for.
    pub took_interrupt: Option<bool>,
    /// How often RCU's kthread looked at it.
    pub scans: Option<u64>,
}

/// A grace period that does not end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stall {
    /// When it was first reported.
    pub at: Option<At>,
    /// `rcu_sched`, `rcu_preempt`.
    pub flavour: String,
    /// An expedited grace period: RCU asked each CPU by an interrupt, and counts no ticks.
    pub is_expedited: bool,
    /// A CPU reported itself.
    pub is_own: bool,
    /// The number of the grace period.
    pub grace_period: Option<i64>,
    /// Its age.
    pub jiffies: Option<u64>,
    /// CPUs RCU waits for.
    pub holdouts: Vec<Holdout>,
    /// It waits for tasks.
    pub has_reader: bool,
    /// Their PIDs, if told.
    pub readers: Vec<u64>,
    /// For how long RCU's kthread was not active, jiffies.
    pub inactive_jiffies: Option<u64>,
    /// It slept, instead of waiting for a CPU.
    pub is_asleep: Option<bool>,
    /// For how long its timer was overdue, jiffies.
    pub overdue_jiffies: Option<u64>,
    /// Reports of this stall in the log.
    pub reports: usize,
}

impl Stall {
    /// Whether so many jiffies are at least half of the stall.
    fn is_most(&self, jiffies: Option<u64>) -> bool {
        jiffies.is_some_and(|part| self.jiffies.is_none_or(|all| part >= all / 2))
    }

    pub(super) fn has_short_limit(&self) -> bool {
        self.is_expedited && self.jiffies.is_some_and(|jiffies| jiffies < SHORT_JIFFIES)
    }

    /// A CPU took at least half of its ticks: its timer worked, and it ran.
    pub(super) fn has_busy_cpu(&self) -> bool {
        self.jiffies.is_some() && self.holdouts.iter().any(|holdout| self.is_most(holdout.ticks))
    }

    /// RCU's kthread was not active most of the time.
    pub(super) fn is_kthread_inactive(&self) -> bool {
        self.is_most(self.inactive_jiffies)
    }

    /// RCU's kthread could have run most of the time, and other tasks kept it from that.
    pub(super) fn is_kthread_kept(&self) -> bool {
        self.is_kthread_inactive() && self.is_asleep == Some(false)
    }

    /// RCU's kthread slept though its timer was due, or nobody looked at CPUs that are idle.
    pub(super) fn has_late_timer(&self) -> bool {
        let slept = self.is_kthread_inactive() && self.is_asleep == Some(true);
        let is_unseen = |holdout: &Holdout| {
            holdout.is_idle == Some(true) && holdout.scans.is_some_and(|scans| scans <= FEW_SCANS)
        };
        let nobody_looked = self.is_asleep.is_none()
            && !self.is_kthread_inactive()
            && !self.holdouts.is_empty()
            && self.holdouts.iter().all(is_unseen);
        slept || self.is_most(self.overdue_jiffies) || nobody_looked
    }

    /// Whether that CPU was not idle, and took hardly any ticks or did not notice the grace period.
    pub fn is_absent(&self, holdout: &Holdout) -> bool {
        let is_few = match (holdout.ticks, self.jiffies) {
            (Some(ticks), Some(jiffies)) => {
                ticks.saturating_mul(100) < jiffies.saturating_mul(FEW_TICKS_PERCENT)
            }
            (Some(ticks), None) => ticks == 0,
            // It is behind. If it reports itself or took an interrupt, it runs, and RCU's softirq does not.
            (None, _) => holdout.scans.is_some() && !self.is_own && holdout.took_interrupt != Some(true),
        };
        is_few && holdout.is_idle != Some(true)
    }

    pub(super) fn has_absent_cpu(&self) -> bool {
        self.holdouts.iter().any(|holdout| self.is_absent(holdout))
    }

    /// A CPU took some ticks, or took interrupts and ran no RCU softirq.
    pub(super) fn has_part_time_cpu(&self) -> bool {
        let is_one = |holdout: &Holdout| {
            let runs = self.is_own || holdout.took_interrupt == Some(true);
            holdout.is_idle != Some(true) && (holdout.ticks.is_some() || (runs && !self.is_expedited))
        };
        self.holdouts.iter().any(is_one)
    }

    /// Whether anything is known of it but that it is.
    fn has_evidence(&self) -> bool {
        !self.holdouts.is_empty() || self.has_reader || self.inactive_jiffies.is_some()
    }

    fn add(&mut self, kind: &Kind) {
        match kind {
            Kind::Holdout { cpu, ticks, is_idle, took_interrupt, scans } => {
                let is_known = self.holdouts.iter().any(|known| known.cpu == *cpu);
                if !is_known && self.holdouts.len() < MOST_NAMES {
                    let (ticks, is_idle) = (*ticks, *is_idle);
                    let (took_interrupt, scans) = (*took_interrupt, *scans);
                    self.holdouts.push(Holdout { cpu: *cpu, ticks, is_idle, took_interrupt, scans });
                }
            }
            Kind::Readers { pids } => {
                self.has_reader = true;
                self.readers.extend(pids);
                self.readers.truncate(MOST_NAMES);
            }
            Kind::Age { jiffies, grace_period } => {
                self.jiffies = self.jiffies.or(Some(*jiffies));
                self.grace_period = self.grace_period.or(*grace_period);
            }
            Kind::AllSeen { jiffies } => {
                self.inactive_jiffies = self.inactive_jiffies.or(Some(*jiffies));
                // Neither a CPU nor an idle kthread is left to wait for: it is a task that is in no list any more.
                self.has_reader |= !self.is_most(Some(*jiffies));
            }
            Kind::Starved { jiffies, is_asleep } => {
                self.inactive_jiffies = Some(*jiffies);
                self.is_asleep = *is_asleep;
            }
            Kind::LateTimer { jiffies } => self.overdue_jiffies = Some(*jiffies),
            Kind::Idling { cpu } => {
                let idling = self.holdouts.iter_mut().find(|holdout| holdout.cpu == *cpu);
                if let Some(holdout) = idling {
                    holdout.is_idle = Some(true);
                }
            }
            _ => {}
        }
    }
}

/// The stalls of one boot, in the order of their first reports.
pub(super) fn gather(events: &[Event]) -> Vec<Stall> {
    let mut stalls: Vec<Stall> = vec![];
    let mut known: BTreeMap<(String, bool, i64), usize> = BTreeMap::new();
    for report in reports(events) {
        let number = report.grace_period.map(|number| (report.flavour.clone(), report.is_expedited, number));
        let earlier = number.as_ref().and_then(|number| known.get(number)).copied();
        match earlier {
            Some(index) => {
                let reports = stalls[index].reports + report.reports;
                if !stalls[index].has_evidence() {
                    let at = stalls[index].at;
                    stalls[index] = Stall { at, ..report };
                }
                stalls[index].reports = reports;
            }
            None => {
                known.extend(number.map(|number| (number, stalls.len())));
                stalls.push(report);
            }
        }
    }
    stalls
}

/// The reports, each with its lines; two at once are one.
fn reports(events: &[Event]) -> Vec<Stall> {
    let mut reports: Vec<Stall> = vec![];
    for event in events {
        let apart_s = |report: &Stall| event.at.zip(report.at).and_then(|(at, since)| at.since(since));
        if let Kind::Stall { flavour, is_expedited, is_own } = &event.kind {
            let is_same = |report: &&mut Stall| {
                report.flavour == *flavour
                    && !report.is_expedited
                    && !is_expedited
                    && apart_s(report).is_some_and(|apart_s| apart_s.abs() <= TOGETHER_S)
            };
            match reports.last_mut().filter(is_same) {
                Some(report) => {
                    report.is_own |= is_own;
                    report.reports += 1;
                }
                None => reports.push(Stall {
                    at: event.at,
                    flavour: flavour.clone(),
                    is_expedited: *is_expedited,
                    is_own: *is_own,
                    reports: 1,
                    ..Stall::default()
                }),
            }
            continue;
        }
        // Without times, all that stands in the log before the next stall belongs to this one.
        if let Some(report) = reports.last_mut()
            && apart_s(report).is_none_or(|apart_s| apart_s <= DETAILS_S)
        {
            report.add(&event.kind);
        }
    }
    reports
}
