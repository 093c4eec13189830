//! The same mixes on the simulator's schedulers.

use reprieve_sim::sched::cfs::Cfs;
use reprieve_sim::sched::eevdf::Eevdf;
use reprieve_sim::sched::fair::{Fair, Policy};
use reprieve_sim::sched::machine::{self, Machine, Run};
use reprieve_sim::sched::{Entity, Quota, Spec, Tunables};

use crate::mixes::{Kind, LEAST_OFF_NS, Mix, Seen, WARM_UP_NS, WINDOW_NS, Work};

/// Debian's tick.
const HZ: u64 = 250;
/// Ticks are late by up to so much, as interrupts are: without, threads of equal weight are equal to the nanosecond at each tick,
/// which no real ones are. In the real guest a sleeper that no thread keeps from running runs 20 us after its time (in the simulation, at
/// its time). Added after a first comparison without.
const LATE_TICK_NS: u64 = 20_000;
/// Between the starts of threads: nobody starts at the same instant.
const STAGGER_NS: u64 = 130_000;

/// What each thread of a mix sees under the scheduler of that kernel.
pub fn run(mix: &Mix, is_eevdf: bool) -> Vec<Seen> {
    let tunables = Tunables::linux(1, HZ);
    match is_eevdf {
        true => on(mix, Fair::new(1, &tunables, Eevdf::new(&tunables))),
        false => on(mix, Fair::new(1, &tunables, Cfs::new(&tunables))),
    }
}

fn on<P: Policy>(mix: &Mix, sched: Fair<P>) -> Vec<Seen> {
    let mut machine = Machine::new(1, sched).with_late_ticks(LATE_TICK_NS);
    let kinds: Vec<Kind> = mix.kinds.iter().flat_map(|kind| vec![*kind; kind.count]).collect();
    let entities: Vec<Entity> = kinds
        .iter()
        .enumerate()
        .map(|(number, kind)| {
            machine.spawn(number as u64 * STAGGER_NS, work(*kind, number as u64), &spec(*kind))
        })
        .collect();
    machine.run_until(WARM_UP_NS + WINDOW_NS, |_| ());
    entities.into_iter().map(|entity| seen(entity, &machine.runs, &machine.wakes)).collect()
}

fn work(kind: Kind, state: u64) -> machine::Work {
    match kind.work {
        Work::Spin => machine::Work::Spin,
        Work::Sleeps { sleep_us, work_us } => {
            machine::Work::Spread { run_ns: work_us * 1000, sleep_ns: sleep_us * 1000, state }
        }
    }
}

fn spec(kind: Kind) -> Spec {
    let quota = kind.quota.map(|(percent, period_ms)| Quota {
        quota_ns: period_ms * 10_000 * percent,
        period_ns: period_ms * 1_000_000,
        phase_ns: 0,
        burst_ns: 0,
    });
    Spec { weight: weight(kind.nice), quota, ..Spec::default() }
}

/// `sched_prio_to_weight` of Linux (kernel/sched/core.c), where it is used here.
fn weight(nice: i32) -> u32 {
    match nice {
        -5 => 3121,
        0 => 1024,
        5 => 335,
        10 => 110,
        _ => unreachable!("no mix has it"),
    }
}

fn seen(entity: Entity, runs: &[Run], wakes: &[(u64, Entity)]) -> Seen {
    let (from_ns, to_ns) = (WARM_UP_NS, WARM_UP_NS + WINDOW_NS);
    let runs: Vec<&Run> = runs.iter().filter(|run| run.entity == entity).collect();
    let mut seen = Seen::default();
    for run in &runs {
        seen.run_ns += run.to_ns.min(to_ns).saturating_sub(run.from_ns.max(from_ns));
    }
    let wakes: Vec<u64> =
        wakes.iter().filter(|(_, other)| *other == entity).map(|(at_ns, _)| *at_ns).collect();
    for pair in runs.windows(2) {
        let (end_ns, next_ns) = (pair[0].to_ns, pair[1].from_ns);
        if end_ns < from_ns || next_ns > to_ns {
            continue;
        }
        // A wake in between: it slept.
        let woken = wakes.partition_point(|at_ns| *at_ns < end_ns);
        match wakes.get(woken).filter(|at_ns| **at_ns <= next_ns) {
            Some(at_ns) => seen.late_ns.push(next_ns - at_ns),
            None if next_ns - end_ns >= LEAST_OFF_NS => seen.off_ns.push(next_ns - end_ns),
            None => {}
        }
    }
    seen
}
