//! A look: signals in from the rings, through the policy, orders out to the movers. It allocates nothing, writes nothing, and
//! waits for nobody.
//!
//! Invariant: signals are taken in the order of time wherever they come from, so that a vCPU whose beats have not been read
//! yet never looks as if it were off; orders go out when all is read, so that of a task moved twice on old beats only the last counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use reprieve_policy::beat::{Beat, StealReads, grain_ns};
use reprieve_policy::place::{Move, Placer, Settings, Target};
use reprieve_policy::signal::Signal;

use super::off_times::OffTimes;
use crate::migrate::act::mover::Mover;
use crate::migrate::find::io_events::Sorter;
use crate::migrate::link::entry::{Decision, Entry};
use rtrb::{Consumer, Producer};

use crate::migrate::link::shared::Shared;
use crate::migrate::masks::table::Table;
use crate::proc::StealReader;

/// What a beat that is older told is not so any more, ns: much happens in two periods of the fastest beats.
const OLD_NS: u64 = 2_000_000;

/// Where the decider's signals come from and its decisions go.
pub struct Lines {
    /// From each beat thread.
    pub beats: Vec<Consumer<Signal>>,
    /// From the house thread.
    pub main_loop: Consumer<Signal>,
    /// Events of I/O, where there is a source of them.
    pub events: Option<Sorter>,
    /// To the house thread.
    pub log: Producer<Entry>,
    /// To the movers, one for each vCPU that tasks leave; none if decisions are only told.
    pub movers: Vec<Mover>,
}

/// Where a signal is.
#[derive(Clone, Copy, Debug)]
enum Head {
    MainLoop,
    Event,
    Beat(usize),
}

/// What it goes by.
pub struct Decider {
    placer: Placer,
    lines: Lines,
    table: Arc<Table>,
    shared: Arc<Shared>,
    steal: Option<StealReader>,
    steal_reads: StealReads,
    off_times: OffTimes,
    /// Whether signals are told to the house thread, too.
    records: bool,
    made: Vec<Move>,
    /// Slots that movers must look at, with the vCPU that is left.
    touched: Vec<(usize, usize)>,
    /// Entries lost since the last that was told.
    untold: u64,
}

impl Decider {
    /// With nothing known yet. `steal` is read at late beats, if there is one.
    pub fn new(
        settings: Settings,
        lines: Lines,
        table: Arc<Table>,
        shared: Arc<Shared>,
        steal: Option<StealReader>,
        records: bool,
    ) -> Decider {
        Decider {
            placer: Placer::new(settings),
            steal_reads: StealReads::new(settings.vcpus),
            made: Vec::with_capacity(settings.tasks),
            touched: Vec::with_capacity(settings.tasks),
            lines,
            table,
            shared,
            steal,
            off_times: OffTimes::default(),
            records,
            untold: 0,
        }
    }

    /// With an oracle's knowledge.
    pub fn told(self, off_times: OffTimes) -> Decider {
        Decider { off_times, ..self }
    }

    /// Takes in all signals that are there, and lets time pass up to `now_ns`.
    pub fn step(&mut self, now_ns: u64) {
        self.shared.looked_ns.store(now_ns, Ordering::Relaxed);
        if let Some(events) = &mut self.lines.events {
            events.begin();
        }
        while let Some(signal) = self.off_times.due(now_ns) {
            self.take(signal);
        }
        self.catch_up(now_ns);
        while let Some(head) = self.oldest() {
            match head {
                Head::MainLoop => self.take_from_house(),
                Head::Event => self.take_event(),
                Head::Beat(line) => self.take_beat(line, now_ns),
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

    /// Beats that have waited, while who was here was on a vCPU that was off, are learnt from, and not acted on: only the
    /// last ones tell what is now.
    fn catch_up(&mut self, now_ns: u64) {
        let oldest_ns =
            self.lines.beats.iter_mut().filter_map(|beats| Some(beats.peek().ok()?.at_ns())).min();
        if oldest_ns.is_some_and(|oldest_ns| now_ns.saturating_sub(oldest_ns) > OLD_NS) {
            self.take(Signal::CatchUp { until_ns: now_ns.saturating_sub(grain_ns(OLD_NS)) });
        }
    }

    /// Where the oldest signal is that is there.
    fn oldest(&mut self) -> Option<Head> {
        let Lines { beats, main_loop, events, .. } = &mut self.lines;
        let main_loop = main_loop.peek().ok().map(|signal| (signal.at_ns(), Head::MainLoop));
        let event = events.as_mut().and_then(Sorter::peek_ns).map(|at_ns| (at_ns, Head::Event));
        let beats = beats.iter_mut().enumerate();
        let beats = beats.filter_map(|(line, beats)| Some((beats.peek().ok()?.at_ns(), Head::Beat(line))));
        main_loop.into_iter().chain(event).chain(beats).min_by_key(|(at_ns, _)| *at_ns).map(|(_, head)| head)
    }

    /// What undoes a placement gives the user's mask back, too: a task that the policy has forgotten must not stay bound.
    fn take_from_house(&mut self) {
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
            Some(other) => self.tell(other),
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
            let steal = self.steal.as_mut()?;
            steal.read(now_ns).ok()?;
            steal.steal_ns(beat.vcpu)
        };
        Signal::Beat(self.steal_reads.fill(beat, now_ns, read))
    }

    fn take(&mut self, signal: Signal) {
        if self.records {
            self.tell(Entry::Signal(signal));
        }
        self.made.clear();
        self.made.extend_from_slice(self.placer.take(&signal));
        for i in 0..self.made.len() {
            let made = self.made[i];
            let cpu = if let Target::Vcpu(vcpu) = made.to { Some(vcpu) } else { None };
            self.want(made.task, cpu, made.from);
            let decision = self.explained(made, signal.at_ns());
            self.tell(Entry::Decision(decision));
        }
    }

    /// Tells the house thread; what does not fit is counted, and that told in its place as soon as something fits.
    fn tell(&mut self, entry: Entry) {
        if self.untold > 0 && self.lines.log.push(Entry::Lost(self.untold)).is_ok() {
            self.untold = 0;
        }
        let told = self.untold == 0 && self.lines.log.push(entry).is_ok();
        self.untold += u64::from(!told);
        self.shared.count_lost(told);
    }

    fn want(&mut self, slot: usize, cpu: Option<usize>, from: Option<usize>) {
        if self.lines.movers.is_empty() || slot >= self.table.slots() {
            return;
        }
        self.table.want(slot, cpu);
        // By the vCPU that is left: a task that runs on one that is off holds up only what leaves that one.
        let mover = from.unwrap_or(0) % self.lines.movers.len();
        match self.touched.iter_mut().find(|(touched, _)| *touched == slot) {
            Some((_, by)) => *by = mover,
            None => self.touched.push((slot, mover)),
        }
    }

    fn send_orders(&mut self) {
        for i in 0..self.touched.len() {
            let (slot, mover) = self.touched[i];
            // One that does not fit is found by the house thread.
            self.lines.movers[mover].look_at(slot, rustix::thread::sched_getcpu());
        }
        self.touched.clear();
    }

    fn explained(&self, made: Move, at_ns: u64) -> Decision {
        let left = |vcpu: Option<usize>| Some(self.placer.vcpu(vcpu?)?.remaining(at_ns)?.median_ns);
        let to = if let Target::Vcpu(vcpu) = made.to { Some(vcpu) } else { None };
        Decision { at_ns, made, left_here_ns: left(made.from), left_there_ns: left(to) }
    }

    /// The policy's state.
    pub fn placer(&self) -> &Placer {
        &self.placer
    }
}
