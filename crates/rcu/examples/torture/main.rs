//! Torture: `cargo run --release -p reprieve-rcu --example torture -- [SECONDS] [--json PATH]`, 50 seconds by
//! default for each kind of reader and each fencing, twelve runs in all, after the negative controls. Exits
//! with 1 when an error is found, or when a negative control is not caught.

mod engine;
mod record;

use engine::{Control, Kind, Plan, run};
use reprieve_rcu::{Fencing, capabilities};
use std::path::PathBuf;
use std::time::Duration;

fn main() {
    let (seconds, json) = arguments();
    println!("{}", capabilities());
    let mut runs = Vec::new();
    for plan in plans(Duration::from_secs(seconds)) {
        let found = run(plan);
        println!("{}", record::line(&plan, &found));
        runs.push((plan, found));
    }
    if let Some(path) = json
        && let Err(e) = std::fs::write(&path, record::json(&runs))
    {
        eprintln!("torture: {}: {e}", path.display());
        std::process::exit(1);
    }
    std::process::exit(i32::from(!runs.iter().all(|(plan, found)| record::is_good(plan, found))));
}

fn arguments() -> (u64, Option<PathBuf>) {
    let (mut seconds, mut json, mut rest) = (50, None, std::env::args().skip(1));
    while let Some(argument) = rest.next() {
        match (argument.as_str(), argument.parse()) {
            ("--json", _) => json = rest.next().map(PathBuf::from),
            (_, Ok(n)) => seconds = n,
            _ => {
                eprintln!("usage: torture [SECONDS] [--json PATH]");
                std::process::exit(2);
            }
        }
    }
    (seconds, json)
}

/// The negative controls, and every kind of reader under every fencing.
fn plans(duration: Duration) -> Vec<Plan> {
    let plan = |kind, control, fencing| Plan { kind, control, fencing, readers: 6, duration };
    let mut controls = vec![
        (Kind::Acquire, Control::NoBarrier),
        (Kind::Lock, Control::NoWait),
        (Kind::Online, Control::NoWait),
    ];
    if capabilities().restartable.is_ok() {
        controls.extend([(Kind::Read, Control::NoRseq), (Kind::Read, Control::NoBarrier)]);
    }
    let mut plans: Vec<_> =
        controls.into_iter().map(|(kind, control)| plan(kind, control, Fencing::Asymmetric)).collect();
    for fencing in [Fencing::Asymmetric, Fencing::Fenced, Fencing::Adaptive] {
        for kind in [Kind::Read, Kind::Acquire, Kind::Lock, Kind::Online] {
            plans.push(plan(kind, Control::None, fencing));
        }
    }
    plans
}
