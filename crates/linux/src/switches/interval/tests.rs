//! Windows, losses and contradictions.

use super::SwitchKind::{In, Lost, OutPreempted, OutVoluntary};
use super::*;

type Plain = (u64, u64, State, Option<u32>);

fn intervals(window: (u64, u64), initial: Option<State>, events: &[(u64, SwitchKind, u32)]) -> Vec<Plain> {
    let mut builder = IntervalBuilder::new(window.0, initial);
    for &(time_ns, kind, cpu) in events {
        builder.push(&SwitchEvent { thread_index: 0, time_ns, cpu: Some(cpu), kind });
    }
    let found = builder.finish(window.1);
    found.iter().map(|i| (i.start_ns, i.end_ns, i.state, i.cpu)).collect()
}

#[test]
fn a_plain_history() {
    let events = [(10, In, 1), (20, OutPreempted, 1), (50, In, 2), (60, OutVoluntary, 2)];
    let expected = [
        (0, 10, State::Unknown, None),
        (10, 20, State::Running, Some(1)),
        (20, 50, State::Preempted, Some(1)),
        (50, 60, State::Running, Some(2)),
        (60, 100, State::Blocked, Some(2)),
    ];
    assert_eq!(intervals((0, 100), None, &events), expected);
}

#[test]
fn the_initial_state_is_taken_and_its_cpu_learnt() {
    let running = intervals((0, 100), Some(State::Running), &[(20, OutPreempted, 3)]);
    assert_eq!(running, [(0, 20, State::Running, Some(3)), (20, 100, State::Preempted, Some(3))]);
    let blocked = intervals((0, 100), Some(State::Blocked), &[(20, In, 3)]);
    assert_eq!(blocked, [(0, 20, State::Blocked, None), (20, 100, State::Running, Some(3))]);
    assert_eq!(intervals((0, 9), Some(State::Running), &[]), [(0, 9, State::Running, None)]);
}

#[test]
fn events_before_the_window_set_its_first_state() {
    let events = [(10, In, 1), (20, OutPreempted, 1), (150, In, 1), (300, OutVoluntary, 1)];
    let expected = [(100, 150, State::Preempted, Some(1)), (150, 200, State::Running, Some(1))];
    assert_eq!(intervals((100, 200), None, &events), expected);
}

#[test]
fn a_contradiction_makes_the_time_before_it_unknown() {
    let twice_in = intervals((0, 40), None, &[(10, In, 1), (30, In, 2)]);
    let expected = [(0, 30, State::Unknown, None), (30, 40, State::Running, Some(2))];
    assert_eq!(twice_in, expected);
    let twice_out = intervals((0, 40), Some(State::Running), &[(10, OutPreempted, 1), (30, OutVoluntary, 1)]);
    let expected =
        [(0, 10, State::Running, Some(1)), (10, 30, State::Unknown, None), (30, 40, State::Blocked, Some(1))];
    assert_eq!(twice_out, expected);
}

#[test]
fn a_loss_is_unknown_on_both_sides() {
    let events = [(10, In, 1), (30, Lost, 1), (50, OutVoluntary, 1), (70, In, 1)];
    let expected =
        [(0, 50, State::Unknown, None), (50, 70, State::Blocked, Some(1)), (70, 90, State::Running, Some(1))];
    assert_eq!(intervals((0, 90), None, &events), expected);
}

#[test]
fn any_history_covers_the_window_exactly() {
    // Random histories: all kinds in any order, with times that repeat and step back.
    let mut random = 1u64;
    let mut next = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for _ in 0..2_000 {
        let kinds = [In, OutPreempted, OutVoluntary, Lost];
        let events: Vec<_> =
            (0..next(20)).map(|_| (next(300), kinds[next(4) as usize], next(3) as u32)).collect();
        let found = intervals((100, 200), None, &events);
        assert_eq!((found[0].0, found[found.len() - 1].1), (100, 200), "{events:?}");
        assert!(found.iter().all(|i| i.0 < i.1), "{events:?}");
        assert!(found.windows(2).all(|w| w[0].1 == w[1].0 && (w[0].2, w[0].3) != (w[1].2, w[1].3)));
    }
}
