//! The decider: takes signals from the rings, passes them through the policy, and sends orders to the movers. It
//! allocates nothing, does no I/O except to read steal, and waits for nobody.
//!
//! Invariants: signals from all sources are taken in the order of time, so a vCPU whose beats are still unread never
//! looks as if it were off. Orders go out after all signals are read, so if old beats move a task twice, only the last
//! move counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use reprieve_policy::beat::{Beat, StealReads, grain_ns};
use reprieve_policy::place::{Move, Placer, Settings, Target};
use reprieve_policy::signal::Signal;

use rtrb::{Consumer, Producer};

use super::OffTimes;
use crate::migrate::act::Mover;
use crate::migrate::find::Sorter;
use crate::migrate::link::{Decision, Entry, Shared};
use crate::migrate::masks::Table;
use crate::proc::StealReader;

/// Beats older than this no longer describe the present, ns: much can happen in two periods of the fastest beats.
const OLD_NS: u64 = 2_000_000;

/// The rings that the decider reads and writes, and what else it knows.
pub struct Lines {
    /// From each beat thread.
    pub beats: Vec<Consumer<Signal>>,
    /// From the main loop.
    pub main_loop: Consumer<Signal>,
    /// I/O events, if this machine has a source of them.
    pub events: Option<Sorter>,
    /// To the main loop.
    pub log: Producer<Entry>,
    /// To the movers, one per vCPU that tasks leave; empty if decisions are only reported.
    pub movers: Vec<Mover>,
    /// Without it beats carry no steal.
    pub steal: Option<StealReader>,
    /// An oracle's knowledge.
    pub off_times: OffTimes,
    /// Whether signals also go to the main loop, for the record.
    pub records: bool,
}

/// The source of a signal.
#[derive(Clone, Copy, Debug)]
enum SignalSource {
    MainLoop,
    Event,
    Beat(usize),
}

/// The decider.
pub struct Decider {
    placer: Placer,
    lines: Lines,
    table: Arc<Table>,
    shared: Arc<Shared>,
    steal_reads: StealReads,
    made: Vec<Move>,
    /// Slots with a new order, each with the number of the mover that gets it.
    touched: Vec<(usize, usize)>,
    /// Entries lost since the last one that was sent.
    unsent: u64,
}

impl Decider {
    /// A decider that knows nothing yet.
    pub fn new(settings: Settings, lines: Lines, table: Arc<Table>, shared: Arc<Shared>) -> Decider {
        Decider {
            placer: Placer::new(settings),
            steal_reads: StealReads::new(settings.vcpus),
            made: Vec::with_capacity(settings.tasks),
            touched: Vec::with_capacity(settings.tasks),
            lines,
            table,
            shared,
            unsent: 0,
        }
    }

    /// Takes in all present signals, and lets time pass up to `now_ns`.
    pub fn step(&mut self, now_ns: u64) {
        self.shared.looked_ns.store(now_ns, Ordering::Relaxed);
        if let Some(events) = &mut self.lines.events {
            events.begin();
        }
        while let Some(signal) = self.lines.off_times.due(now_ns) {
            self.take(signal);
        }
        self.catch_up(now_ns);
        while let Some(source) = self.oldest() {
            match source {
                SignalSource::MainLoop => self.take_from_main_loop(),
                SignalSource::Event => self.take_event(),
                SignalSource::Beat(line) => self.take_beat(line, now_ns),
            }
        }
        self.take(Signal::Tick { at_ns: now_ns });
        self.send_orders();
        if let Some(events) = &mut self.lines.events {
            events.watch(self.placer.is_wrong());
        }
        (0..self.placer.settings().vcpus)
            .for_each(|vcpu| self.shared.set_endangered(vcpu, self.placer.is_endangered(vcpu)));
    }

    /// If beats have waited because the deciding thread's vCPU was off, the policy learns from the old ones but does
    /// not act on them: only the latest describe the present.
    fn catch_up(&mut self, now_ns: u64) {
        let oldest_ns =
            self.lines.beats.iter_mut().filter_map(|beats| Some(beats.peek().ok()?.at_ns())).min();
        if oldest_ns.is_some_and(|oldest_ns| now_ns.saturating_sub(oldest_ns) > OLD_NS) {
            self.take(Signal::CatchUp { until_ns: now_ns.saturating_sub(grain_ns(OLD_NS)) });
        }
    }

    /// The source of the oldest present signal.
    fn oldest(&mut self) -> Option<SignalSource> {
        let Lines { beats, main_loop, events, .. } = &mut self.lines;
        let main_loop = main_loop.peek().ok().map(|signal| (signal.at_ns(), SignalSource::MainLoop));
        let event = events.as_mut().and_then(Sorter::peek_ns).map(|at_ns| (at_ns, SignalSource::Event));
        let beats = beats
            .iter_mut()
            .enumerate()
            .filter_map(|(line, beats)| Some((beats.peek().ok()?.at_ns(), SignalSource::Beat(line))));
        let oldest = main_loop.into_iter().chain(event).chain(beats).min_by_key(|(at_ns, _)| *at_ns);
        oldest.map(|(_, source)| source)
    }

    /// Takes a signal of the main loop. If it ends a placement in the policy, also orders the user's mask to be
    /// restored, so that no task stays bound that the policy has forgotten.
    fn take_from_main_loop(&mut self) {
        let Ok(signal) = self.lines.main_loop.pop() else { return };
        self.take(signal);
        match signal {
            Signal::Mask { task, .. } => self.want(task, None, None),
            Signal::Dismiss { task, .. } => {
                self.want(task, None, None);
                self.table.dismiss(task);
            }
            _ => {}
        }
    }

    fn take_event(&mut self) {
        match self.lines.events.as_mut().and_then(|events| events.pop(&self.table)) {
            Some(Entry::Signal(signal)) => self.take(signal),
            Some(other) => self.send(other),
            None => {}
        }
    }

    fn take_beat(&mut self, line: usize, now_ns: u64) {
        match self.lines.beats[line].pop() {
            Ok(Signal::Beat(beat)) => {
                let beat = self.with_steal(beat, now_ns);
                self.take(beat);
            }
            Ok(signal) => self.take(signal),
            Err(_) => {}
        }
    }

    fn with_steal(&mut self, beat: Beat, now_ns: u64) -> Signal {
        let read = || {
            let steal = self.lines.steal.as_mut()?;
            steal.read(now_ns).ok()?;
            steal.steal_ns(beat.vcpu)
        };
        Signal::Beat(self.steal_reads.fill(beat, now_ns, read))
    }

    fn take(&mut self, signal: Signal) {
        if self.lines.records {
            self.send(Entry::Signal(signal));
        }
        self.made.clear();
        self.made.extend_from_slice(self.placer.take(&signal));
        for i in 0..self.made.len() {
            let made = self.made[i];
            let cpu = if let Target::Vcpu(vcpu) = made.to { Some(vcpu) } else { None };
            self.want(made.task, cpu, made.from);
            let decision = self.explained(made, signal.at_ns());
            self.send(Entry::Decision(decision));
        }
    }

    /// Sends an entry to the main loop. If the ring is full, the entry is lost, and a count of lost entries takes its
    /// place as soon as there is room.
    fn send(&mut self, entry: Entry) {
        if self.unsent > 0 && self.lines.log.push(Entry::Lost(self.unsent)).is_ok() {
            self.unsent = 0;
        }
        let sent = self.unsent == 0 && self.lines.log.push(entry).is_ok();
        self.unsent += u64::from(!sent);
        self.shared.count_lost(sent);
    }

    fn want(&mut self, slot: usize, cpu: Option<usize>, from: Option<usize>) {
        if self.lines.movers.is_empty() || slot >= self.table.slots() {
            return;
        }
        self.table.want(slot, cpu);
        // The mover of the vCPU that the task leaves: if that vCPU is off, only others leaving it are delayed.
        let mover = from.unwrap_or(0) % self.lines.movers.len();
        match self.touched.iter_mut().find(|(touched, _)| *touched == slot) {
            Some((_, by)) => *by = mover,
            None => self.touched.push((slot, mover)),
        }
    }

    fn send_orders(&mut self) {
        for i in 0..self.touched.len() {
            let (slot, mover) = self.touched[i];
            // If the ring is full, the main loop finds that the slot is behind.
            self.lines.movers[mover].order(slot, rustix::thread::sched_getcpu());
        }
        self.touched.clear();
    }

    fn explained(&self, made: Move, at_ns: u64) -> Decision {
        let left = |vcpu: Option<usize>| self.placer.vcpu(vcpu?)?.remaining_at(50, at_ns);
        let to = if let Target::Vcpu(vcpu) = made.to { Some(vcpu) } else { None };
        Decision { at_ns, made, left_here_ns: left(made.from), left_there_ns: left(to) }
    }

    /// The policy's state.
    pub fn placer(&self) -> &Placer {
        &self.placer
    }
}
