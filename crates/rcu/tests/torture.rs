//! The short form of the torture example: each kind of reader for a moment, and the negative controls.

#[path = "../examples/torture/engine.rs"]
mod engine;

use engine::{Control, Kind, Outcome, Plan, run};
use reprieve_rcu::{Fencing, capabilities};
use std::time::Duration;

fn torture(kind: Kind, control: Control, fencing: Fencing) -> Outcome {
    // A negative control ends when it is caught; the limit is for a machine on which it never is.
    let duration = Duration::from_millis(if control == Control::None { 300 } else { 60_000 });
    run(Plan { kind, control, fencing, readers: 6, duration })
}

#[test]
fn no_kind_of_reader_finds_poison() {
    for fencing in [Fencing::Asymmetric, Fencing::Fenced, Fencing::Adaptive { above_ns: 5_000 }] {
        for kind in [Kind::Read, Kind::Acquire, Kind::Lock, Kind::Online] {
            let found = torture(kind, Control::None, fencing);
            assert_eq!(found.errors, 0, "{kind:?} {fencing:?} {found:?}");
            assert!(
                found.sections > 0 && found.retired > 0 && found.signals > 0,
                "{kind:?} {fencing:?} {found:?}"
            );
            assert_eq!(found.stats.garbage_objects, 0);
        }
    }
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
            torture(kind, control, Fencing::Asymmetric).errors > 0,
            "{kind:?} {control:?} was not caught"
        );
    }
}
