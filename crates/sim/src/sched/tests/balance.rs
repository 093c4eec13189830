//! Placement, balancing, and which CPUs tick.

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Fair, Policy};
use crate::sched::machine::{Machine, Work};
use crate::sched::{Cpu, Entity, Orders, Pausing, Placement, Scheduler, Spec, Tunables};

fn eevdf(cpus: usize) -> Fair<Eevdf> {
    let tunables = Tunables::linux(cpus, 1000);
    Fair::new(cpus, &tunables, Eevdf::new(&tunables))
}

fn cfs(cpus: usize) -> Fair<Cfs> {
    let tunables = Tunables::linux(cpus, 1000);
    Fair::new(cpus, &tunables, Cfs::new(&tunables))
}

fn pinned(cpus: &[u32]) -> Spec {
    Spec { allowed: cpus.iter().copied().map(Cpu).collect(), ..Spec::default() }
}

/// Spinners on a machine for that long: run time of each.
fn ran_ns<P: Policy>(cpus: usize, sched: Fair<P>, specs: &[Spec], for_ns: u64) -> Vec<u64> {
    let mut machine = Machine::new(cpus, sched);
    let entities: Vec<_> = specs.iter().map(|spec| machine.spawn(0, Work::Spin, spec)).collect();
    machine.run_until(for_ns, |_| {});
    entities.iter().map(|&entity| machine.ran_ns(entity, 0, for_ns)).collect()
}

#[test]
fn as_many_entities_as_cpus_never_meet_nor_tick() {
    let mut machine = Machine::new(100, eevdf(100));
    for at in 0..100 {
        machine.spawn(at * 1000, Work::Spin, &Spec::default());
    }
    machine.run_until(S, |_| {});
    assert_eq!((machine.runs.len(), machine.ticks), (100, 0));
}

#[test]
fn three_on_two_cpus_take_turns() {
    fn test(ran_ns: &[u64]) {
        assert_eq!(ran_ns.iter().sum::<u64>(), 20 * S);
        let fair_ns = 20 * S / 3;
        assert!(ran_ns.iter().all(|ran_ns| ran_ns.abs_diff(fair_ns) < fair_ns / 20), "{ran_ns:?}");
    }
    test(&ran_ns(2, eevdf(2), &vec![Spec::default(); 3], 10 * S));
    test(&ran_ns(2, cfs(2), &vec![Spec::default(); 3], 10 * S));
}

#[test]
fn many_are_spread_over_domains() {
    // 130 CPUs are 3 domains; two entities a CPU, and a pinned one.
    let mut specs = vec![Spec::default(); 260];
    specs.push(pinned(&[129]));
    let ran_ns = ran_ns(130, eevdf(130), &specs, 4 * S);
    assert_eq!(ran_ns.iter().sum::<u64>(), 130 * 4 * S);
    assert!(ran_ns.iter().all(|ran_ns| (S..3 * S).contains(ran_ns)), "{ran_ns:?}");
}

/// Entities of those weights, allowed on those CPUs, woken and picked one after the other without time between.
fn woken<P: Policy>(sched: &mut Fair<P>, specs: &[(u32, &[u32])]) -> Vec<Entity> {
    let wake = |&(weight, cpus): &(u32, &[u32])| {
        let mut orders = Orders::default();
        let entity = sched.add(&Spec { weight, ..pinned(cpus) });
        sched.wake(0, entity, None, &mut orders);
        assert!(orders.resched.len() <= 1);
        orders.resched.pop().map(|cpu| sched.pick(0, cpu, &mut orders));
        entity
    };
    specs.iter().map(wake).collect()
}

/// What an idle CPU runs when it picks.
fn pulled<P: Policy>(sched: &mut Fair<P>, cpu: u32) -> Option<Entity> {
    sched.pick(1000, Cpu(cpu), &mut Orders::default())
}

fn block<P: Policy>(sched: &mut Fair<P>, cpu: u32) {
    sched.block(1000, Cpu(cpu), &mut Orders::default());
}

#[test]
fn a_cpu_that_goes_idle_pulls_from_its_domain_then_from_another() {
    // 128 CPUs, two domains. All but the last may run on CPU 5 or 100, which are busy.
    for cpu in [5, 100] {
        let mut sched = eevdf(128);
        let entities = woken(&mut sched, &[(1024, &[5]), (1024, &[100]), (1024, &[0]), (1024, &[0, cpu])]);
        assert_eq!((sched.waiting(Cpu(0)), sched.waiting(Cpu(cpu))), (1, 0));
        block(&mut sched, cpu);
        assert_eq!(pulled(&mut sched, cpu), Some(entities[3]));
        sched.check();
    }
}

/// What runs on that CPU waits, and another runs.
fn yields<P: Policy>(sched: &mut Fair<P>, cpu: u32) {
    let ran = sched.running(Cpu(cpu));
    sched.yield_now(0, Cpu(cpu), &mut Orders::default());
    assert_ne!(sched.pick(0, Cpu(cpu), &mut Orders::default()), ran);
}

#[test]
fn a_cpu_that_goes_idle_pulls_from_the_busiest() {
    for weights in [[1024, 1025], [1025, 1024]] {
        let mut sched = eevdf(3);
        let pins: [(u32, &[u32]); 3] = [(1024, &[2]), (weights[0], &[0]), (weights[1], &[1])];
        let movers = woken(&mut sched, &[(1024, &[0, 2]), (1024, &[1, 2])]);
        woken(&mut sched, &pins);
        (0..2).for_each(|cpu| yields(&mut sched, cpu));
        block(&mut sched, 2);
        let busiest = (weights[1] > weights[0]) as usize;
        assert_eq!(pulled(&mut sched, 2), Some(movers[busiest]));
    }
}

/// Whether CPU 0 gives one of what waits there to CPU 1 when balancing is due.
fn relieved<P: Policy>(mut sched: Fair<P>, specs: &[(u32, &[u32])], to: u32) -> bool {
    woken(&mut sched, specs);
    yields(&mut sched, 0);
    let waited = sched.waiting(Cpu(to));
    sched.relieve_now(0, Cpu(0), &mut Orders::default());
    sched.check();
    sched.waiting(Cpu(to)) > waited
}

#[test]
fn balancing_moves_one_if_there_are_two_too_many_or_a_quarter_of_the_load() {
    let free: (u32, &[u32]) = (1024, &[0, 1]);
    let crowd = |here: usize, there: usize| {
        let pins = [vec![(1024, &[0][..]); here], vec![(1024, &[1][..]); there]].concat();
        // (It is woken first, so that CPU 0 has it.)
        [vec![free], pins].concat()
    };
    // 10 and 8, 10 and 9, 2 and 1.
    assert!(relieved(eevdf(2), &crowd(9, 8), 1));
    assert!(!relieved(eevdf(2), &crowd(9, 9), 1));
    assert!(relieved(eevdf(2), &crowd(1, 1), 1));
    // Never so that the other has more than this one had.
    assert!(relieved(eevdf(2), &[(2048, &[0, 1]), (3072, &[0]), (3072, &[1])], 1));
    assert!(!relieved(eevdf(2), &[(2048, &[0, 1]), (3072, &[0]), (3073, &[1])], 1));
}

#[test]
fn balancing_reaches_another_domain() {
    let specs: [(u32, &[u32]); 4] = [(1024, &[0, 100]), (1024, &[0]), (1024, &[0]), (1024, &[100])];
    assert!(relieved(eevdf(128), &specs, 100));
}

#[test]
fn a_woken_entity_goes_near_its_waker_if_that_is_in_another_domain() {
    let mut sched = eevdf(128);
    let [mover, _] = woken(&mut sched, &[(1024, &[0, 80]), (1024, &[0])])[..] else { unreachable!() };
    assert_eq!(sched.running(Cpu(0)), Some(mover));
    block(&mut sched, 0);
    sched.pick(1000, Cpu(0), &mut Orders::default());
    let mut orders = Orders::default();
    sched.wake(2000, mover, Some(Cpu(75)), &mut orders);
    assert_eq!(orders.resched, [Cpu(80)]);
}

#[test]
fn a_switch_is_ordered_once() {
    let mut sched = cfs(1);
    let entities = [1, 2, 3].map(|_| sched.add(&Spec::default()));
    let mut orders = Orders::default();
    entities.iter().for_each(|&entity| sched.wake(0, entity, None, &mut orders));
    assert_eq!(orders.resched, [Cpu(0)]);
    sched.pick(0, Cpu(0), &mut orders);
    (1..5).for_each(|tick| sched.tick(tick * 20 * MS, Cpu(0), &mut orders));
    assert_eq!(orders.resched, [Cpu(0); 2]);
}

#[test]
fn a_tick_moves_one_to_an_idle_cpu() {
    let mut machine = Machine::new(2, eevdf(2));
    let free = machine.spawn(0, Work::Spin, &Spec::default());
    machine.spawn(MS / 2, Work::Spin, &pinned(&[0]));
    machine.run_until(100 * MS, |_| {});
    let last = machine.runs.iter().rfind(|run| run.entity == free).unwrap();
    assert_eq!((last.cpu, last.to_ns), (Cpu(1), 100 * MS));
    // The pinned one gets its turn at the first tick; at the second, the other one moves.
    assert_eq!((last.from_ns, machine.ticks), (2 * MS, 2));
}

#[test]
fn a_woken_entity_goes_where_it_was_or_to_an_idle_cpu_or_to_its_waker() {
    let mut sched = eevdf(4);
    let mut orders = Orders::default();
    let mut wake = |sched: &mut Fair<Eevdf>, now_ns, entity, from| {
        orders = Orders::default();
        sched.wake(now_ns, entity, from, &mut orders);
        let cpu = orders.resched.pop();
        cpu.into_iter().for_each(|cpu| assert!(sched.pick(now_ns, cpu, &mut orders).is_some()));
        cpu
    };
    let mover = sched.add(&pinned(&[1, 2, 3]));
    assert_eq!(wake(&mut sched, 0, mover, None), Some(Cpu(1)));
    sched.block(10, Cpu(1), &mut Orders::default());
    assert_eq!(sched.pick(10, Cpu(1), &mut Orders::default()), None);
    assert_eq!(wake(&mut sched, 20, mover, Some(Cpu(3))), Some(Cpu(1)), "where it was");
    sched.block(30, Cpu(1), &mut Orders::default());
    // CPUs 1, 2 and 3 are taken one after the other, 1 by a heavy one.
    for (cpu, weight, expected) in [(1, 2048, 2), (2, 1024, 3)] {
        let taker = sched.add(&Spec { weight, ..pinned(&[cpu]) });
        assert_eq!(wake(&mut sched, 40, taker, None), Some(Cpu(cpu)));
        assert_eq!(wake(&mut sched, 50, mover, None), Some(Cpu(expected)), "the next idle one");
        sched.block(60, Cpu(expected), &mut Orders::default());
        sched.pick(60, Cpu(expected), &mut Orders::default());
    }
    let last = sched.add(&Spec { weight: 2048, ..pinned(&[3]) });
    wake(&mut sched, 70, last, None);
    wake(&mut sched, 80, mover, Some(Cpu(2)));
    assert_eq!([1, 2, 3].map(|cpu| sched.waiting(Cpu(cpu))), [0, 1, 0], "the waker's has less load");
}

#[test]
fn of_equally_loaded_cpus_the_waker_s_is_chosen_and_a_busier_one_is_not() {
    for (weight, expected) in [(1024, 1), (1100, 1), (1120, 0)] {
        let (mut sched, mut orders) = (cfs(2), Orders::default());
        let mover = sched.add(&Spec::default());
        sched.wake(0, mover, None, &mut orders);
        sched.pick(0, Cpu(0), &mut orders);
        sched.block(10, Cpu(0), &mut orders);
        for (cpu, weight) in [(0, 1024), (1, weight)] {
            let taker = sched.add(&Spec { weight, ..pinned(&[cpu]) });
            sched.wake(20, taker, None, &mut orders);
            sched.pick(20, Cpu(cpu), &mut orders);
        }
        sched.wake(30, mover, Some(Cpu(1)), &mut orders);
        assert_eq!(sched.place(mover), Some(Cpu(expected)), "of weight {weight} at the waker's");
    }
}

#[test]
fn pinned_entities_are_left_alone() {
    let specs = [&[0][..], &[0], &[0], &[1]].map(pinned);
    let ran_ns = ran_ns(4, cfs(4), &specs, 3 * S);
    assert_eq!(ran_ns[3], 3 * S);
    assert!(ran_ns[..3].iter().all(|ran_ns| ran_ns.abs_diff(S) < S / 100), "{ran_ns:?}");
}

#[test]
fn ticks_only_where_they_can_decide() {
    let mut sched = eevdf(2);
    let mut orders = Orders::default();
    let entities = [0, 0].map(|cpu| sched.add(&pinned(&[cpu])));
    assert!(!sched.needs_tick(Cpu(0)));
    sched.wake(0, entities[0], None, &mut orders);
    sched.pick(0, Cpu(0), &mut orders);
    assert!(!sched.needs_tick(Cpu(0)) && orders.ticks.is_empty());
    sched.wake(10, entities[1], None, &mut orders);
    assert_eq!(orders.ticks, [Cpu(0)]);
    sched.pick(10, Cpu(0), &mut orders);
    assert!(sched.needs_tick(Cpu(0)) && !sched.needs_tick(Cpu(1)));
    sched.block(20, Cpu(0), &mut orders);
    sched.pick(20, Cpu(0), &mut orders);
    assert!(!sched.needs_tick(Cpu(0)));
    assert_eq!(orders.ticks, [Cpu(0)]);
}

#[test]
fn lag_and_deadline_move_with_an_entity() {
    // Two entities are crowded, with lag; one goes to a CPU with one more entity, and has its lag there.
    let mut sched = eevdf(2);
    let mut orders = Orders::default();
    let free = Spec { allowed: vec![Cpu(0), Cpu(1)], ..Spec::default() };
    let [a, b, c] = [&pinned(&[0]), &free, &pinned(&[1])].map(|spec| sched.add(spec));
    sched.wake(0, c, None, &mut orders);
    assert_eq!(sched.pick(0, Cpu(1), &mut orders), Some(c));
    sched.wake(0, b, None, &mut orders);
    assert_eq!(sched.pick(0, Cpu(0), &mut orders), Some(b));
    // `a` comes to `b`, which runs on until its slice is over, then waits.
    sched.wake(MS, a, None, &mut orders);
    let mut now_ns = MS;
    while sched.running(Cpu(0)) == Some(b) {
        now_ns += MS;
        sched.pick(now_ns, Cpu(0), &mut Orders::default());
    }
    // The other CPU is accounted for too, so that lag is not of old.
    sched.pick(now_ns, Cpu(1), &mut Orders::default());
    let lag_ns = |sched: &Fair<Eevdf>, cpu, entity: Entity| {
        sched.lags_ns(Cpu(cpu)).iter().find(|lag| lag.0 == entity).map(|lag| lag.1)
    };
    let before_ns = lag_ns(&sched, 0, b).unwrap();
    sched.relieve_now(now_ns, Cpu(0), &mut Orders::default());
    assert_eq!(lag_ns(&sched, 0, b), None);
    let after_ns = lag_ns(&sched, 1, b).unwrap();
    assert!(before_ns != 0 && before_ns.abs_diff(after_ns) <= 2, "{before_ns} {after_ns}");
}

#[test]
fn who_pauses_is_load_where_it_will_be_back_and_who_sleeps_is_none() {
    for pauses in [false, true] {
        let mut sched = cfs(2);
        woken(&mut sched, &[(1024, &[0]), (1024, &[0]), (1024, &[0, 1]), (1024, &[0, 1])]);
        assert_eq!((sched.waiting(Cpu(0)), sched.waiting(Cpu(1))), (1, 1));
        let ran = sched.running(Cpu(0));
        let mut orders = Orders::default();
        if pauses {
            sched.pause(1000, Cpu(0), 30 * MS, &mut orders);
        } else {
            sched.block(1000, Cpu(0), &mut orders);
        }
        assert_ne!(sched.pick(1000, Cpu(0), &mut orders), ran);
        sched.relieve_now(1000, Cpu(1), &mut orders);
        sched.check();
        assert_eq!(sched.waiting(Cpu(1)), usize::from(pauses), "CPU 0 has as much to do as before");
        sched.wake(2000, ran.unwrap(), None, &mut orders);
        sched.check();
    }
}

#[test]
fn who_pauses_keeps_what_it_has_a_right_to_up_to_the_limit() {
    let lag_ns = |keeps_ns: Option<u64>, for_ns: u64| {
        let mut sched = cfs(1);
        woken(&mut sched, &[(1024, &[0]), (1024, &[0])]);
        let pauser = sched.running(Cpu(0)).unwrap();
        let mut orders = Orders::default();
        match keeps_ns {
            Some(keeps_ns) => sched.pause(1000, Cpu(0), keeps_ns, &mut orders),
            None => sched.block(1000, Cpu(0), &mut orders),
        }
        let other = sched.pick(1000, Cpu(0), &mut orders).unwrap();
        let now_ns = 1000 + for_ns;
        sched.wake(now_ns, pauser, None, &mut orders);
        let lags = [sched.lag_ns(now_ns, pauser), sched.lag_ns(now_ns, other)];
        assert!((lags[0] + lags[1]).abs() <= 1, "of two the one is as far behind as the other is ahead");
        sched.favour(now_ns, pauser, &mut orders);
        assert_eq!(sched.pick(now_ns, Cpu(0), &mut orders), Some(pauser));
        lags[0]
    };
    let near = |lag_ns: i64, expected_ns: u64| lag_ns.abs_diff(expected_ns as i64) < 3 * MS / 2 + 10_000;
    assert!(near(lag_ns(Some(30 * MS), 100 * MS), 15 * MS), "half of it, for it is behind their average");
    assert!(near(lag_ns(Some(30 * MS), 20 * MS), 10 * MS));
    assert!(near(lag_ns(None, 100 * MS), 3 * MS / 2), "a sleeper's bonus");
}
