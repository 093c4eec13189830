//! Each rule of the attribution, on events made by hand.

use reprieve_study::units::MILLISECOND_NS as MS;

use super::*;

const GUEST: Entity = Entity(0);
const HOG: Entity = Entity(1);
const SLICE_NS: u64 = 30 * MS;

fn event(at_ns: u64, entity: Entity, kind: Kind) -> Event {
    Event { at_ns, cpu: Cpu(1), entity, kind }
}

fn refused(woken: Priority, current: Priority) -> Kind {
    Kind::TickleRefused(Refusal::NotHigher { woken, current })
}

/// What made a wait from 100 to 110 ms with those events.
fn why(events: &[Event], preempted: bool) -> Mechanism {
    let mut waits = Waits::of(GUEST, SLICE_NS);
    waits.end(events, Span::new(100 * MS, 110 * MS), preempted, Cpu(1));
    waits.why(Span::new(100 * MS, 110 * MS))
}

#[test]
fn a_boosted_hog_is_one_that_has_boost_by_its_own_migration() {
    let refusal = event(100 * MS, GUEST, refused(Priority::Boost, Priority::Boost));
    let boosted = |kind| [event(90 * MS, HOG, kind), refusal];
    assert_eq!(why(&boosted(Kind::BoostedByMigration), false), Mechanism::HogBoosted);
    // A wake that gives BOOST is no bug, and a tick ends either.
    assert_eq!(why(&boosted(Kind::Boosted), false), Mechanism::SliceEnd);
    let ended = [
        event(90 * MS, HOG, Kind::BoostedByMigration),
        event(95 * MS, HOG, Kind::BoostEnded),
        event(100 * MS, GUEST, refused(Priority::Under, Priority::Under)),
    ];
    assert_eq!(why(&ended, false), Mechanism::SliceEnd);
    // One on another pCPU is not in the way.
    let mut elsewhere = boosted(Kind::BoostedByMigration);
    elsewhere[0].cpu = Cpu(0);
    assert_eq!(why(&elsewhere, false), Mechanism::SliceEnd);
}

#[test]
fn unseen_debt_is_found_by_the_accounting_after_the_vcpu_joined_with_it() {
    let over = |joined_ns: u64, credit: i64| {
        [
            event(joined_ns, GUEST, Kind::JoinedActive { credit }),
            event(80 * MS, GUEST, Kind::WentOver),
            event(100 * MS, GUEST, refused(Priority::Over, Priority::Under)),
        ]
    };
    assert_eq!(why(&over(50 * MS, -339), false), Mechanism::InactiveOver);
    // It joined too long before, or with credit: the debt was made while it was accounted for.
    assert_eq!(why(&over(50 * MS - 1, -339), false), Mechanism::SliceEnd);
    assert_eq!(why(&over(50 * MS, 0), false), Mechanism::SliceEnd);
    // An accounting found it UNDER before it was woken.
    let mut under = over(50 * MS, -339).to_vec();
    under.insert(2, event(99 * MS, GUEST, Kind::WentUnder));
    assert_eq!(why(&under, false), Mechanism::SliceEnd);
    // One in the wait makes it OVER.
    let late = [
        event(90 * MS, GUEST, Kind::JoinedActive { credit: -400 }),
        event(100 * MS, GUEST, Kind::Tickled),
        event(105 * MS, GUEST, Kind::BoostErased),
        event(105 * MS, GUEST, Kind::WentOver),
    ];
    assert_eq!(why(&late, false), Mechanism::InactiveOver);
}

#[test]
fn an_erased_boost_counts_if_a_refusal_follows_within_the_wait() {
    let erased = |at_ns| event(at_ns, GUEST, Kind::BoostErased);
    let refusal = |at_ns| event(at_ns, GUEST, refused(Priority::Under, Priority::Under));
    assert_eq!(why(&[erased(100 * MS), refusal(100 * MS)], false), Mechanism::BoostErased);
    assert_eq!(why(&[erased(100 * MS - 1), refusal(100 * MS)], false), Mechanism::SliceEnd);
    assert_eq!(why(&[refusal(100 * MS), erased(101 * MS)], false), Mechanism::SliceEnd);
    let other = [event(100 * MS, HOG, Kind::BoostErased), refusal(100 * MS)];
    assert_eq!(why(&other, false), Mechanism::SliceEnd);
}

#[test]
fn the_rate_limit_is_to_blame_only_if_nothing_else_is() {
    let limited = event(100 * MS, HOG, Kind::RateLimited);
    let late_wake = event(100 * MS, GUEST, Kind::TickleRefused(Refusal::RateLimit));
    assert_eq!(why(&[limited], false), Mechanism::RateLimit);
    assert_eq!(why(&[late_wake], false), Mechanism::RateLimit);
    assert_eq!(why(&[limited], true), Mechanism::SliceEnd);
    let under = event(100 * MS, GUEST, refused(Priority::Under, Priority::Under));
    assert_eq!(why(&[under, limited], false), Mechanism::SliceEnd);
    // That of the vCPU itself keeps it running.
    assert_eq!(why(&[event(100 * MS, GUEST, Kind::RateLimited)], false), Mechanism::Other);
    // That of another pCPU is not in the way.
    assert_eq!(why(&[Event { cpu: Cpu(0), ..limited }], false), Mechanism::Other);
}

#[test]
fn who_is_passed_over_waits_for_the_end_of_a_slice() {
    for kind in [Kind::Runs, Kind::GoesOn] {
        let taken = event(100 * MS, HOG, kind);
        assert_eq!(why(&[taken], false), Mechanism::SliceEnd);
        assert_eq!(why(&[Event { cpu: Cpu(0), ..taken }], false), Mechanism::Other);
    }
    // The rate limit, too, leaves the pCPU to another one.
    let limited = [event(100 * MS, HOG, Kind::RateLimited), event(100 * MS, HOG, Kind::GoesOn)];
    assert_eq!(why(&limited, false), Mechanism::RateLimit);
}

#[test]
fn who_has_no_claim_waits_for_the_end_of_a_slice() {
    for refusal in [Refusal::LessCredit, Refusal::LaterDeadline] {
        assert_eq!(why(&[event(100 * MS, GUEST, Kind::TickleRefused(refusal))], false), Mechanism::SliceEnd);
    }
    assert_eq!(why(&[event(104 * MS, GUEST, Kind::Parked)], false), Mechanism::SliceEnd);
    assert_eq!(why(&[], true), Mechanism::SliceEnd);
    assert_eq!(why(&[event(100 * MS, GUEST, Kind::Tickled)], false), Mechanism::Other);
}

#[test]
fn a_stall_belongs_to_its_longest_wait_or_to_the_one_that_it_stood_in_line_after() {
    let mut waits = Waits::of(GUEST, SLICE_NS);
    waits.end(&[event(10 * MS, HOG, Kind::RateLimited)], Span::new(10 * MS, 11 * MS), false, Cpu(1));
    waits.end(&[], Span::new(12 * MS, 15 * MS), true, Cpu(1));
    waits.idle(20 * MS);
    waits.idle(25 * MS);
    let of = |start_ms: u64, end_ms: u64| waits.why(Span::new(start_ms * MS, end_ms * MS));
    assert_eq!(of(10, 16), Mechanism::SliceEnd);
    assert_eq!(of(10, 12), Mechanism::RateLimit);
    assert_eq!(of(16, 19), Mechanism::SliceEnd, "in line, and the vCPU busy");
    assert_eq!(of(21, 24), Mechanism::Other, "it had been idle before");
    assert_eq!(of(1, 5), Mechanism::Other, "before anything");
}

#[test]
fn short_waits_are_forgotten() {
    let mut waits = Waits::of(GUEST, SLICE_NS);
    waits.end(&[], Span::new(0, LEAST_WAIT_NS - 1), true, Cpu(1));
    assert_eq!(waits.why(Span::new(0, 2 * MS)), Mechanism::Other);
    waits.end(&[], Span::new(MS, MS + LEAST_WAIT_NS), true, Cpu(1));
    assert_eq!(waits.why(Span::new(0, 2 * MS)), Mechanism::SliceEnd);
}
