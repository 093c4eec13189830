//! Torture: `cargo run --release -p reprieve-rcu --example torture -- [SECONDS]`, 60 by default, for each
//! kind of reader. Exits with 1 when an error is found, or when a negative control is not caught.

mod engine;

use engine::{Control, Kind, Plan, run};
use reprieve_rcu::{Fencing, capabilities};
use std::time::Duration;

fn main() {
    println!("{}", capabilities());
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(60);
    let plan = |kind, control, fencing| Plan {
        kind,
        control,
        fencing,
        readers: 6,
        duration: Duration::from_secs(seconds),
    };
    let mut failed = false;
    let mut check = |plan: Plan| {
        let found = run(plan);
        let good = (found.errors == 0) == (plan.control == Control::None);
        failed |= !good;
        println!(
            "{:7} control {:9} {:?}: {} errors in {} sections, {} retired, {} signals, {} restarts, {} fallbacks, grace periods {:?}{}",
            format!("{:?}", plan.kind),
            format!("{:?}", plan.control),
            plan.fencing,
            found.errors,
            found.sections,
            found.retired,
            found.signals,
            found.stats.restarts,
            found.stats.fallbacks,
            found.stats.grace_periods,
            if good { "" } else { "  <-- WRONG" }
        );
    };
    let mut controls = vec![
        (Kind::Acquire, Control::NoBarrier),
        (Kind::Lock, Control::NoWait),
        (Kind::Online, Control::NoWait),
    ];
    if capabilities().restartable.is_ok() {
        controls.extend([(Kind::Read, Control::NoRseq), (Kind::Read, Control::NoBarrier)]);
    }
    controls.into_iter().for_each(|(kind, control)| check(plan(kind, control, Fencing::Asymmetric)));
    for fencing in [Fencing::Asymmetric, Fencing::Fenced, Fencing::Adaptive { above_ns: 5_000 }] {
        for kind in [Kind::Read, Kind::Acquire, Kind::Lock, Kind::Online] {
            check(plan(kind, Control::None, fencing));
        }
    }
    std::process::exit(i32::from(failed));
}
