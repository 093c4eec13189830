//! Each of the three bugs, and what its fix changes.

use super::*;
use crate::sched::xen::Refusal;

fn refused(woken: Priority, current: Priority) -> Kind {
    Kind::TickleRefused(Refusal::NotHigher { woken, current })
}

/// A hog and a vCPU that was just woken beside it, both pinned to pCPU 0 of two; the other pCPU idles.
fn bug_1(version: Version, fixes: Fixes) -> (Bench, Entity, Entity) {
    let mut bench = Bench::new(Params { fixes: Fixes::of(version) | fixes, ..Params::xen(version, 2) });
    let hog = bench.woken(&[0]);
    bench.pass(5 * MS);
    bench.tick(0);
    bench.sched.log.take();
    let other = bench.woken(&[0]);
    assert_eq!((bench.running(0), bench.waiting(0)), (Some(other), vec![hog]));
    (bench, hog, other)
}

#[test]
fn bug_1_boosts_a_hog_by_its_migration_to_where_it_is() {
    let (mut bench, hog, other) = bug_1(Version::V4_5, Fixes::default());
    assert_eq!(bench.priority(hog), Priority::Boost);
    assert!(bench.kinds(hog).ends_with(&[
        Kind::MigratedMark,
        Kind::BoostedByMigration,
        refused(Priority::Boost, Priority::Boost)
    ]));
    // The next wake meets BOOST, and waits even after a tick took it, until the slice ends.
    bench.pass(30 * US);
    bench.block(0);
    let from_ns = bench.now_ns;
    bench.pass(60 * US);
    bench.wake(other);
    assert_eq!(bench.running(0), Some(hog));
    bench.pass(5 * MS);
    bench.tick(0);
    assert_eq!((bench.priority(hog), bench.running(0)), (Priority::Under, Some(hog)));
    bench.end_slice(0);
    assert_eq!((bench.running(0), bench.now_ns), (Some(other), from_ns + 30 * MS));
    assert!(bench.kinds(other).contains(&refused(Priority::Boost, Priority::Boost)));
}

#[test]
fn bug_1_bypasses_the_rate_limit() {
    let (mut bench, hog, other) = bug_1(Version::V4_5, Fixes::default());
    bench.block(0);
    bench.tick(0);
    bench.pass(60 * US);
    bench.wake(other);
    assert_eq!(bench.running(0), Some(other), "a marked vCPU may not go on");
    assert_eq!(bench.waiting(0), [hog]);
}

#[test]
fn without_bug_1_a_hog_that_can_go_nowhere_is_preempted_and_not_boosted() {
    let fixed = Fixes { boost_on_migration: true, ..Fixes::default() };
    for (version, fixes) in
        [(Version::V4_5, fixed), (Version::V4_7, Fixes::default()), (Version::V4_17, Fixes::default())]
    {
        let (mut bench, hog, other) = bug_1(version, fixes);
        assert_eq!((bench.priority(hog), bench.kinds(hog)), (Priority::Under, vec![]));
        bench.block(0);
        bench.pass(2 * MS);
        bench.wake(other);
        assert_eq!(bench.running(0), Some(other), "{version:?}");
    }
}

#[test]
fn without_bug_1_a_hog_that_can_go_elsewhere_still_does_and_is_not_boosted() {
    for (version, boosted) in [(Version::V4_5, true), (Version::V4_7, false)] {
        let mut bench = Bench::new(Params::xen(version, 2));
        let hog = bench.add(&[]);
        bench.vcpu(hog).cpu = 0;
        bench.wake(hog);
        bench.pass(5 * MS);
        bench.tick(0);
        let other = bench.woken(&[0]);
        assert_eq!((bench.running(0), bench.running(1)), (Some(other), Some(hog)));
        assert_eq!(bench.priority(hog) == Priority::Boost, boosted);
    }
}

/// The story of bug 2, as it was recorded on Xen 4.17 with one pCPU: a stall of 89 ms. Gives the bench when the vCPU has
/// had the accounting that lifts its 93 credits by 210.
fn bug_2(fixes: Fixes) -> (Bench, Entity, Entity) {
    let mut bench = Bench::new(Params { fixes, ..Params::xen(Version::V4_17, 1) });
    let hog = bench.woken(&[0]);
    bench.pass(5 * MS);
    bench.tick(0);
    let other = bench.add(&[0]);
    bench.activate(other);
    bench.vcpu(other).credit = 93;
    bench.vcpu(hog).credit = 0;
    // A pool in debt by 120: each of the two earns (300 + 120) / 2.
    bench.sched.balance = -120;
    bench.account();
    bench.sched.log.take();
    (bench, hog, other)
}

/// It is woken, runs for that many credits and blocks.
fn burst(bench: &mut Bench, entity: Entity, credits: u64) {
    bench.pass(2 * MS);
    bench.wake(entity);
    assert_eq!(bench.running(0), Some(entity));
    bench.pass(credits * 100 * US);
    bench.block(0);
}

#[test]
fn bug_2_lets_a_vcpu_with_credit_run_into_debt_unseen() {
    let (mut bench, hog, other) = bug_2(Fixes::default());
    assert_eq!((bench.credit(other), bench.vcpu(other).active), (151, false));
    // Every tick samples the hog. The vCPU wakes with BOOST, and burns what nobody adds up.
    for _ in 0..163 {
        burst(&mut bench, other, 3);
        bench.tick(0);
        assert_eq!(bench.priority(hog), Priority::Under);
    }
    bench.vcpu(hog).credit = 100;
    assert_eq!(bench.credit(other), -338);
    // A tick samples it at last; the next accounting makes it OVER.
    bench.pass(2 * MS);
    bench.wake(other);
    bench.pass(100 * US);
    bench.sched.log.take();
    bench.tick(0);
    assert_eq!(bench.kinds(other), [Kind::BoostEnded, Kind::JoinedActive { credit: -339 }]);
    bench.sched.balance = 0;
    bench.account();
    assert_eq!((bench.credit(other), bench.priority(other)), (-189, Priority::Over));
    bench.pass(3_700 * US);
    bench.block(0);
    assert_eq!(bench.credit(other), -226);
    // No BOOST; and the hog, whose own debt is not noticed, takes slice after slice.
    bench.sched.log.take();
    bench.pass(2 * MS);
    bench.wake(other);
    assert_eq!(bench.kinds(other), [refused(Priority::Over, Priority::Under)]);
    for _ in 0..2 {
        bench.end_slice(0);
        assert_eq!(bench.running(0), Some(hog));
    }
    assert!(bench.credit(hog) < 0);
}

#[test]
fn without_bug_2_credit_is_earned_on_and_debt_cannot_grow_unseen() {
    let (mut bench, _, other) = bug_2(Fixes { inactive_debt: true, ..Fixes::default() });
    assert_eq!((bench.credit(other), bench.vcpu(other).active), (300, true));
    let mut next_ns = bench.now_ns + 30 * MS;
    for _ in 0..163 {
        burst(&mut bench, other, 3);
        if bench.now_ns > next_ns {
            bench.account();
            next_ns += 30 * MS;
        }
        assert!(bench.credit(other) > 0, "a vCPU that uses 13 % of its pCPU is never in debt");
    }
}

/// What a wake finds that comes so long before an accounting, and from that pCPU: whether it preempts, and the priority
/// with which it goes on.
fn bug_3(fixes: Fixes, race_window_ns: u64, before_ns: u64, from: Option<u32>) -> (bool, Priority) {
    let params = Params { fixes, race_window_ns, ..Params::xen(Version::V4_17, 1) };
    let mut bench = Bench::new(params);
    bench.woken(&[0]);
    bench.pass(5 * MS);
    bench.tick(0);
    let other = bench.add(&[0]);
    bench.activate(other);
    bench.now_ns = 30 * MS - before_ns;
    bench.sched.log.take();
    bench.sched.wake(bench.now_ns, other, from.map(Cpu), &mut bench.orders);
    bench.obey();
    bench.now_ns = 30 * MS;
    bench.account();
    // Whoever wakes it again changes nothing.
    bench.pass(MS);
    bench.wake(other);
    let preempts = bench.running(0) == Some(other);
    assert_eq!(bench.kinds(other).contains(&refused(Priority::Under, Priority::Under)), !preempts);
    if !preempts {
        bench.end_slice(0);
        assert_eq!(bench.running(0), Some(other), "it waits for the end of the hog's slice");
    }
    (preempts, bench.priority(other))
}

#[test]
fn bug_3_loses_a_preemption_if_accounting_comes_within_the_window() {
    let stock = |window_ns, before_ns| bug_3(Fixes::default(), window_ns, before_ns, None).0;
    assert!(!stock(50 * US, 50 * US - 1) && stock(50 * US, 50 * US));
    assert!(!stock(1, 0) && stock(1, 1) && stock(0, 0));
    // Only on another pCPU can an accounting come between.
    assert!(bug_3(Fixes::default(), 50 * US, US, Some(0)).0);
    assert!(!bug_3(Fixes::default(), 50 * US, US, Some(1)).0);
}

#[test]
fn without_bug_3_accounting_takes_no_boost() {
    let fixed = Fixes { boost_erased: true, ..Fixes::default() };
    for before_ns in [0, US, 50 * US] {
        assert_eq!(bug_3(fixed, 50 * US, before_ns, None), (true, Priority::Boost));
    }
    // In the race or not: with it, a vCPU that waits with BOOST loses it.
    assert_eq!(bug_3(Fixes::default(), 50 * US, 50 * US, None), (true, Priority::Under));
}

#[test]
fn a_boost_that_waits_is_overwritten_to_over_with_bug_3() {
    for (boost_erased, expected) in [(false, Priority::Over), (true, Priority::Boost)] {
        let fixes = Fixes { boost_erased, ..Fixes::default() };
        let mut bench = Bench::new(Params { fixes, ..Params::xen(Version::V4_17, 1) });
        let hog = bench.woken(&[0]);
        bench.tick(0);
        let other = bench.add(&[0]);
        bench.activate(other);
        bench.vcpu(other).credit = -266;
        bench.pass(500 * US);
        bench.wake(other);
        assert_eq!((bench.running(0), bench.priority(other)), (Some(hog), Priority::Boost));
        bench.account();
        assert_eq!(bench.priority(other), expected);
        // The rate limit ends: only BOOST gets the pCPU.
        bench.end_slice(0);
        assert_eq!(bench.running(0) == Some(other), boost_erased);
    }
}
