//! Bandwidth.

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Fair, Policy};
use crate::sched::machine::{Machine, Work};
use crate::sched::{Cpu, Entity, Orders, Quota, Scheduler, Spec, Tunables};

fn eevdf(cpus: usize, tunables: &Tunables) -> Machine<Eevdf> {
    Machine::new(cpus, Fair::new(cpus, tunables, Eevdf::new(tunables)))
}

fn cfs(cpus: usize, tunables: &Tunables) -> Machine<Cfs> {
    Machine::new(cpus, Fair::new(cpus, tunables, Cfs::new(tunables)))
}

fn limited(quota_ns: u64, phase_ns: u64) -> Spec {
    Spec { quota: Some(Quota { quota_ns, period_ns: 100 * MS, phase_ns, burst_ns: 0 }), ..Spec::default() }
}

fn assert_a_fifth<P: Policy>(mut machine: Machine<P>, others: usize) {
    let phase_ns = 37 * MS + 1;
    let entity = machine.spawn(0, Work::Spin, &limited(20 * MS, phase_ns));
    for _ in 0..others {
        machine.spawn(0, Work::Spin, &Spec::default());
    }
    let tick_ns = machine.sched.tick_ns();
    machine.run_until(phase_ns + 10 * S, |_| {});
    let periods = (0..100).map(|period| phase_ns + period * 100 * MS);
    for from_ns in periods {
        let ran_ns = machine.ran_ns(entity, from_ns, from_ns + 100 * MS);
        assert!(ran_ns.abs_diff(20 * MS) <= tick_ns, "{ran_ns} in the period from {from_ns}");
    }
    let ran_ns = machine.ran_ns(entity, phase_ns, phase_ns + 10 * S);
    assert!(ran_ns.abs_diff(2 * S) < 2 * S / 100, "{ran_ns}");
}

#[test]
fn a_fifth_of_a_cpu() {
    for hz in [100, 250, 1000] {
        for others in [0, 1] {
            assert_a_fifth(eevdf(1, &Tunables::linux(2, hz)), others);
            assert_a_fifth(cfs(1, &Tunables::linux(2, hz)), others);
        }
    }
}

#[test]
fn who_overshoots_pays_next_time() {
    // Ticks of 10 ms and a quota of 15 ms: 20, 10, 20, 10, ...
    let mut machine = eevdf(1, &Tunables::linux(1, 100));
    let entity = machine.spawn(0, Work::Spin, &limited(15 * MS, 0));
    machine.run_until(S, |_| {});
    let ran_ms: Vec<_> =
        (0..10).map(|at| machine.ran_ns(entity, at * 100 * MS, (at + 1) * 100 * MS) / MS).collect();
    assert_eq!(ran_ms, [20, 10, 20, 10, 20, 10, 20, 10, 20, 10]);
}

#[test]
fn unused_run_time_is_not_saved() {
    let mut machine = eevdf(1, &Tunables::linux(1, 1000));
    let entity = machine.spawn(5 * S, Work::Spin, &limited(20 * MS, 0));
    machine.run_until(6 * S, |_| {});
    assert_eq!(machine.ran_ns(entity, 0, 6 * S), 10 * 20 * MS);
}

#[test]
fn unused_run_time_is_saved_up_to_the_burst() {
    for (burst_ms, ran_ms) in [(5, 205), (20, 220)] {
        let mut machine = eevdf(1, &Tunables::linux(1, 1000));
        let Spec { quota: Some(quota), .. } = limited(20 * MS, 0) else { panic!("it is limited") };
        let quota = Some(Quota { burst_ns: burst_ms * MS, ..quota });
        let entity = machine.spawn(5 * S, Work::Spin, &Spec { quota, ..Spec::default() });
        machine.run_until(6 * S, |_| {});
        assert_eq!(machine.ran_ns(entity, 0, 6 * S), ran_ms * MS);
    }
}

#[test]
fn no_timer_while_nobody_is_throttled() {
    let mut machine = cfs(1, &Tunables::linux(1, 1000));
    machine.spawn(0, Work::Bursts { run_ns: 10 * MS, sleep_ns: 90 * MS }, &limited(20 * MS, 0));
    machine.run_until(S, |_| {});
    assert_eq!(machine.armed, []);
    // 10 ms run ten times: ticks then, and no others.
    assert!((90..=110).contains(&machine.ticks), "{}", machine.ticks);
}

#[test]
fn the_grid_stays() {
    let mut machine = eevdf(1, &Tunables::linux(1, 1000));
    machine.spawn(1_234 * MS, Work::Spin, &limited(20 * MS, 70 * MS));
    machine.run_until(1_500 * MS, |_| {});
    assert_eq!(machine.armed[..2], [(0, 1_270 * MS), (0, 1_370 * MS)]);
}

#[test]
fn same_grid_refills_in_order_of_entities_and_throttled_ones_do_not_wait() {
    let mut sched = {
        let tunables = Tunables::linux(2, 1000);
        Fair::new(2, &tunables, Eevdf::new(&tunables))
    };
    let pinned = |cpu| Spec { allowed: vec![Cpu(cpu)], ..limited(MS, 0) };
    let entities = [sched.add(&pinned(1)), sched.add(&pinned(0))];
    let mut orders = Orders::default();
    for entity in entities {
        sched.wake(0, entity, None, &mut orders);
    }
    for cpu in [Cpu(0), Cpu(1)] {
        sched.pick(0, cpu, &mut orders);
    }
    assert_eq!(orders.ticks, [Cpu(0), Cpu(1)]);
    // The second is throttled first.
    for cpu in [Cpu(0), Cpu(1)] {
        orders = Orders::default();
        sched.tick(MS, cpu, &mut orders);
        assert_eq!(orders.resched, [cpu]);
        assert_eq!(sched.pick(MS, cpu, &mut orders), None);
        assert_eq!(orders.arm, if cpu == Cpu(0) { vec![(0, 100 * MS)] } else { vec![] });
        assert_eq!(sched.waiting(cpu), 0);
        assert!(!sched.needs_tick(cpu));
    }
    assert!(entities.iter().all(|&entity| sched.is_throttled(entity)));
    orders = Orders::default();
    sched.wake(50 * MS, Entity(0), None, &mut orders);
    assert_eq!(orders, Orders::default(), "throttled is not blocked");
    sched.timer(100 * MS, 0, &mut orders);
    assert_eq!(orders.resched, [Cpu(1), Cpu(0)]);
    assert!(!entities.iter().any(|&entity| sched.is_throttled(entity)));
}

#[test]
fn who_blocks_in_debt_is_throttled_when_it_wakes() {
    let tunables = Tunables::linux(1, 1000);
    let mut sched = Fair::new(1, &tunables, Cfs::new(&tunables));
    let entity = sched.add(&limited(MS, 0));
    let mut orders = Orders::default();
    sched.wake(0, entity, None, &mut orders);
    assert_eq!(sched.pick(0, Cpu(0), &mut orders), Some(entity));
    sched.block(250 * MS, Cpu(0), &mut orders);
    assert!(!sched.is_throttled(entity));
    orders = Orders::default();
    sched.wake(260 * MS, entity, None, &mut orders);
    assert!(sched.is_throttled(entity));
    assert_eq!(orders, Orders { arm: vec![(0, 300 * MS)], ..Orders::default() });
    // 249 ms of debt: 249 more periods.
    let mut periods = 0;
    while sched.is_throttled(entity) {
        let (number, at_ns) = orders.arm.pop().unwrap();
        sched.timer(at_ns, number, &mut orders);
        periods += 1;
    }
    assert_eq!(periods, 250);
}
