//! How a name or a path becomes a scenario.

use std::path::Path;

pub use reprieve_catalog::BUILT_IN;
use reprieve_study::scenario::limits;
use reprieve_study::{GroundKind, Scenario, overrides, rt_app};

use crate::failure::Failure;
use crate::input;

/// Reads the scenario of that name, or of the file at that path (recognised by its ending or a separator), for a
/// ground or for the one that it names itself. What it takes from other scenarios is looked for beside the file, and
/// then among those that are built in.
pub fn read(name: &str, ground: Option<GroundKind>, assignments: &[String]) -> Result<Scenario, Failure> {
    if is_path(name) {
        let path = Path::new(name);
        let text = text(name)?;
        return overrides::read_with(&text, ground, assignments, &|other| beside(path, other))
            .map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    let text = text(name)?;
    Ok(overrides::read_with(&text, ground, assignments, &|other| {
        built_in(other, "a file of your own, which can take from files beside it")
    })?)
}

/// The file of a scenario, as it was written; of an rt-app file, the scenario that is made from it.
pub fn text(name: &str) -> Result<String, Failure> {
    if !is_path(name) {
        return built_in(name, "a .toml file").map_err(Failure::Usage);
    }
    let path = Path::new(name);
    let text = input::read_text(path, limits::FILE_BYTES, "scenario")?;
    match path.extension().is_some_and(|ending| ending == "json") {
        true => rt_app::scenario(&path.file_stem().unwrap_or_default().to_string_lossy(), &text)
            .map_err(|error| Failure::Usage(format!("{name}: {error}"))),
        false => Ok(text),
    }
}

fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.ends_with(".json") || name.contains('/')
}

/// The text of a scenario that is built in; the message says what else could be named.
fn built_in(name: &str, or: &str) -> Result<String, String> {
    reprieve_catalog::text(name, or).map(String::from)
}

/// The text of a scenario whose file lies beside `file`, or that is built in.
fn beside(file: &Path, name: &str) -> Result<String, String> {
    let path = file.with_file_name(format!("{name}.toml"));
    if path.exists() {
        return input::read_text(&path, limits::FILE_BYTES, "scenario")
            .map_err(|failure| failure.to_string());
    }
    built_in(name, "a file beside this one")
}

/// The grounds that can run a scenario which is built in, and that was read for its own; its own first.
pub fn grounds(name: &str, scenario: &Scenario) -> Vec<GroundKind> {
    let others = GroundKind::ALL.into_iter().filter(|ground| *ground != scenario.ground);
    let able = others.filter(|ground| read(name, Some(*ground), &[]).is_ok());
    [scenario.ground].into_iter().chain(able).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grounds(name: &str) -> Vec<GroundKind> {
        super::grounds(name, &read(name, None, &[]).unwrap())
    }

    #[test]
    fn every_built_in_scenario_is_right_and_has_its_file_s_name() {
        for (name, _) in BUILT_IN {
            for ground in grounds(name) {
                let scenario = read(name, Some(ground), &[]).unwrap();
                assert_eq!((scenario.name.as_str(), scenario.ground), (name, ground));
                // Remedies are compared with no remedy, under the same disturbance.
                let has_remedies =
                    scenario.conditions.values().any(|condition| !condition.remedies.is_empty());
                let is_undisturbed = scenario.conditions[0].is_undisturbed();
                assert!(is_undisturbed != has_remedies, "{name}: the baseline is disturbed");
                assert!(scenario.conditions.values().all(|condition| !condition.label.is_empty()), "{name}");
                assert!(scenario.sweeps.values().all(|sweep| !sweep.label.is_empty()), "{name}");
            }
        }
    }

    #[test]
    fn the_evaluation_runs_on_every_ground_and_by_itself_on_the_simulator() {
        for name in ["rcu-memory", "rcu-clone", "rcu-postmark", "rcu-conformance"] {
            assert_eq!(grounds(name), [GroundKind::Sim, GroundKind::Vm], "{name}");
        }
        assert_eq!(
            (grounds("rcu-observer"), grounds("rcu-sweeps")),
            (vec![GroundKind::Vm], vec![GroundKind::Sim])
        );
    }
}
