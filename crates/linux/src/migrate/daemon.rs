//! Starts the daemon's threads, connects them by rings, and ends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use reprieve_policy::place::Settings;
use reprieve_policy::signal::Signal;
use rtrb::{Producer, RingBuffer};

use crate::migrate::act::{self, Mover, Outcomes};
use crate::migrate::decide::{Decider, Lines, SharedDecider};
use crate::migrate::find::{Events, Sorter};
use crate::migrate::link::{Shared, Sleeper, Status};
use crate::migrate::main_loop::Links;
use crate::migrate::masks::Table;
use crate::migrate::{Notice, Options, beat};
use crate::proc::StealReader;
use crate::{Error, Result};

/// Capacity of a ring of beats: a quarter of a second at 1 ms, during which no thread may run the decider.
const BEATS: usize = 256;
/// Capacity of the ring of signals from the main loop.
const SIGNALS: usize = 2048;
/// Capacity of the ring of entries to the main loop, without a record.
const ENTRIES: usize = 2048;
/// The same with a record: more than half a second of beats of 12 vCPUs.
const RECORDED_ENTRIES: usize = 16_384;
/// Stack size of a thread, bytes. Stacks are locked in memory and therefore small; no thread here needs more.
const STACK_BYTES: usize = 256 << 10;
/// How long to wait for a thread to report its priority. A thread whose vCPU is off may take longer.
const BEGINS: Duration = Duration::from_secs(2);

/// The daemon's threads other than the main loop.
pub struct Daemon {
    shared: Arc<Shared>,
    table: Arc<Table>,
    outcomes: Arc<Outcomes>,
    sleepers: Vec<Arc<Sleeper>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// What connects the main loop to the other threads, until it is taken.
    pub links: Option<Links>,
}

impl Daemon {
    /// Starts the threads, and waits until each beat thread has reported whether it got real-time priority.
    ///
    /// # Errors
    /// If a thread cannot be started; those already started are ended.
    pub fn start(
        options: &Options,
        settings: Settings,
        vcpus: &[usize],
        table: &Arc<Table>,
        events: Option<Box<dyn Events>>,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<Daemon> {
        let records = options.record.is_some();
        let (signals, main_loop) = RingBuffer::<Signal>::new(SIGNALS);
        let (log, entries) = RingBuffer::new(if records { RECORDED_ENTRIES } else { ENTRIES });
        let shared = Arc::new(Shared::new(settings.vcpus, options.period_ns.1));
        let (status, outcomes) = (Arc::new(Status::new(settings.vcpus)), Arc::new(Outcomes::default()));
        let mut daemon = Daemon {
            shared: Arc::clone(&shared),
            table: Arc::clone(table),
            outcomes: Arc::clone(&outcomes),
            sleepers: Vec::new(),
            threads: Vec::new(),
            links: Some(Links { signals, log: entries, shared, status: Arc::clone(&status), outcomes }),
        };
        let movers = if options.apply { daemon.start_movers(settings.vcpus)? } else { Vec::new() };
        let (outs, beats): (Vec<_>, Vec<_>) = vcpus.iter().map(|_| RingBuffer::new(BEATS)).unzip();
        let lines = Lines {
            beats,
            main_loop,
            events: events.map(|events| Sorter::new(events, table.slots())),
            log,
            movers,
            steal: StealReader::open(&options.roots.proc, settings.vcpus).ok(),
            off_times: options.off_times.clone(),
            records,
        };
        let (table, shared) = (Arc::clone(table), Arc::clone(&daemon.shared));
        let decider = Decider::new(settings, lines, table, shared);
        let decider = Arc::new(SharedDecider::new(decider, status));
        let (raised, are_raised) = channel();
        for (vcpu, out) in vcpus.iter().copied().zip(outs) {
            daemon.start_beat(vcpu, options, &decider, out, raised.clone())?;
        }
        drop(raised);
        if !all_raised(&are_raised) {
            let text =
                "without real-time priority beats come late under load: run as root, or raise ulimit -r";
            tell(Notice::Warning(text.into()));
        }
        Ok(daemon)
    }

    fn start_movers(&mut self, count: usize) -> Result<Vec<Mover>> {
        let mut movers = Vec::new();
        for vcpu in 0..count {
            let (orders, taken) = RingBuffer::new(2 * self.table.slots());
            let sleeper = Arc::new(Sleeper::default());
            let (own, table) = (Arc::clone(&sleeper), Arc::clone(&self.table));
            let (outcomes, shared) = (Arc::clone(&self.outcomes), Arc::clone(&self.shared));
            self.spawn(&format!("mover {vcpu}"), move || act::run(taken, &own, &table, &outcomes, &shared))?;
            movers.push(Mover::new(orders, Arc::clone(&sleeper)));
            self.sleepers.push(sleeper);
        }
        Ok(movers)
    }

    fn start_beat(
        &mut self,
        vcpu: usize,
        options: &Options,
        decider: &Arc<SharedDecider>,
        out: Producer<Signal>,
        raised: Sender<bool>,
    ) -> Result<()> {
        let (shared, decider, proc) =
            (Arc::clone(&self.shared), Arc::clone(decider), options.roots.proc.clone());
        self.spawn(&format!("beat {vcpu}"), move || {
            beat::run(vcpu, &proc, &shared, &decider, out, move |ok| {
                // Fails only if this comes so late that `start` no longer waits for it.
                let _ = raised.send(ok);
            })
        })
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let builder = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(body).map_err(|e| {
            self.end();
            Error::io("start", "a thread", e, "raise ulimit -u, and also -l, since memory is locked")
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends all threads. Returns how many affinities they have changed.
    pub fn end(&mut self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.sleepers.iter().for_each(|sleeper| sleeper.wake());
        // Joining fails only for a thread that panicked, which has ended too.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.outcomes.done.load(Ordering::Relaxed)
    }
}

/// Whether all beat threads got real-time priority. Each reports once and then drops its sender.
fn all_raised(raised: &Receiver<bool>) -> bool {
    let mut all = true;
    loop {
        match raised.recv_timeout(BEGINS) {
            Ok(ok) => all &= ok,
            Err(RecvTimeoutError::Disconnected) => return all,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}
