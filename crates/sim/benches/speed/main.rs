//! How fast the simulator is: `cargo bench -p reprieve-sim [-- [--json FILE] [PART OF A GROUP'S NAME]...]`.
//!
//! A speed depends on the machine and on what else it does: each figure is measured in rounds, and said are their
//! median, the least and the greatest. A spread that is wider than the distance to the bar says that the machine was too
//! busy. All is done by one thread.
//!
//! | group | what is measured |
//! |---|---|
//! | `peers` | the event core against peers |
//! | `worlds` | events a second through scheduler and RCU, and how their cost grows with the number of VMs |
//! | `scenarios` | simulated seconds in a second, of the real guests' scenarios |
//! | `memory` | what a large guest takes |

mod figure;
mod peers;
mod scenarios;
mod stopwatch;
mod worlds;

use figure::Figure;

type Group = (&'static str, fn() -> Vec<Figure>);

const GROUPS: [Group; 4] = [
    ("worlds", worlds::figures),
    ("scenarios", scenarios::simulated_seconds),
    ("memory", || vec![scenarios::resident()]),
    ("peers", peers::figures),
];

fn main() {
    // Cargo hands `--bench` to every benchmark.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut wanted, mut json) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            scenarios::LARGE_GUEST => return scenarios::large_guest(),
            "--json" => json = Some(arguments.next().expect("--json FILE")),
            _ => wanted.push(argument),
        }
    }
    println!("{}", Figure::head());
    let mut figures = Vec::new();
    for (name, measure) in GROUPS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let measured = measure();
            measured.iter().for_each(|figure| println!("{}", figure.line()));
            figures.extend(measured);
        }
    }
    if let Some(path) = json {
        write(&path, &figures);
    }
}

/// All figures, and on what they were measured.
fn write(path: &str, figures: &[Figure]) {
    let record = serde_json::json!({
        "reprieve": env!("CARGO_PKG_VERSION"),
        "processor": processor(),
        "rounds": figure::ROUNDS,
        "figures": figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
    });
    std::fs::write(path, format!("{record:#}\n")).unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// As Linux names it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, name) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.trim().into())
}
