//! The main thread's loop. Each round looks at managed tasks, feeds the decider, finds new tasks, and writes record and
//! metrics. This is an ordinary thread: it may allocate, wait, and be late.
//!
//! Its parts: [`search`] finds tasks within a CPU budget, [`pacing`] chooses the period of beats, [`throughput`] judges
//! whether acting pays.
//!
//! Errors: masks cannot be saved, or the record or the metrics cannot be written.

mod pacing;
mod search;
mod throughput;

pub use pacing::Pacing;
pub use search::Search;
pub use throughput::Throughput;

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reprieve_policy::SECOND_NS;
use reprieve_policy::guard::Advice;
use reprieve_policy::place::Why;
use reprieve_policy::signal::Signal;
use rtrb::{Consumer, Producer};

use super::act::Outcomes;
use super::link::{Decision, Entry, Shared, Status};
use super::report::metrics::{self, Counted};
use super::report::run_record;
use super::roster::Roster;
use super::{Notice, Roots};
use crate::clock;
use crate::{Error, Result};

/// Shortest time between two rounds, ns.
const ROUND_NS: u64 = 20_000_000;
/// Longest, ns.
const LONGEST_ROUND_NS: u64 = SECOND_NS;
/// CPU time of this thread in calm times, thousandths of one CPU...
const CALM_PERMILLE: u64 = 1;
/// ... and in busy times, when there are I/O tasks and vCPUs go off.
const BUSY_PERMILLE: u64 = 5;
/// Time between two readings of throughput and work, ns.
const READING_NS: u64 = 250_000_000;
/// Least time between two looks at forks outside of rounds, ns.
const FORKS_NS: u64 = 2_000_000;
/// Time between two checks whether any task is bound by now, ns.
const BOUND_CHECK_NS: u64 = 10_000_000;
/// Time between two writes of the metrics, ns.
const METRICS_NS: u64 = SECOND_NS;

/// The error of a record that cannot be written.
pub fn unwritten(e: std::io::Error) -> Error {
    Error::io("write", "the record", e, "make room on the device, or name another file")
}

/// The rings and counters that link this thread to the others.
pub struct Links {
    /// To the decider.
    pub signals: Producer<Signal>,
    /// From the decider.
    pub log: Consumer<Entry>,
    pub shared: Arc<Shared>,
    pub status: Arc<Status>,
    pub outcomes: Arc<Outcomes>,
}

/// The parts that a loop is made of, besides its links.
pub struct Plan<'a> {
    pub roots: Roots,
    pub roster: Roster,
    pub search: Search,
    pub pacing: Pacing,
    pub throughput: Throughput,
    /// Whether decisions are carried out.
    pub applies: bool,
    /// Receives signals and decisions.
    pub record: Option<Box<dyn Write + 'a>>,
    /// The file for metrics.
    pub metrics: Option<PathBuf>,
    pub tell: &'a mut dyn FnMut(Notice),
}

/// The loop's state.
pub struct MainLoop<'a> {
    plan: Plan<'a>,
    links: Links,
    /// Signals for the decider that found no room in the ring yet.
    unsent: VecDeque<Signal>,
    decisions: [u64; Why::ALL.len()],
    read_ns: u64,
    forks_ns: u64,
    metrics_ns: u64,
    meter: clock::Meter,
    lost: u64,
}

impl<'a> MainLoop<'a> {
    pub fn new(plan: Plan<'a>, links: Links, now_ns: u64) -> MainLoop<'a> {
        MainLoop {
            plan,
            links,
            unsent: VecDeque::new(),
            decisions: [0; Why::ALL.len()],
            read_ns: now_ns,
            forks_ns: 0,
            metrics_ns: 0,
            meter: clock::Meter::start(),
            lost: 0,
        }
    }

    /// Runs one round, and returns when the next is due, ns.
    pub fn round(&mut self, now_ns: u64) -> Result<u64> {
        let busy = self.links.status.is_busy();
        self.handle_forks(now_ns)?;
        let signals = self.plan.roster.look(now_ns)?;
        self.send(signals);
        self.drain(now_ns)?;
        self.admit(now_ns)?;
        if now_ns.saturating_sub(self.read_ns) >= READING_NS {
            self.read(now_ns, busy);
        }
        if now_ns.saturating_sub(self.metrics_ns) >= METRICS_NS {
            self.metrics_ns = now_ns;
            self.write_metrics()?;
        }
        let pause_ns = self.meter.step() * 1000 / budget_permille(busy);
        let next_ns = now_ns + pause_ns.clamp(ROUND_NS, LONGEST_ROUND_NS);
        let due_ns = self.plan.roster.children.due_ns().unwrap_or(next_ns);
        Ok(due_ns.clamp((now_ns + ROUND_NS).min(next_ns), next_ns))
    }

    /// Handles new forks.
    pub fn handle_forks(&mut self, now_ns: u64) -> Result<()> {
        self.forks_ns = now_ns;
        self.plan.roster.handle_forks(now_ns)
    }

    /// Descriptors that become readable when a task has forked. None while no task is bound, since then no child
    /// inherits anything; and none right after a look, so that a machine that forks all the time does not keep this
    /// thread busy.
    pub fn readable(&self, now_ns: u64) -> impl Iterator<Item = BorrowedFd<'_>> {
        let waits = self.links.status.is_busy() && now_ns.saturating_sub(self.forks_ns) >= FORKS_NS;
        self.plan.roster.children.readable().filter(move |_| waits)
    }

    /// When to call [`readable`](MainLoop::readable) again, ns, if its answer may change before the next round.
    pub fn listens_from_ns(&self, now_ns: u64) -> Option<u64> {
        let from_ns = self.forks_ns + FORKS_NS;
        match self.links.status.is_busy() {
            true => (from_ns > now_ns).then_some(from_ns),
            // A managed task may be bound soon.
            false => (self.plan.roster.count() > 0).then_some(now_ns + BOUND_CHECK_NS),
        }
    }

    /// Sends signals to the decider. If the ring is full, the rest is sent in a later round, except samples, which are
    /// dropped because newer ones will replace them.
    fn send(&mut self, signals: Vec<Signal>) {
        self.unsent.extend(signals);
        while let Some(signal) = self.unsent.front() {
            if self.links.signals.push(*signal).is_err() {
                break;
            }
            self.unsent.pop_front();
        }
        let before = self.unsent.len();
        self.unsent.retain(|signal| {
            !matches!(signal, Signal::IoSampled { .. } | Signal::Seen { .. } | Signal::Completion { .. })
        });
        let lost = (before - self.unsent.len()) as u64;
        self.links.shared.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Admits tasks that do I/O.
    fn admit(&mut self, now_ns: u64) -> Result<()> {
        let found = self.plan.search.found(&self.plan.roots, &self.links.status, now_ns);
        let signals = self.plan.roster.admit(&found, now_ns)?;
        for signal in &signals {
            if let Signal::Admit { task, admission, .. } = signal
                && let Some((pid, tid, comm)) = self.plan.roster.task(*task)
            {
                (self.plan.tell)(Notice::TakenIn { pid, tid, comm, mask: admission.mask, at_ns: now_ns });
            }
        }
        self.send(signals);
        Ok(())
    }

    /// Takes in the decider's entries.
    fn drain(&mut self, now_ns: u64) -> Result<()> {
        while let Ok(entry) = self.links.log.pop() {
            if let Some(record) = &mut self.plan.record {
                run_record::write_entry(record, &entry).map_err(unwritten)?;
            }
            match entry {
                Entry::Decision(decision) => self.report_decision(&decision),
                Entry::Unmanaged { pid, tid } => self.plan.search.add_unmanaged(pid, tid),
                Entry::Signal(_) | Entry::Lost(_) => {}
            }
        }
        let lost = self.links.shared.lost.load(Ordering::Relaxed);
        if lost > self.lost {
            (self.plan.tell)(Notice::Lost { values: lost - self.lost, at_ns: now_ns });
        }
        self.lost = lost;
        Ok(())
    }

    fn report_decision(&mut self, decision: &Decision) {
        if let Some(index) = Why::ALL.iter().position(|why| *why == decision.made.why) {
            self.decisions[index] += 1;
        }
        if let Some((pid, tid, comm)) = self.plan.roster.task(decision.made.task) {
            (self.plan.tell)(Notice::Decision { pid, tid, comm, decision });
        }
    }

    /// Reads work and throughput since the last reading, and acts on both.
    fn read(&mut self, now_ns: u64, busy: bool) {
        // This thread may be late, so rates are taken over the time that has passed.
        let span_ns = now_ns.saturating_sub(self.read_ns).max(1);
        self.read_ns = now_ns;
        self.plan.pacing.choose(&self.links.shared, span_ns, busy);
        let (took_ns, advice) = self.plan.throughput.read(&self.plan.roots, span_ns, busy);
        if let Some(took_ns) = took_ns {
            self.send(vec![Signal::Completion { at_ns: now_ns, took_ns }]);
        }
        if let Some(advice) = advice {
            (self.plan.tell)(Notice::Advice { advice, at_ns: now_ns });
            self.send(vec![match advice {
                Advice::Act => Signal::Resume { at_ns: now_ns },
                Advice::Watch | Advice::Rest => Signal::Halt { at_ns: now_ns },
            }]);
        }
    }

    fn write_metrics(&self) -> Result<()> {
        let Some(path) = &self.plan.metrics else { return Ok(()) };
        let judge = &self.plan.roster.children.judge;
        let counted = Counted {
            status: &self.links.status,
            outcomes: &self.links.outcomes,
            decisions: &self.decisions,
            tasks: self.plan.roster.count(),
            turned_away: self.plan.roster.turned_away,
            freed_children: judge.restored,
            unrestored: judge.unrestored.count(),
            in_doubt: judge.unrestored.in_doubt(),
            overtaken: judge.overtaken,
            cpu_ns: clock::own_cpu_ns(),
            period_ns: self.plan.pacing.period_ns(),
            lost: self.lost,
            given_up: self.plan.throughput.failures(),
            acting: self.plan.applies && self.plan.throughput.advises_to_act(),
        };
        metrics::write(path, &counted)
    }

    /// Takes in the last entries, after all other threads have ended, and follows masks that others have set until now.
    /// After this, restore the masks of managed tasks, and then call [`finish_children`](MainLoop::finish_children).
    pub fn finish(&mut self, now_ns: u64) -> Result<()> {
        let followed = self.plan.roster.finish(now_ns);
        let drained = self.drain(now_ns);
        let flushed = self.plan.record.as_mut().map_or(Ok(()), |record| record.flush());
        drained.and(flushed.map_err(unwritten)).and(followed)
    }

    /// Number of decisions so far, and of gaps that were the host's doing.
    pub fn decisions_and_host_gaps(&self) -> (u64, u64) {
        (self.decisions.iter().sum(), self.links.status.host_gaps())
    }

    /// Restores the masks of the last children; returns how many tasks are in doubt.
    pub fn finish_children(mut self, now_ns: u64) -> Result<usize> {
        let finished = self.plan.roster.finish_children(now_ns);
        self.write_metrics().and(finished)?;
        Ok(self.plan.roster.children.judge.unrestored.in_doubt())
    }
}

fn budget_permille(busy: bool) -> u64 {
    if busy { BUSY_PERMILLE } else { CALM_PERMILLE }
}
