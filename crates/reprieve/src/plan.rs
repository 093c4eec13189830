//! What a dry run shows.

use reprieve_report::facts;
use reprieve_study::units::{self, MILLISECOND_NS};
use reprieve_study::{Ground, Scenario, Workload, shown};

/// A real guest boots in about so many seconds under emulation.
const BOOT_S: u64 = 5;
/// A run on real Xen takes about so many seconds where the host is not busy: nearly all of it is booting.
const XEN_RUN_S: u64 = 60;
/// A program of the peers fills its table, and frees the last elements, in about so many milliseconds.
const FILL_MS: u64 = 1_200;

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
    add(format!(
        "  ground {}, {}, {} repetitions of each condition, seed {}",
        scenario.ground,
        machine(scenario),
        run.repeat,
        run.seed
    ));
    for (name, case) in &scenario.cases {
        add(format!("  case {name}: {}", case.label));
    }
    for (name, condition) in scenario.chosen() {
        add(format!("  {name}: {}", condition.label));
    }
    for (name, sweep) in &scenario.sweeps {
        let values: Vec<String> = sweep.values.iter().map(ToString::to_string).collect();
        let under: Vec<&str> = scenario.swept(sweep).collect();
        let (key, values, under) = (&sweep.key, values.join(", "), under.join(", "));
        add(format!("  sweep {name}: {key} = {values}; under {under}"));
    }
    add(format!("  {}", length(scenario)));
    text
}

/// What the conditions have in common: the machine under test, or what its threads do.
fn machine(scenario: &Scenario) -> String {
    let (guest, host) = (&scenario.guest, &scenario.host);
    let size = format!("guest with {} vCPUs and {} MiB", guest.vcpus, guest.memory_mib);
    match scenario.ground {
        Ground::Sim | Ground::Xen => {
            format!("{size} on {} pCPUs under {}", host.pcpus_for(guest.vcpus), host.scheduler.name())
        }
        Ground::Vm => match &scenario.workload {
            workload @ Workload::DeleteFree { .. } => format!("{size}, {}", facts::workload(workload)),
            _ => size,
        },
        Ground::Threads => facts::workload(&scenario.workload),
    }
}

/// How many runs, and how long they take.
fn length(scenario: &Scenario) -> String {
    let (run, runs) = (&scenario.run, scenario.runs());
    let each_ms = run.warmup_ms + run.window_ms;
    match (scenario.ground, &scenario.workload) {
        // A workload of fixed size takes its own time.
        (Ground::Xen, _) => format!("{runs} runs, about {} s", runs * XEN_RUN_S),
        (Ground::Vm, _) => format!("{runs} runs, about {} s", runs * (each_ms / 1000 + BOOT_S)),
        (Ground::Threads, workload) => {
            let stall_ms = if let Workload::DeleteFree(asked) = workload { asked.stall_ms } else { 0 };
            format!("{runs} runs, about {} s", runs * (each_ms + stall_ms + FILL_MS) / 1000)
        }
        (Ground::Sim, Workload::Postmark { .. }) => format!("{runs} runs, each until its work is done"),
        (Ground::Sim, _) => {
            let most = if scenario.workload.latencies().is_some() { "at most " } else { "" };
            let simulated = format!("{most}{}", units::duration((each_ms * MILLISECOND_NS) as f64));
            format!("{runs} runs of {simulated} of simulated time")
        }
    }
}
