//! What a pCPU runs next: slices, rate limit, stealing, migration.

use super::*;
use crate::sched::credit::params::Rearm;

/// When the timer of pCPU 0 of a machine of that many was armed for last.
fn armed_ns(bench: &Bench) -> u64 {
    let number = 1 + bench.sched.params.cpus;
    bench.orders.arm.iter().rfind(|armed| armed.0 == number).unwrap().1
}

#[test]
fn equals_take_turns_of_a_slice() {
    let mut bench = Bench::xen(1);
    let [a, b, c] = [(); 3].map(|()| bench.woken(&[0]));
    for (turn, expected) in [a, b, c, a, b].into_iter().enumerate() {
        assert_eq!((bench.running(0), armed_ns(&bench)), (Some(expected), (turn as u64 + 1) * 30 * MS));
        bench.end_slice(0);
    }
}

#[test]
fn debt_is_not_noticed_at_the_end_of_a_slice() {
    let mut bench = Bench::xen(1);
    let [hog, over] = [(); 2].map(|()| bench.woken(&[0]));
    bench.vcpu(hog).boosted = false;
    bench.vcpu(over).boosted = false;
    bench.vcpu(over).over = true;
    for slices in 1..=3 {
        bench.end_slice(0);
        assert_eq!((bench.running(0), bench.credit(hog)), (Some(hog), -300 * slices));
    }
}

#[test]
fn the_rate_limit_keeps_who_ran_for_less_and_arms_the_timer_again() {
    for (version, again_ns) in [(Version::V4_5, 1_400_000), (Version::V4_7, 1_400_000), (Version::V4_17, MS)]
    {
        let mut bench = Bench::new(Params::xen(version, 1));
        let hog = bench.woken(&[0]);
        bench.vcpu(hog).boosted = false;
        let other = bench.add(&[0]);
        bench.pass(400 * US);
        bench.wake(other);
        assert_eq!((bench.running(0), armed_ns(&bench)), (Some(hog), again_ns), "{version:?}");
        assert_eq!(bench.kinds(hog).last(), Some(&Kind::RateLimited));
        bench.end_slice(0);
        assert_eq!(bench.running(0), Some(other));
    }
}

#[test]
fn the_rate_limit_ends_to_the_nanosecond_and_0_is_none() {
    for (ratelimit_ns, ran_ns, kept) in [(MS, MS - 1, true), (MS, MS, false), (0, 0, false)] {
        let mut bench = Bench::new(Params { ratelimit_ns, ..Params::xen(Version::V4_17, 1) });
        let hog = bench.woken(&[0]);
        bench.vcpu(hog).boosted = false;
        let other = bench.add(&[0]);
        bench.pass(ran_ns);
        bench.wake(other);
        assert_eq!(bench.running(0), Some(if kept { hog } else { other }));
    }
    // What is left of the limit, but for the distance of two timer interrupts.
    assert_eq!(Params::xen(Version::V4_17, 1).rearm, Rearm::Left);
    for (ran_ns, armed) in [(MS - 1, MS - 1 + 50 * US), (900 * US, MS), (100 * US, MS), (60 * US, MS)] {
        let mut bench = Bench::xen(1);
        bench.woken(&[0]);
        bench.sched.vcpus[0].boosted = false;
        let other = bench.add(&[0]);
        bench.pass(ran_ns);
        bench.wake(other);
        assert_eq!(armed_ns(&bench), armed, "ran for {ran_ns} ns");
    }
}

#[test]
fn who_blocks_is_not_held_by_the_rate_limit_and_starts_a_new_one() {
    let mut bench = Bench::xen(1);
    let [a, b] = [(); 2].map(|()| bench.woken(&[0]));
    bench.pass(100 * US);
    bench.block(0);
    assert_eq!((bench.running(0), armed_ns(&bench)), (Some(b), 30 * MS + 100 * US));
    // b has run for 0.9 ms, not for 1 ms, though a ran before it.
    bench.vcpu(b).boosted = false;
    bench.pass(900 * US);
    bench.wake(a);
    assert_eq!(bench.running(0), Some(b));
}

#[test]
fn a_pick_that_nobody_ordered_changes_nothing() {
    let mut bench = Bench::xen(1);
    let hog = bench.woken(&[0]);
    bench.woken(&[0]);
    bench.pass(100 * US);
    let armed = bench.orders.arm.len();
    bench.orders.resched.push(Cpu(0));
    bench.obey();
    assert_eq!((bench.running(0), bench.orders.arm.len()), (Some(hog), armed));
}

#[test]
fn an_expired_timer_of_an_earlier_slice_is_ignored() {
    let mut bench = Bench::xen(1);
    let [_, b] = [(); 2].map(|()| bench.woken(&[0]));
    bench.pass(10 * MS);
    bench.block(0);
    bench.now_ns = 30 * MS;
    assert!(!bench.timer(2));
    assert_eq!(bench.running(0), Some(b));
}

#[test]
fn a_pcpu_steals_what_is_strictly_more_important_than_its_own() {
    // pCPU 0: a hog, and a waiting one of each priority that pCPU 1 might run; pCPU 1: an OVER one.
    let expected = [(Priority::Over, false), (Priority::Under, true), (Priority::Boost, true)];
    for (priority, stolen) in expected {
        let mut bench = Bench::xen(2);
        let (hog, over, waits) = (bench.woken(&[0]), bench.woken(&[1]), bench.add(&[]));
        bench.vcpu(hog).boosted = true;
        bench.vcpu(over).boosted = false;
        bench.vcpu(waits).cpu = 0;
        bench.wake(waits);
        (bench.vcpu(waits).boosted, bench.vcpu(waits).over) =
            (priority == Priority::Boost, priority == Priority::Over);
        bench.vcpu(over).over = true;
        bench.end_slice(1);
        assert_eq!(bench.running(1), Some(if stolen { waits } else { over }), "{priority:?}");
    }
}

#[test]
fn an_idle_pcpu_steals_anything_that_it_may_run() {
    let mut bench = Bench::xen(2);
    let (hog, there) = (bench.woken(&[0]), bench.woken(&[1]));
    let (pinned, free) = (bench.woken(&[0]), bench.add(&[]));
    bench.vcpu(free).over = true;
    bench.vcpu(free).cpu = 0;
    bench.wake(free);
    assert_eq!(bench.waiting(0), [pinned, free]);
    bench.pass(MS);
    bench.block(1);
    assert_eq!((bench.running(0), bench.running(1)), (Some(hog), Some(free)));
    assert_ne!(bench.running(1), Some(there));
}

#[test]
fn a_tick_moves_who_would_not_have_to_share_elsewhere() {
    let mut bench = Bench::xen(2);
    let hog = bench.woken(&[0, 1]);
    bench.vcpu(hog).cpu = 0;
    bench.pass(MS);
    bench.tick(0);
    assert_eq!(bench.running(0), Some(hog));
    // Somebody who may not go elsewhere waits, and pCPU 1 idles.
    let pinned = bench.add(&[0]);
    bench.vcpu(pinned).over = true;
    bench.wake(pinned);
    assert!(bench.tick(0), "the second tick finds it active");
    assert_eq!((bench.running(0), bench.running(1)), (Some(pinned), Some(hog)));
}

#[test]
fn vcpus_start_where_the_fewest_are() {
    let mut bench = Bench::xen(3);
    let entities = [bench.add(&[1]), bench.add(&[]), bench.add(&[]), bench.add(&[1, 2]), bench.add(&[])];
    assert_eq!(entities.map(|entity| bench.vcpu(entity).cpu), [1, 0, 2, 1, 0]);
}

#[test]
fn the_moves_of_vcpus_are_recorded() {
    let mut bench = Bench::xen(1);
    let hog = bench.woken(&[0]);
    bench.vcpu(hog).boosted = false;
    let other = bench.add(&[0]);
    bench.moves();
    bench.pass(400 * US);
    bench.wake(other);
    assert_eq!(bench.moves(), [(other, Kind::Woken), (hog, Kind::GoesOn)], "the rate limit holds");
    bench.end_slice(0);
    bench.block(0);
    let expected = [(other, Kind::Runs), (other, Kind::Blocked), (hog, Kind::Runs)];
    assert_eq!(bench.moves(), expected);
    bench.end_slice(0);
    assert_eq!(bench.moves(), [(hog, Kind::GoesOn)]);
}
