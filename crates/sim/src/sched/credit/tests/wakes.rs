//! BOOST, and whom a wake interrupts.

use super::*;
use crate::sched::xen::Refusal;

/// A hog that has run since a while without BOOST on pCPU 0, and a blocked vCPU pinned beside it.
fn beside_a_hog(mut bench: Bench) -> (Bench, Entity, Entity) {
    let hog = bench.woken(&[0]);
    bench.pass(5 * MS);
    bench.tick(0);
    let other = bench.add(&[0]);
    bench.sched.log.take();
    (bench, hog, other)
}

/// A machine of one pCPU: no idle pCPUs.
fn crowded() -> (Bench, Entity, Entity) {
    beside_a_hog(Bench::xen(1))
}

#[test]
fn a_wake_boosts_who_is_under_and_preempts_who_is_not_boosted() {
    let (mut bench, hog, other) = crowded();
    bench.wake(other);
    assert_eq!((bench.priority(other), bench.running(0)), (Priority::Boost, Some(other)));
    assert_eq!(bench.waiting(0), [hog]);
    assert_eq!(bench.kinds(other), [Kind::Boosted, Kind::Tickled]);
}

#[test]
fn an_over_vcpu_is_never_boosted() {
    let (mut bench, hog, other) = crowded();
    bench.vcpu(other).over = true;
    bench.wake(other);
    assert_eq!((bench.priority(other), bench.running(0)), (Priority::Over, Some(hog)));
    let why = Refusal::NotHigher { woken: Priority::Over, current: Priority::Under };
    assert_eq!(bench.kinds(other), [Kind::TickleRefused(why)]);
}

#[test]
fn an_inactive_vcpu_is_boosted_whatever_it_owes() {
    let (mut bench, _, other) = crowded();
    bench.vcpu(other).credit = -5_000;
    bench.wake(other);
    assert_eq!((bench.priority(other), bench.running(0)), (Priority::Boost, Some(other)));
}

#[test]
fn equals_never_preempt() {
    let (mut bench, hog, other) = crowded();
    bench.vcpu(hog).boosted = true;
    bench.wake(other);
    assert_eq!(bench.running(0), Some(hog));
    // Nor does an UNDER one another, which only a wake without BOOST shows.
    let (mut bench, hog, other) = crowded();
    bench.vcpu(other).parked = true;
    bench.vcpu(other).state = crate::sched::credit::vcpu::State::Parked;
    bench.activate(other);
    bench.account();
    assert_eq!((bench.running(0), bench.waiting(0)), (Some(hog), vec![other]));
}

#[test]
fn a_wake_of_who_runs_or_waits_does_nothing() {
    let (mut bench, hog, other) = crowded();
    bench.vcpu(hog).boosted = true;
    bench.wake(hog);
    bench.wake(other);
    bench.vcpu(other).boosted = false;
    bench.vcpu(hog).boosted = false;
    bench.wake(other);
    assert_eq!((bench.priority(other), bench.running(0)), (Priority::Under, Some(hog)));
}

#[test]
fn a_tick_ends_a_boost_and_does_not_reschedule() {
    let (mut bench, hog, other) = crowded();
    bench.wake(other);
    bench.pass(2 * MS);
    assert!(!bench.tick(0));
    assert_eq!((bench.priority(other), bench.running(0)), (Priority::Under, Some(other)));
    // Even if who waits is now more important.
    bench.vcpu(other).over = true;
    bench.vcpu(hog).boosted = true;
    assert!(!bench.tick(0));
    assert_eq!(bench.running(0), Some(other));
}

#[test]
fn the_queue_is_ordered_by_priority_and_first_come_among_equals() {
    let (mut bench, hog, _) = crowded();
    bench.vcpu(hog).boosted = true;
    let [a, b, c, d, e] = [(); 5].map(|()| bench.add(&[0]));
    bench.vcpu(a).over = true;
    bench.vcpu(d).over = true;
    for entity in [a, b, c, d, e] {
        bench.wake(entity);
    }
    assert_eq!(bench.waiting(0), [b, c, e, a, d]);
    // A vCPU that yields lets one of the next lower priority go first.
    bench.sched.yield_now(bench.now_ns, Cpu(0), &mut bench.orders);
    bench.vcpu(hog).boosted = true;
    bench.orders.resched.push(Cpu(0));
    bench.obey();
    assert_eq!((bench.running(0), bench.waiting(0)), (Some(b), vec![c, e, a, hog, d]));
}

#[test]
fn a_tick_after_an_accounting_brings_the_queue_into_order() {
    let (mut bench, hog, _) = crowded();
    bench.vcpu(hog).boosted = true;
    let [first, second] = [(); 2].map(|()| bench.woken(&[0]));
    bench.activate(first);
    bench.vcpu(first).credit = -200;
    bench.account();
    assert_eq!((bench.priority(first), bench.waiting(0)), (Priority::Over, vec![first, second]));
    bench.tick(0);
    assert_eq!(bench.waiting(0), [second, first]);
}

#[test]
fn an_idle_pcpu_is_interrupted_by_anyone() {
    let mut bench = Bench::xen(1);
    let entity = bench.add(&[0]);
    bench.vcpu(entity).over = true;
    bench.wake(entity);
    assert_eq!(bench.running(0), Some(entity));
}

#[test]
fn a_suitable_idle_pcpu_takes_the_woken_one_and_the_hog_goes_on() {
    let (mut bench, hog, _) = beside_a_hog(Bench::xen(3));
    let other = bench.add(&[0, 2]);
    bench.vcpu(other).cpu = 0;
    bench.wake(other);
    assert_eq!((bench.running(0), bench.running(1), bench.running(2)), (Some(hog), None, Some(other)));
    assert!(bench.kinds(other).contains(&Kind::Stolen));
}

#[test]
fn idle_pcpus_are_interrupted_in_turn() {
    let mut bench = Bench::xen(4);
    bench.woken(&[0]);
    let mut taken = Vec::new();
    for _ in 0..3 {
        let entity = bench.add(&[]);
        bench.vcpu(entity).cpu = 0;
        bench.wake(entity);
        taken.push(bench.vcpu(entity).cpu);
        bench.vcpu(entity).boosted = false;
    }
    assert_eq!(taken, [1, 2, 3]);
}
