//! The house thread: finds tasks, feeds the decider with what they do, saves masks, sees to forks, tells decisions, writes
//! record and metrics, keeps the daemon within its CPU budget, and judges whether acting pays. It is an ordinary thread: it
//! may allocate, wait, and be late.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reprieve_policy::beat::Pace;
use reprieve_policy::guard::{Advice, Guard};
use reprieve_policy::place::Why;
use reprieve_policy::signal::Signal;

use super::entry::{Decision, Entry};
use super::metrics::{self, Counted};
use super::mover::Outcomes;
use super::ring::{Consumer, Producer};
use super::roster::{Roots, Roster};
use super::scan::{Found, Scan};
use super::shared::Shared;
use super::source::Source;
use super::status::Status;
use super::{Told, clock, record};
use crate::error::{Error, Result};
use crate::proc::DiskTotals;

/// Shortest time between two looks at tasks, ns.
const LOOK_NS: u64 = 20_000_000;
/// Longest, ns.
const LOOK_MOST_NS: u64 = 1_000_000_000;
/// What has come in is looked at once in so many periods, unless a beat is late, or tasks may have to leave.
const LOOKS: u64 = 4;
/// CPU time of this thread, thousandths of one CPU: while nothing is wrong, and while there is something to win.
const CALM_PERMILLE: u64 = 1;
const BUSY_PERMILLE: u64 = 5;
/// Between two looks for tasks that do I/O, ns, or longer by what they cost...
const SCAN_NS: u64 = 100_000_000;
/// ... and so many processes or tasks at the least then.
const SCAN_LEAST: u32 = 16;
/// Longer by this at the most, ns.
const SCAN_MOST_NS: u64 = 2_000_000_000;
/// Between two readings of throughput and work, ns.
const READING_NS: u64 = 250_000_000;
/// Between two looks at forks that do not wait for a round, ns.
const FORKS_NS: u64 = 2_000_000;
/// Between two looks whether a task is bound by now, ns.
const ASKS_NS: u64 = 10_000_000;
/// Between two writings of metrics, ns.
const METRICS_NS: u64 = 1_000_000_000;

/// The record could not be written.
pub fn unwritten(e: std::io::Error) -> Error {
    Error::io("write", "the record", e, "is there room on the device?")
}

/// The rings and counters that join this thread to the others.
pub struct Joints {
    /// To the decider.
    pub signals: Producer<Signal>,
    /// From the decider.
    pub log: Consumer<Entry>,
    /// What all share.
    pub shared: Arc<Shared>,
    /// What the policy knows.
    pub status: Arc<Status>,
    /// How orders were carried out.
    pub outcomes: Arc<Outcomes>,
}

/// The house thread's state.
pub struct House<'a> {
    roots: Roots,
    source: Source,
    roster: Roster,
    scan: Scan,
    joints: Joints,
    /// What the decider must hear of and had no room for.
    unsent: VecDeque<Signal>,
    /// Tasks that do I/O and are not looked after, as the decider has told.
    strangers: Vec<(i32, i32)>,
    pace: Pace,
    /// None if decisions are carried out whatever comes of it, or not at all.
    guard: Option<Guard>,
    applies: bool,
    record: Option<Box<dyn Write + 'a>>,
    metrics: Option<PathBuf>,
    tell: &'a mut dyn FnMut(Told),
    decisions: [u64; Why::ALL.len()],
    disks: DiskTotals,
    pressure_ns: u64,
    scan_ns: u64,
    read_ns: u64,
    forks_ns: u64,
    metrics_ns: u64,
    meter: clock::Meter,
    /// What the other threads had worked at the last reading.
    worked_ns: u64,
    lost: u64,
}

/// What the house thread is made of besides.
pub struct Plan<'a> {
    /// `/proc` and `/sys`.
    pub roots: Roots,
    /// What tells I/O tasks.
    pub source: Source,
    /// The tasks looked after.
    pub roster: Roster,
    /// How tasks are found.
    pub scan: Scan,
    /// How often to beat.
    pub pace: Pace,
    /// Whether acting pays; none to act in any case.
    pub guard: Option<Guard>,
    /// Whether decisions are carried out.
    pub applies: bool,
    /// Where signals and decisions are written.
    pub record: Option<Box<dyn Write + 'a>>,
    /// Where metrics are written.
    pub metrics: Option<PathBuf>,
    /// Who is told.
    pub tell: &'a mut dyn FnMut(Told),
}

impl<'a> House<'a> {
    /// Ready to run.
    pub fn new(plan: Plan<'a>, joints: Joints, now_ns: u64) -> House<'a> {
        let disks = plan.roots.proc.disk_totals(plan.roots.sys.path()).unwrap_or_default();
        House {
            roots: plan.roots,
            source: plan.source,
            roster: plan.roster,
            scan: plan.scan,
            joints,
            unsent: VecDeque::new(),
            strangers: Vec::new(),
            pace: plan.pace,
            guard: plan.guard,
            applies: plan.applies,
            record: plan.record,
            metrics: plan.metrics,
            tell: plan.tell,
            decisions: [0; Why::ALL.len()],
            disks,
            pressure_ns: 0,
            scan_ns: 0,
            read_ns: now_ns,
            forks_ns: 0,
            metrics_ns: 0,
            meter: clock::Meter::start(),
            worked_ns: 0,
            lost: 0,
        }
    }

    /// One round; returns when the next is due, ns.
    ///
    /// # Errors
    /// If masks cannot be saved, or the record or the metrics not written.
    pub fn round(&mut self, now_ns: u64) -> Result<u64> {
        let busy = self.joints.status.is_busy();
        let budget_permille = if busy { BUSY_PERMILLE } else { CALM_PERMILLE };
        self.see_to_forks(now_ns)?;
        let signals = self.roster.look(now_ns)?;
        self.send(signals);
        self.drain(now_ns)?;
        self.search(now_ns)?;
        if now_ns.saturating_sub(self.read_ns) >= READING_NS {
            self.read(now_ns, busy);
        }
        if now_ns.saturating_sub(self.metrics_ns) >= METRICS_NS {
            self.metrics_ns = now_ns;
            self.write_metrics()?;
        }
        let next_ns = now_ns + (self.meter.step() * 1000 / budget_permille).clamp(LOOK_NS, LOOK_MOST_NS);
        let due_ns = self.roster.heirs().due_ns().unwrap_or(next_ns);
        Ok(due_ns.clamp((now_ns + LOOK_NS).min(next_ns), next_ns))
    }

    /// Sees to what has forked.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn see_to_forks(&mut self, now_ns: u64) -> Result<()> {
        self.forks_ns = now_ns;
        self.roster.see_to_forks(now_ns)
    }

    /// What becomes readable when something has forked: nothing while no task is bound, since then nothing is inherited, and
    /// for a while after the last look, so that a machine that forks all the time does not keep this thread busy.
    pub fn readable(&self, now_ns: u64) -> impl Iterator<Item = BorrowedFd<'_>> {
        let waits = self.joints.status.is_busy() && now_ns.saturating_sub(self.forks_ns) >= FORKS_NS;
        self.roster.heirs().readable().filter(move |_| waits)
    }

    /// When to ask again for what becomes readable, ns, if that may change before the next round.
    pub fn listens_from_ns(&self, now_ns: u64) -> Option<u64> {
        let from_ns = self.forks_ns + FORKS_NS;
        match self.joints.status.is_busy() {
            true => (from_ns > now_ns).then_some(from_ns),
            // One of them may be bound in a moment.
            false => (self.roster.count() > 0).then_some(now_ns + ASKS_NS),
        }
    }

    /// Tells the decider, what it must hear of later if need be; samples that find no room are lost.
    fn send(&mut self, signals: Vec<Signal>) {
        self.unsent.extend(signals);
        while let Some(signal) = self.unsent.front() {
            if !self.joints.signals.push(*signal) {
                break;
            }
            self.unsent.pop_front();
        }
        let before = self.unsent.len();
        self.unsent.retain(|signal| {
            !matches!(signal, Signal::IoSampled { .. } | Signal::Seen { .. } | Signal::Completion { .. })
        });
        (self.unsent.len()..before).for_each(|_| self.joints.shared.count_lost(false));
    }

    /// Takes in tasks that do I/O: those that the decider has told of, or those that are found where some task waits for I/O,
    /// within the budget.
    fn search(&mut self, now_ns: u64) -> Result<()> {
        let found = match self.source {
            Source::Events => {
                let scan = &self.scan;
                self.strangers.drain(..).filter_map(|(pid, tid)| scan.find(pid, tid)).collect()
            }
            _ => self.scan(now_ns),
        };
        let signals = self.roster.take_in(&found, now_ns)?;
        for signal in &signals {
            if let Signal::Admit { task, admission, .. } = signal
                && let Some((pid, tid, comm)) = self.roster.who(*task)
            {
                (self.tell)(Told::TakenIn { pid, tid, comm, mask: admission.mask, at_ns: now_ns });
            }
        }
        self.send(signals);
        Ok(())
    }

    fn scan(&mut self, now_ns: u64) -> Vec<Found> {
        if now_ns < self.scan_ns {
            return Vec::new();
        }
        let began_ns = clock::thread_cpu_ns();
        // Without PSI it cannot be told, and is looked at in any case.
        let pressure_ns = self.roots.proc.io_pressure_ns().ok();
        let waited = pressure_ns.is_none_or(|ns| ns != self.pressure_ns);
        (self.pressure_ns, self.scan_ns) = (pressure_ns.unwrap_or(0), now_ns + SCAN_NS);
        if !waited {
            return Vec::new();
        }
        let wrong = self.joints.status.wrong.load(Ordering::Relaxed) != 0;
        let permille = if wrong { BUSY_PERMILLE } else { CALM_PERMILLE };
        // Its own share, whatever the looks at members have cost: they would starve it.
        if !self.scan.has_compared() {
            // Twice in full, at the start: who has done I/O is seen from the second look on.
            return self.scan.advance(|| true);
        }
        let most_ns = SCAN_NS * permille / 1000;
        let spent_ns = || clock::thread_cpu_ns().saturating_sub(began_ns);
        let mut least = SCAN_LEAST;
        let found = self.scan.advance(|| {
            least = least.saturating_sub(1);
            least > 0 || spent_ns() < most_ns
        });
        self.scan_ns += (spent_ns() * 1000 / permille).min(SCAN_MOST_NS);
        found
    }

    /// Takes in what the decider has told.
    fn drain(&mut self, now_ns: u64) -> Result<()> {
        while let Some(entry) = self.joints.log.pop() {
            if let Some(record) = &mut self.record {
                record::write_entry(record, &entry).map_err(unwritten)?;
            }
            match entry {
                Entry::Decision(decision) => self.tell_decision(&decision),
                Entry::Stranger { pid, tid } => self.strangers.push((pid, tid)),
                Entry::Signal(_) | Entry::Lost(_) => {}
            }
        }
        let lost = self.joints.shared.lost.load(Ordering::Relaxed);
        if lost > self.lost {
            (self.tell)(Told::Lost { values: lost - self.lost, at_ns: now_ns });
        }
        self.lost = lost;
        Ok(())
    }

    fn tell_decision(&mut self, decision: &Decision) {
        if let Some(index) = Why::ALL.iter().position(|why| *why == decision.made.why) {
            self.decisions[index] += 1;
        }
        if let Some((pid, tid, comm)) = self.roster.who(decision.made.task) {
            (self.tell)(Told::Decision { pid, tid, comm, decision });
        }
    }

    /// Throughput and work since the last reading.
    fn read(&mut self, now_ns: u64, busy: bool) {
        let worked_ns = self.joints.shared.worked_ns.load(Ordering::Relaxed);
        let span_ns = now_ns.saturating_sub(self.read_ns).max(1);
        let spent_permille = worked_ns.saturating_sub(self.worked_ns) * 1000 / span_ns;
        (self.worked_ns, self.read_ns) = (worked_ns, now_ns);
        if self.joints.shared.period_ns.load(Ordering::Relaxed) < self.pace.period_ns() {
            self.pace.hurry();
        }
        let period_ns = self.pace.next(busy, spent_permille);
        self.joints.shared.hurried_ns.store(self.pace.hurried_ns(), Ordering::Relaxed);
        self.joints.shared.period_ns.store(period_ns, Ordering::Relaxed);
        let look_ns = period_ns * LOOKS;
        self.joints.shared.look_ns.store(look_ns, Ordering::Relaxed);
        // Without diskstats there is no throughput to judge by.
        let Ok(disks) = self.roots.proc.disk_totals(self.roots.sys.path()) else { return };
        if let Some(took_ns) = disks.mean_ns_since(&self.disks).filter(|took_ns| *took_ns > 0) {
            self.send(vec![Signal::Completion { at_ns: now_ns, took_ns }]);
        }
        // This thread may be late, and then more is done between two readings.
        let done = disks.completed.saturating_sub(self.disks.completed);
        let rate = u128::from(done) * 1_000_000_000 / u128::from(span_ns);
        self.disks = disks;
        self.judge(rate as u64, busy, now_ns);
    }

    fn judge(&mut self, done: u64, busy: bool, now_ns: u64) {
        let Some(guard) = &mut self.guard else { return };
        let before = guard.advice();
        let advice = guard.reading(done, busy);
        if advice == before {
            return;
        }
        (self.tell)(Told::Advice { advice, at_ns: now_ns });
        self.send(vec![match advice {
            Advice::Act => Signal::Resume { at_ns: now_ns },
            Advice::Watch | Advice::Rest => Signal::Halt { at_ns: now_ns },
        }]);
    }

    fn write_metrics(&mut self) -> Result<()> {
        let Some(path) = &self.metrics else { return Ok(()) };
        let text = metrics::render(&Counted {
            status: &self.joints.status,
            outcomes: &self.joints.outcomes,
            decisions: &self.decisions,
            tasks: self.roster.count(),
            turned_away: self.roster.turned_away,
            heirs: self.roster.heirs().given_back(),
            owed: self.roster.heirs().debts().owed(),
            in_doubt: self.roster.heirs().debts().in_doubt(),
            overtaken: self.roster.heirs().overtaken(),
            cpu_ns: clock::own_cpu_ns(),
            period_ns: self.pace.period_ns(),
            lost: self.lost,
            given_up: self.guard.map_or(0, |guard| guard.failures()),
            acting: self.applies && self.guard.is_none_or(|guard| guard.advice() == Advice::Act),
        });
        metrics::write(path, &text)
    }

    /// Tells what is left to tell, after all other threads have ended, and follows what others have set until now. The tasks
    /// looked after are to be given their masks then, and after that [`finish_heirs`](House::finish_heirs) is due.
    ///
    /// # Errors
    /// If the record, the metrics or the state file cannot be written.
    pub fn finish(&mut self, now_ns: u64) -> Result<()> {
        let followed = self.roster.finish(now_ns);
        let told = self.drain(now_ns);
        let flushed = self.record.as_mut().map_or(Ok(()), |record| record.flush());
        told.and(flushed.map_err(unwritten)).and(followed)
    }

    /// Sees to the last heirs; how many are in doubt.
    ///
    /// # Errors
    /// If the metrics or the state file cannot be written.
    pub fn finish_heirs(mut self, now_ns: u64) -> Result<usize> {
        let seen_to = self.roster.finish_heirs(now_ns);
        self.write_metrics().and(seen_to)?;
        Ok(self.roster.heirs().debts().in_doubt())
    }
}
