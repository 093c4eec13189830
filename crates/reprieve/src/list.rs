//! `reprieve list`: which scenarios there are, and what they do.

use reprieve_report::facts;
use reprieve_study::{GroundKind, Scenario, shown};

use crate::catalog;
use crate::failure::Failure;

/// Room for the longest name of a scenario that is built in.
const NAME: usize = 25;

/// One line for each built-in scenario, or all about those that are named.
pub fn list(scenarios: &[String]) -> Result<String, Failure> {
    if !scenarios.is_empty() {
        return scenarios.iter().map(|name| Ok(all_about(name, &catalog::read(name, None, &[])?))).collect();
    }
    let lines = catalog::BUILT_IN.iter().map(|(name, _)| {
        let scenario = catalog::read(name, None, &[]).expect("built-in scenarios are tested");
        format!("{name:<NAME$} {}\n", scenario.title)
    });
    Ok(lines.collect::<String>()
        + "\nConditions and grounds of one: reprieve list NAME; its file: reprieve show NAME\n")
}

/// Title, grounds that can run it, and what it does on its own ground.
fn all_about(name: &str, scenario: &Scenario) -> String {
    let grounds: Vec<String> = catalog::grounds(name, scenario).iter().map(GroundKind::to_string).collect();
    let mut lines = vec![format!("{name}: {}", scenario.title), format!("  runs on {}", grounds.join(", "))];
    lines.extend(scenario.cases.iter().map(|(name, case)| format!("  case {name}: {}", case.label)));
    let conditions = scenario.conditions.iter();
    lines.extend(conditions.map(|(name, condition)| format!("  {name}: {}", facts::described(condition))));
    lines.extend(scenario.sweeps.iter().map(|(name, sweep)| format!("  sweep {name}: {}", sweep.label)));
    let axes = scenario.space.iter().flat_map(|space| &space.axes);
    lines.extend(axes.map(|(name, axis)| format!("  axis {name}: {}", axis.label)));
    lines.iter().map(|line| format!("{}\n", shown::line(line))).collect()
}
