//! From a simulated run to its observation: the same metrics as a real guest's, and what only a simulator sees.

use std::collections::BTreeMap;

use reprieve_study::derive::{self, put};
use reprieve_study::grace_period::{GracePeriod, Span};
use reprieve_study::metric;
use reprieve_study::observation::{Observation, Provenance, Standing, VcpuTime};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::timeline::Timeline;
use reprieve_study::units::SECOND_NS;

use crate::guest::vcpu::Times;
use crate::world::World;

/// The guest under test: the first one of a world.
const GUEST: usize = 0;

/// Sums at one moment; two of them bound a window.
#[derive(Clone, Debug, Default)]
struct Sums {
    now_ns: u64,
    operations: u64,
    stalls: u64,
    times: Times,
    gp_kthread_ns: u64,
    vcpus: Vec<(u64, u64)>,
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
            stalls: guest.counters().stalls,
            times,
            gp_kthread_ns: guest.gp_kthread_ns(),
            vcpus: world.vcpu_times(GUEST),
        }
    }
}

/// Watches the guest under test during the window.
pub struct Observer {
    start: Sums,
    grace_periods: Vec<GracePeriod>,
    series: [Timeline; 4],
    looks: u64,
}

impl Observer {
    /// The window begins.
    pub fn begin(world: &mut World) -> Observer {
        world.record_descheduling();
        world.guest_mut(GUEST).rcu.finished();
        Observer {
            start: Sums::of(world),
            grace_periods: Vec::new(),
            series: Default::default(),
            looks: 0,
        }
    }

    /// Looks at the guest's memory and takes the grace periods that have ended.
    pub fn look(&mut self, world: &mut World) {
        let t_ns = world.now_ns - self.start.now_ns;
        let guest = world.guest_mut(GUEST);
        self.grace_periods.extend(guest.rcu.finished());
        let values = [
            guest.memory.footprint_bytes() as f64,
            guest.memory.unusable_index(HUGE_PAGE_ORDER),
            guest.backlog() as f64,
            guest.memory.slab_bytes() as f64,
        ];
        for (series, value) in self.series.iter_mut().zip(values) {
            series.push(t_ns, value);
        }
        self.looks += 1;
    }

    /// The window ends.
    pub fn end(mut self, world: &mut World, run: &PlannedRun, mut provenance: Provenance) -> Observation {
        let end = Sums::of(world);
        let window_ns = end.now_ns - self.start.now_ns;
        provenance.window_ns = window_ns;
        provenance.samples = self.looks;
        provenance.vcpus = vcpu_times(&self.start, &end);
        let mut out = Observation {
            condition: run.condition.clone(),
            repetition: run.repetition,
            standing: Standing::Accepted,
            provenance,
            metrics: BTreeMap::new(),
            distributions: BTreeMap::new(),
            timelines: BTreeMap::new(),
            sweep: run.sweep.clone(),
            holdouts: Vec::new(),
            trace: None,
        };
        derive::cpu_given(&mut out);
        derive::sync_latencies(&mut out, &world.guest(GUEST).counters().sync_ns);
        self.throughput(&mut out, &end);
        guest_cpu(&mut out, &self.start, &end);
        self.grace_periods(&mut out, world, run, &end);
        derive::memory(&mut out, std::mem::take(&mut self.series));
        out
    }

    fn throughput(&self, out: &mut Observation, end: &Sums) {
        let operations = (end.operations - self.start.operations) as f64;
        let window_ns = (end.now_ns - self.start.now_ns).max(1) as f64;
        put(out, metric::THROUGHPUT, operations * SECOND_NS as f64 / window_ns);
        put(out, metric::STALLS, (end.stalls - self.start.stalls) as f64);
    }

    fn grace_periods(&self, out: &mut Observation, world: &mut World, run: &PlannedRun, end: &Sums) {
        let look_ns = SECOND_NS / u64::from(run.scenario.observe.sample_hz);
        let descheduled = derive::long_enough(&world.descheduled(), look_ns);
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

/// Order of a huge page on x86-64.
const HUGE_PAGE_ORDER: u8 = 9;

fn vcpu_times(start: &Sums, end: &Sums) -> Vec<VcpuTime> {
    let pairs = start.vcpus.iter().zip(&end.vcpus);
    pairs.map(|(a, b)| VcpuTime { run_ns: b.0 - a.0, delay_ns: b.1 - a.1 }).collect()
}

fn guest_cpu(out: &mut Observation, start: &Sums, end: &Sums) {
    let spent = |of: fn(&Times) -> u64| (of(&end.times) - of(&start.times)) as f64;
    let kernel = spent(|times| times.system_ns + times.irq_ns + times.softirq_ns);
    let (user, idle, spin) = (spent(|t| t.user_ns), spent(|t| t.idle_ns), spent(|t| t.spin_ns));
    let total = kernel + user + idle;
    if total > 0.0 {
        put(out, metric::KERNEL_CPU, kernel / total);
        put(out, metric::IDLE_CPU, idle / total);
        put(out, metric::LOCK_SPIN, spin / total);
    }
}

/// For each vCPU, how many grace periods it ended as the last holdout.
fn last_holdouts(ended: &[GracePeriod], vcpus: usize) -> Vec<u64> {
    let mut counts = vec![0; vcpus];
    for gp in ended {
        let cleared = gp.cleared_ns.iter().enumerate().filter_map(|(vcpu, ns)| Some(((*ns)?, vcpu)));
        if let Some((_, vcpu)) = cleared.max() {
            counts[vcpu] += 1;
        }
    }
    counts
}
