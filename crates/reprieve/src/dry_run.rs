//! What a dry run shows.

use reprieve_report::facts;
use reprieve_study::{GroundKind, Scenario, Workload, shown};

use crate::grounds;

/// What would be run, and for how long.
pub fn render(scenario: &Scenario) -> String {
    let run = &scenario.run;
    let mut text = String::new();
    // Names and titles are the file's: a line each, whatever is in them.
    let mut add = |line: String| {
        text.push_str(&shown::line(&line));
        text.push('\n');
    };
    add(format!("{}: {}", scenario.name, scenario.title));
    let repetitions = match run.repeat {
        1 => "1 repetition".to_string(),
        repeat => format!("{repeat} repetitions"),
    };
    let (ground, machine) = (scenario.ground, machine(scenario));
    add(format!("  ground {ground}, {machine}, {repetitions} of each condition, seed {}", run.seed));
    for (name, case) in &scenario.cases {
        add(format!("  case {name}: {}", case.label));
    }
    for (name, condition) in scenario.chosen() {
        add(format!("  {name}: {}", facts::described(condition)));
    }
    for (name, sweep) in &scenario.sweeps {
        let values: Vec<String> = sweep.values.iter().map(ToString::to_string).collect();
        let under: Vec<&str> = scenario.swept(sweep).collect();
        let (key, values, under) = (&sweep.key, values.join(", "), under.join(", "));
        add(format!("  sweep {name}: {key} = {values}; under {under}"));
    }
    add(format!("  {}", grounds::length(scenario)));
    text
}

/// What the conditions have in common: the machine under test, or what its threads do.
fn machine(scenario: &Scenario) -> String {
    let (guest, host) = (&scenario.guest, &scenario.host);
    let size = format!("guest with {} vCPUs and {} MiB", guest.vcpus, guest.memory_mib);
    match scenario.ground {
        GroundKind::Sim | GroundKind::Xen => {
            format!("{size} on {} pCPUs under {}", host.pcpus_for(guest.vcpus), host.scheduler.name())
        }
        GroundKind::Vm => match &scenario.workload {
            workload @ Workload::DeleteFree { .. } => format!("{size}, {}", facts::workload(workload)),
            _ => size,
        },
        GroundKind::Threads => facts::workload(&scenario.workload),
    }
}
