//! The thread that looks: at a fixed rate, for as long as a run lasts.
//!
//! It needs to run on time, so it takes the lowest real-time priority where that is permitted. Each look is a
//! few dozen loads; grace periods are followed at every look, memory and backlog at every fourth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use reprieve_linux::clock::{now_ns, sleep_until, thread_cpu_ns};
use reprieve_linux::threads::{FifoGuard, set_timer_slack_ns};
use reprieve_study::units::SECOND_NS;
use reprieve_study::{Distribution, GracePeriod, Span, statistics};

use super::grace_periods::{GRACE_PERIODS, GpTracker};
use super::scheduling::{Scheduling, Watcher};
use crate::introspect::{CpuState, Impossible, ImpossibleLooks, MemoryState, RcuWork, Reader};
use crate::{Result, VmError};

/// Memory and backlog are read at every so many looks.
const MEMORY_EVERY: u64 = 4;
/// Memory samples kept, at most: an hour at the default rate.
const MEMORY_SAMPLES: usize = 2_000_000;
/// Looks that found RCU being computed that are kept, at most.
const WORK_SAMPLES: usize = 20_000_000;

/// Memory and backlog at one time.
#[derive(Clone, Copy, Debug)]
pub struct MemorySample {
    /// When.
    pub t_ns: u64,
    /// Footprint, fragmentation, slab.
    pub memory: MemoryState,
    /// Callbacks that wait.
    pub backlog: u64,
}

/// A look that found RCU being computed.
#[derive(Clone, Copy, Debug)]
pub struct WorkSample {
    /// When.
    pub t_ns: u64,
    /// What was computing.
    pub work: RcuWork,
}

/// What was seen from start to finish.
#[derive(Debug)]
pub struct Recording {
    /// First to last look.
    pub window: Span,
    /// Grace periods whose start and end were seen.
    pub grace_periods: Vec<GracePeriod>,
    /// Grace periods that came and went between two looks.
    pub missed_gps: u64,
    /// Age of the grace period that was still open at the end, if its start was seen.
    pub open_gp_ns: Option<u64>,
    /// Memory and backlog over time.
    pub memory: Vec<MemorySample>,
    /// Looks that found RCU being computed.
    pub work: Vec<WorkSample>,
    /// Number of looks.
    pub looks: u64,
    /// Time between looks.
    pub gaps: Distribution,
    /// CPU time that the guest accounted, at the first and at the last look.
    pub cpu: (CpuState, CpuState),
    /// What the host's scheduler did to the vCPUs.
    pub scheduling: Scheduling,
    /// CPU time of this thread.
    pub observer_cpu_ns: u64,
    /// What was not permitted.
    pub notes: Vec<String>,
}

/// A sampler at work. Dropping it ends the looking.
pub struct Sampler {
    thread: Option<JoinHandle<Recording>>,
    stop: Arc<AtomicBool>,
}

impl Sampler {
    /// Begins to look, on average `hz` times a second; the seed determines the time between looks.
    pub fn start(reader: Reader, watcher: Watcher, hz: u32, seed: u64) -> Result<Sampler> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen_stop = Arc::clone(&stop);
        let pace =
            Pace { period_ns: SECOND_NS / u64::from(hz.max(1)), rng: statistics::stream(seed, "looks") };
        let body = move || record(&reader, watcher, pace, &seen_stop);
        let builder = std::thread::Builder::new().name("guest-sampler".into());
        let thread = builder.spawn(body).map_err(VmError::io("starting the sampler"))?;
        Ok(Sampler { thread: Some(thread), stop })
    }

    /// Ends the looking and gives what was seen.
    pub fn finish(mut self) -> Recording {
        self.end().expect("it is ended only once").expect("the sampler does not panic")
    }

    fn end(&mut self) -> Option<std::thread::Result<Recording>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // A run that failed needs no recording, and its sampler must not look on.
        let _ = self.end();
    }
}

/// When to look. The time between looks is random, half to one and a half periods: a fixed one would run in
/// step with the guest's tick, and see always the same phase of it.
struct Pace {
    period_ns: u64,
    rng: ChaCha8Rng,
}

impl Pace {
    fn next_ns(&mut self) -> u64 {
        self.rng.random_range(self.period_ns / 2..=self.period_ns + self.period_ns / 2)
    }
}

/// The body of the thread.
fn record(reader: &Reader, mut watcher: Watcher, mut pace: Pace, stop: &AtomicBool) -> Recording {
    let mut notes = Vec::new();
    let _priority = FifoGuard::raise(1)
        .map_err(|error| notes.push(format!("the sampler runs without real-time priority: {error}")));
    let _ = set_timer_slack_ns(1);
    let (mut tracker, mut impossible) = (GpTracker::new(reader.cpus()), ImpossibleLooks::default());
    let (mut memory, mut work, mut gaps) = (Vec::new(), Vec::new(), Distribution::default());
    let cpu = reader.cpu();
    let start_ns = now_ns();
    let (mut last_ns, mut next_ns, mut looks) = (start_ns, start_ns, 0);
    while !stop.load(Ordering::Relaxed) {
        let t_ns = now_ns();
        gaps.record(t_ns - last_ns);
        last_ns = t_ns;
        impossible.see(tracker.see(t_ns, reader.gp()));
        let busy = reader.rcu_work();
        if (busy.gp_kthread_on.is_some() || busy.in_softirq != 0) && work.len() < WORK_SAMPLES {
            work.push(WorkSample { t_ns, work: busy });
        }
        if looks % MEMORY_EVERY == 0 && memory.len() < MEMORY_SAMPLES {
            memory.push(MemorySample { t_ns, memory: reader.memory(), backlog: reader.backlog() });
            impossible.see(reader.impossible());
        }
        watcher.look(t_ns, looks);
        looks += 1;
        // A late look is not made up for: that would only come in bursts.
        next_ns = (next_ns + pace.next_ns()).max(now_ns());
        sleep_until(next_ns);
    }
    let window = Span::new(start_ns, last_ns);
    let open_gp_ns = tracker.open_ns(last_ns);
    let (grace_periods, missed_gps) = tracker.finish();
    let cpu = (cpu, reader.cpu());
    impossible.see(Impossible::cpu_time(cpu.0, cpu.1));
    notes.extend(impossible.note());
    if grace_periods.len() == GRACE_PERIODS {
        notes.push(format!("only the first {GRACE_PERIODS} grace periods were kept; the others are counted"));
    }
    let observer_cpu_ns = thread_cpu_ns();
    Recording {
        window,
        grace_periods,
        missed_gps,
        open_gp_ns,
        memory,
        work,
        looks,
        gaps,
        cpu,
        scheduling: watcher.finish(window),
        observer_cpu_ns,
        notes,
    }
}
