//! Turns a simulated run into its observation: the metrics that a real guest also gives, and those only a simulator
//! sees.

mod costs;
mod decisions;
mod io;
mod latency;

pub use io::is_worked;
pub use latency::prepare;

use reprieve_study::derive::{self, put};
use reprieve_study::grace_period::{GracePeriod, Span};
use reprieve_study::metric;
use reprieve_study::observation::{Observation, Provenance, VcpuTime};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::timeline::Timeline;
use reprieve_study::units::SECOND_NS;
use reprieve_study::{Scenario, Tape};

use crate::guest::env::Counters;
use crate::guest::vcpu::Times;
use crate::sched::Entity;
use crate::world::{Given, Granted, World};
use costs::Neighbours;
use latency::Watched;

/// The guest under test is the first one of the world.
const GUEST: usize = 0;

/// Totals at one moment. The difference of two describes the time between them.
#[derive(Clone, Debug, Default)]
struct Sums {
    now_ns: u64,
    operations: u64,
    memory_shortages: u64,
    times: Times,
    gp_kthread_ns: u64,
    ipis: u64,
    vcpus: Vec<(u64, u64)>,
    boosted: Option<Given>,
    granted: Option<Granted>,
    gang_slices: Option<u64>,
    left_alone_ns: Option<u64>,
    marks_ns: u64,
}

impl Sums {
    fn of(world: &World) -> Sums {
        let guest = world.guest(GUEST);
        let mut times = Times::default();
        for vcpu in guest.vcpus() {
            times.add(&vcpu.times_at(world.now_ns));
        }
        Sums {
            now_ns: world.now_ns,
            operations: guest.counters().operations,
            memory_shortages: guest.counters().memory_shortages,
            times,
            gp_kthread_ns: guest.gp_kthread_ns(),
            ipis: guest.ipis(),
            vcpus: world.vcpu_times(GUEST),
            boosted: world.boosted(),
            granted: world.granted(),
            gang_slices: world.gang_slices(),
            left_alone_ns: world.left_alone_ns(),
            marks_ns: guest.counters().marks_ns,
        }
    }
}

/// Threads of other VMs.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// VMs that compute forever.
    pub spinners: Vec<Entity>,
    /// Busy vCPUs of neighbour VMs.
    pub neighbours: Vec<Entity>,
}

/// Watches the guest under test during the window.
pub struct Observer {
    start: Sums,
    grace_periods: Vec<GracePeriod>,
    series: [Timeline; 4],
    looks: u64,
    /// Replaces RCU and memory if the workload measures latency.
    latency: Option<Watched>,
    /// Replaces RCU and memory if the workload does block I/O.
    io: Option<io::Watched>,
    neighbours: Neighbours,
}

impl Observer {
    /// Starts the window.
    pub fn begin(world: &mut World, scenario: &Scenario, built: &Others) -> Observer {
        world.record_descheduling();
        world.guest_mut(GUEST).rcu.finished();
        let start = Sums::of(world);
        let latency =
            scenario.workload.is_latency().then(|| Watched::begin(world, scenario, &built.spinners));
        let io = scenario.workload.io().map(|_| io::Watched::begin(world, scenario, &built.neighbours));
        let neighbours = Neighbours::begin(world, &built.neighbours);
        let (grace_periods, series) = (Vec::new(), Default::default());
        Observer { start, grace_periods, series, looks: 0, latency, io, neighbours }
    }

    /// Samples the guest's memory, and collects the grace periods that have ended.
    pub fn look(&mut self, world: &mut World) {
        self.looks += 1;
        let t_ns = world.now_ns - self.start.now_ns;
        self.grace_periods.extend(world.guest_mut(GUEST).rcu.finished());
        if let Some(io) = &mut self.io {
            io.look(world);
        }
        if self.latency.is_some() || self.io.is_some() {
            return;
        }
        let guest = world.guest_mut(GUEST);
        let values = [
            guest.memory.footprint_bytes() as f64,
            guest.memory.unusable_index(HUGE_PAGE_ORDER),
            guest.rcu.backlog() as f64,
            guest.memory.slab_bytes() as f64,
        ];
        for (series, value) in self.series.iter_mut().zip(values) {
            series.push(t_ns, value);
        }
    }

    /// Memory of the observer's records.
    pub fn held_bytes(&self) -> u64 {
        let points: usize = self.series.iter().map(|series| series.t_ns.len()).sum();
        let of_each =
            self.grace_periods.first().map_or(0, |gp| gp.cleared_ns.len() * size_of::<Option<u64>>());
        let grace_periods = self.grace_periods.len() * (size_of::<GracePeriod>() + of_each);
        (points * 2 * size_of::<u64>() + grace_periods) as u64
    }

    /// Checks the grace periods: each follows the one before it, and ended when all CPUs that it waited for had
    /// reported.
    ///
    /// # Errors
    /// The grace period that is impossible.
    pub fn check(&self) -> Result<(), String> {
        check_grace_periods(&self.grace_periods)
    }

    /// Ends the window.
    pub fn end(mut self, world: &mut World, run: &PlannedRun, mut provenance: Provenance) -> Observation {
        let end = Sums::of(world);
        let window_ns = end.now_ns - self.start.now_ns;
        provenance.window_ns = window_ns;
        provenance.samples = self.looks;
        provenance.vcpus = vcpu_times(&self.start, &end);
        let mut out = Observation::new(&run.condition, run.repetition, provenance);
        out.case = run.case.clone();
        out.sweep = run.sweep.clone();
        derive::cpu_given(&mut out);
        if let Some(latency) = self.latency.take() {
            self.throughput(&mut out, &end);
            latency.observe(&mut out, world);
            return out;
        }
        if let Some(io) = self.io.take() {
            self.throughput(&mut out, &end);
            io.observe(&mut out, world);
            return out;
        }
        derive::sync_latencies(&mut out, &world.guest(GUEST).counters().sync_ns);
        self.throughput(&mut out, &end);
        put(&mut out, metric::STALLS, (end.memory_shortages - self.start.memory_shortages) as f64);
        guest_cpu(&mut out, &self.start, &end);
        self.grace_periods(&mut out, world, run, &end);
        derive::memory(&mut out, std::mem::take(&mut self.series));
        self.neighbours.observe(&mut out, world);
        costs::boosts(&mut out, self.start.boosted, end.boosted);
        costs::ipis(&mut out, end.ipis - self.start.ipis);
        costs::left_alone(&mut out, self.start.left_alone_ns, end.left_alone_ns);
        costs::gangs(&mut out, self.start.gang_slices, end.gang_slices);
        costs::grants(&mut out, [self.start.granted, end.granted], [self.start.marks_ns, end.marks_ns]);
        out
    }

    fn throughput(&self, out: &mut Observation, end: &Sums) {
        let operations = (end.operations - self.start.operations) as f64;
        let window_ns = end.now_ns - self.start.now_ns;
        // A run that a limit ended in its warm-up has no rate.
        if window_ns > 0 {
            put(out, metric::THROUGHPUT, operations * SECOND_NS as f64 / window_ns as f64);
        }
    }

    fn grace_periods(&self, out: &mut Observation, world: &mut World, run: &PlannedRun, end: &Sums) {
        let look_ns = SECOND_NS / u64::from(run.scenario.observe.sample_hz);
        let descheduled = world.descheduled();
        derive::descheduling(out, &descheduled);
        out.tape = Some(Tape::new(Span::new(self.start.now_ns, world.now_ns), &descheduled));
        let descheduled = derive::long_enough(&descheduled, look_ns);
        let inside = self.grace_periods.partition_point(|gp| gp.span.start_ns < self.start.now_ns);
        let ended = &self.grace_periods[inside..];
        let open_ns = world.guest(GUEST).rcu.open_since_ns().map(|since_ns| world.now_ns - since_ns);
        let start_ns = self.start.now_ns;
        let descheduled: &[Vec<Span>] = &descheduled;
        derive::GracePeriods { ended, missed: 0, open_ns, descheduled, start_ns }.observe(out);
        if !ended.is_empty() {
            let kthread_ns = (end.gp_kthread_ns - self.start.gp_kthread_ns) as f64;
            let softirq_ns = (end.times.softirq_ns - self.start.times.softirq_ns) as f64;
            put(out, metric::GP_COMPUTE, (kthread_ns + softirq_ns) / ended.len() as f64);
            let stolen_ns = (end.times.gp_stolen_ns - self.start.times.gp_stolen_ns) as f64;
            put(out, metric::GP_COMPUTE_GUEST, (kthread_ns + softirq_ns + stolen_ns) / ended.len() as f64);
            put(out, metric::GP_KTHREAD, kthread_ns / ended.len() as f64);
        }
        out.holdouts = last_holdouts(ended, world.guest(GUEST).vcpus().len());
        let traced = derive::TraceOf { start_ns, grace_periods: ended, descheduled, running: &[] };
        out.trace = Some(traced.trace(out));
    }
}

/// Sets the throughput of a workload of fixed size as real guests measure it: all operations, from when the last worker
/// was ready until the last one finished. The other metrics cover the window, which ends when the first worker
/// finishes, because the load changes then. A run that a limit ended keeps the window's throughput.
pub fn fixed_work(out: &mut Observation, counters: &Counters, workers: u32) {
    if let Some(per_s) = rate_of_fixed_work(counters, workers) {
        put(out, metric::THROUGHPUT, per_s);
    }
}

fn rate_of_fixed_work(counters: &Counters, workers: u32) -> Option<f64> {
    let took_ns = counters.finished_ns.checked_sub(counters.ready_ns).filter(|ns| *ns > 0)?;
    let whole = workers > 0 && counters.finished == workers;
    whole.then(|| counters.operations as f64 * SECOND_NS as f64 / took_ns as f64)
}

/// Order of a huge page on x86-64.
const HUGE_PAGE_ORDER: u8 = 9;

fn check_grace_periods(ended: &[GracePeriod]) -> Result<(), String> {
    for gp in ended {
        let Span { start_ns, end_ns } = gp.span;
        if gp.cleared_ns.iter().flatten().any(|ns| !(start_ns..=end_ns).contains(ns)) {
            return Err(format!("grace period {} has a report from outside: {gp:?}", gp.sequence));
        }
    }
    let follows = |pair: &[GracePeriod]| {
        pair[1].sequence == pair[0].sequence + 1 && pair[0].span.end_ns <= pair[1].span.start_ns
    };
    match ended.windows(2).find(|pair| !follows(pair)) {
        Some(pair) => Err(format!("one grace period does not follow the other: {pair:?}")),
        None => Ok(()),
    }
}

fn vcpu_times(start: &Sums, end: &Sums) -> Vec<VcpuTime> {
    let pairs = start.vcpus.iter().zip(&end.vcpus);
    pairs.map(|(a, b)| VcpuTime { run_ns: b.0 - a.0, delay_ns: b.1 - a.1 }).collect()
}

fn guest_cpu(out: &mut Observation, start: &Sums, end: &Sums) {
    let spent = |of: fn(&Times) -> u64| (of(&end.times) - of(&start.times)) as f64;
    let kernel = spent(|times| times.system_ns + times.irq_ns + times.softirq_ns);
    let (user, idle) = (spent(|t| t.user_ns), spent(|t| t.idle_ns));
    let spin = spent(|times| times.spin_ns - times.spin_halted_ns);
    let total = kernel + user + idle;
    if total > 0.0 {
        put(out, metric::KERNEL_CPU, kernel / total);
        put(out, metric::IDLE_CPU, idle / total);
        put(out, metric::LOCK_SPIN, spin / total);
    }
}

/// How many grace periods each vCPU ended as the last holdout. If several reported together, each counts.
fn last_holdouts(ended: &[GracePeriod], vcpus: usize) -> Vec<u64> {
    let mut counts = vec![0; vcpus];
    for gp in ended {
        let last_ns = gp.cleared_ns.iter().flatten().max();
        for (count, cleared_ns) in counts.iter_mut().zip(&gp.cleared_ns) {
            *count += u64::from(cleared_ns.is_some() && cleared_ns.as_ref() == last_ns);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(sequence: u64, start_ns: u64, end_ns: u64, cleared_ns: &[Option<u64>]) -> GracePeriod {
        GracePeriod { sequence, span: Span { start_ns, end_ns }, cleared_ns: cleared_ns.to_vec() }
    }

    #[test]
    fn fixed_work_counts_from_the_last_that_is_ready_to_the_last_that_is_done() {
        let done = Counters {
            operations: 600,
            ready: 2,
            ready_ns: SECOND_NS,
            finished: 2,
            finished_ns: 4 * SECOND_NS,
            ..Counters::default()
        };
        assert_eq!(rate_of_fixed_work(&done, 2), Some(200.0));
        assert_eq!(
            rate_of_fixed_work(&Counters { finished: 1, ..done.clone() }, 2),
            None,
            "a limit came first"
        );
        assert_eq!(rate_of_fixed_work(&done, 0), None, "work without an end");
    }

    #[test]
    fn impossible_grace_periods_are_seen() {
        let first = || period(7, 100, 200, &[Some(100), Some(200), None]);
        let check = |second: GracePeriod| check_grace_periods(&[first(), second]);
        assert_eq!(check(period(8, 200, 300, &[Some(250), None, None])), Ok(()));
        for wrong in [
            period(8, 199, 300, &[Some(250)]),
            period(9, 200, 300, &[Some(250)]),
            period(8, 200, 300, &[None, Some(301)]),
            period(8, 200, 300, &[None, Some(199)]),
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
