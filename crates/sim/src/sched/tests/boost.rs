//! Boosts.

use reprieve_study::units::MILLISECOND_NS as MS;

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Fair, Policy};
use crate::sched::{Boosting, Cpu, Entity, Orders, Quota, Scheduler, Spec, Tunables};

const CPU: Cpu = Cpu(0);

fn fair<P: Policy>(new: fn(&Tunables) -> P, specs: &[Spec]) -> (Fair<P>, Orders) {
    let tunables = Tunables::linux(1, 250);
    let mut sched = Fair::new(1, &tunables, new(&tunables));
    let mut orders = Orders::default();
    for spec in specs {
        let entity = sched.add(spec);
        sched.wake(0, entity, None, &mut orders);
    }
    sched.pick(0, CPU, &mut orders);
    (sched, Orders::default())
}

fn fifth() -> Spec {
    let quota = Quota { quota_ns: 20 * MS, period_ns: 100 * MS, phase_ns: 0, burst_ns: 0 };
    Spec { quota: Some(quota), ..Spec::default() }
}

/// One entity with 20 of 100 ms, throttled since 20 ms.
fn throttled<P: Policy>(new: fn(&Tunables) -> P) -> (Fair<P>, Orders) {
    let (mut sched, mut orders) = fair(new, &[fifth()]);
    sched.tick(20 * MS, CPU, &mut orders);
    assert_eq!(sched.pick(20 * MS, CPU, &mut orders), None);
    assert!(sched.is_throttled(Entity(0)));
    (sched, Orders::default())
}

fn runs_beyond_its_quota_and_pays_in_the_next_period<P: Policy>(new: fn(&Tunables) -> P) {
    let (mut sched, mut orders) = throttled(new);
    sched.boost(30 * MS, Entity(0), &mut orders);
    assert_eq!(orders.resched, [CPU]);
    assert_eq!(sched.pick(30 * MS, CPU, &mut orders), Some(Entity(0)));
    sched.tick(32 * MS, CPU, &mut orders);
    assert_eq!(sched.pick(32 * MS, CPU, &mut orders), Some(Entity(0)), "the quota does not end it");
    assert_eq!(sched.debt_ns(33 * MS, Entity(0)), 2 * MS, "as of the last accounting");
    orders = Orders::default();
    sched.end_boost(34 * MS, Entity(0), &mut orders);
    assert_eq!(orders.resched, [CPU]);
    assert_eq!(sched.pick(34 * MS, CPU, &mut orders), None);
    assert_eq!((sched.is_throttled(Entity(0)), sched.debt_ns(34 * MS, Entity(0))), (true, 4 * MS));
    sched.timer(100 * MS, 0, &mut orders);
    assert_eq!(sched.pick(100 * MS, CPU, &mut orders), Some(Entity(0)));
    sched.tick(116 * MS, CPU, &mut orders);
    assert_eq!(sched.pick(116 * MS, CPU, &mut orders), None, "16 ms are left of the second period");
}

fn runs_before_others_and_falls_behind_them<P: Policy>(new: fn(&Tunables) -> P) {
    let (mut sched, mut orders) = fair(new, &[Spec::default(), Spec::default()]);
    let first = sched.running(CPU).expect("one runs");
    let second = Entity(1 - first.0);
    // The first runs a slice, so that the second is due; instead the first is boosted.
    sched.boost(0, first, &mut orders);
    for at_ns in [4 * MS, 8 * MS, 12 * MS] {
        sched.tick(at_ns, CPU, &mut orders);
        assert_eq!(sched.pick(at_ns, CPU, &mut orders), Some(first));
    }
    // Half of 12 ms is fair; under CFS a new entity starts a little behind the others.
    assert!((4 * MS..=6 * MS).contains(&sched.debt_ns(12 * MS, first)));
    sched.end_boost(12 * MS, first, &mut orders);
    assert_eq!(sched.pick(12 * MS, CPU, &mut orders), Some(second));
    // The one that is boosted takes the CPU from the one that is due.
    sched.boost(13 * MS, first, &mut orders);
    assert_eq!(sched.pick(13 * MS, CPU, &mut orders), Some(first));
    sched.end_boost(14 * MS, first, &mut orders);
    assert_eq!(sched.pick(14 * MS, CPU, &mut orders), Some(second), "it has had 13 of 14 ms");
}

fn who_wakes_boosted_runs_at_once<P: Policy>(new: fn(&Tunables) -> P) {
    let (mut sched, mut orders) = fair(new, &[Spec::default(), fifth()]);
    while sched.running(CPU) != Some(Entity(1)) {
        sched.yield_now(MS, CPU, &mut orders);
        sched.pick(MS, CPU, &mut orders);
    }
    sched.block(2 * MS, CPU, &mut orders);
    sched.pick(2 * MS, CPU, &mut orders);
    sched.boost(3 * MS, Entity(1), &mut orders);
    orders = Orders::default();
    sched.wake(4 * MS, Entity(1), None, &mut orders);
    assert_eq!(orders.resched, [CPU]);
    assert_eq!(sched.pick(4 * MS, CPU, &mut orders), Some(Entity(1)));
}

fn whose_boost_ends_while_it_waits_is_throttled<P: Policy>(new: fn(&Tunables) -> P) {
    let (mut sched, mut orders) = throttled(new);
    sched.boost(30 * MS, Entity(0), &mut orders);
    sched.end_boost(30 * MS, Entity(0), &mut orders);
    assert!(sched.is_throttled(Entity(0)));
    assert_eq!(sched.pick(30 * MS, CPU, &mut orders), None);
    sched.check();
}

#[test]
fn under_cfs() {
    runs_beyond_its_quota_and_pays_in_the_next_period(Cfs::new);
    runs_before_others_and_falls_behind_them(Cfs::new);
    who_wakes_boosted_runs_at_once(Cfs::new);
    whose_boost_ends_while_it_waits_is_throttled(Cfs::new);
}

#[test]
fn under_eevdf() {
    runs_beyond_its_quota_and_pays_in_the_next_period(Eevdf::new);
    runs_before_others_and_falls_behind_them(Eevdf::new);
    who_wakes_boosted_runs_at_once(Eevdf::new);
    whose_boost_ends_while_it_waits_is_throttled(Eevdf::new);
}
