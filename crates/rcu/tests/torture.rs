//! The short form of the torture example: each kind of reader for a moment, and the negative controls.

#[path = "../examples/torture/engine.rs"]
mod engine;

use engine::{Control, Kind, Outcome, Plan, run};
use reprieve_rcu::{Fencing, capabilities};
use std::time::Duration;

/// A negative control ends as soon as it is caught. The limit is for machines on which it never is.
const CAUGHT_WITHIN_MS: u64 = 60_000;

fn torture(kind: Kind, control: Control, fencing: Fencing, ms: u64) -> Outcome {
    run(Plan { kind, control, fencing, readers: 6, duration: Duration::from_millis(ms) })
}

/// Each kind of reader, one after the other.
fn no_reader_finds_poison(fencing: Fencing) {
    let asked = std::env::var("REPRIEVE_TORTURE_MS").ok().and_then(|ms| ms.parse().ok());
    for kind in [Kind::Read, Kind::Acquire, Kind::Lock, Kind::Online] {
        let mut ms = asked.unwrap_or(300);
        // On a busy machine not everything happens within a moment, so this allows more time.
        while !finds_no_poison(kind, fencing, ms) {
            ms *= 3;
            assert!(ms < 60_000, "{kind:?} {fencing:?}: not everything has happened");
        }
    }
}

/// Returns whether all disturbances happened at least once.
fn finds_no_poison(kind: Kind, fencing: Fencing, ms: u64) -> bool {
    let found = torture(kind, Control::None, fencing, ms);
    let did = &found.disturbances;
    assert_eq!(found.errors, 0, "{kind:?} {fencing:?} {found:?}");
    assert_eq!(did.forks_failed, 0, "{kind:?} {fencing:?} {found:?}");
    assert_eq!(found.ages.iter().map(|(_, n)| n).sum::<u64>(), found.retired, "each freed once");
    assert_eq!(found.stats.garbage_objects, 0);
    let read = found.sections > 0 && found.lives > 0 && found.retired > 0;
    read && did.signals > 0 && (cfg!(reprieve_fallback) || (found.in_handlers > 0 && did.forks > 0))
}

#[test]
fn asymmetric_readers_find_no_poison() {
    no_reader_finds_poison(Fencing::Asymmetric);
}

#[test]
fn fenced_readers_find_no_poison() {
    no_reader_finds_poison(Fencing::Fenced);
}

#[test]
fn readers_of_an_adaptive_domain_find_no_poison() {
    no_reader_finds_poison(Fencing::Adaptive);
}

#[test]
fn the_negative_controls_are_caught() {
    let mut controls = vec![
        (Kind::Acquire, Control::NoBarrier),
        (Kind::Lock, Control::NoWait),
        (Kind::Online, Control::NoWait),
    ];
    if capabilities().restartable.is_ok() {
        controls.extend([(Kind::Read, Control::NoRseq), (Kind::Read, Control::NoBarrier)]);
    }
    for (kind, control) in controls {
        assert!(
            torture(kind, control, Fencing::Asymmetric, CAUGHT_WITHIN_MS).errors > 0,
            "{kind:?} {control:?} was not caught"
        );
    }
}
