//! The scenarios that are built in, and how a name or a path becomes a scenario.

use std::path::Path;

use reprieve_study::scenario::limits;
use reprieve_study::{GroundKind, Scenario, overrides};

use crate::failure::Failure;
use crate::input;

/// Names and texts.
pub const BUILT_IN: [(&str, &str); 45] = [
    ("rcu-memory", include_str!("../../../scenarios/rcu-memory.toml")),
    ("rcu-clone", include_str!("../../../scenarios/rcu-clone.toml")),
    ("rcu-postmark", include_str!("../../../scenarios/rcu-postmark.toml")),
    ("rcu-stimuli", include_str!("../../../scenarios/rcu-stimuli.toml")),
    ("rcu-control", include_str!("../../../scenarios/rcu-control.toml")),
    ("rcu-observer", include_str!("../../../scenarios/rcu-observer.toml")),
    ("rcu-sweeps", include_str!("../../../scenarios/rcu-sweeps.toml")),
    ("rcu-remedies", include_str!("../../../scenarios/rcu-remedies.toml")),
    ("rcu-remedies-sensitivity", include_str!("../../../scenarios/rcu-remedies-sensitivity.toml")),
    ("rcu-remedies-quota", include_str!("../../../scenarios/rcu-remedies-quota.toml")),
    ("rcu-parameters", include_str!("../../../scenarios/rcu-parameters.toml")),
    ("rcu-boost", include_str!("../../../scenarios/rcu-boost.toml")),
    ("rcu-boost-clone", include_str!("../../../scenarios/rcu-boost-clone.toml")),
    ("rcu-boost-postmark", include_str!("../../../scenarios/rcu-boost-postmark.toml")),
    ("rcu-spikes", include_str!("../../../scenarios/rcu-spikes.toml")),
    ("rcu-kernel-share", include_str!("../../../scenarios/rcu-kernel-share.toml")),
    ("rcu-conformance", include_str!("../../../scenarios/rcu-conformance.toml")),
    ("rcu-conformance-clone", include_str!("../../../scenarios/rcu-conformance-clone.toml")),
    ("rcu-conformance-postmark", include_str!("../../../scenarios/rcu-conformance-postmark.toml")),
    ("rcu-plan", include_str!("../../../scenarios/rcu-plan.toml")),
    ("rcu-plan-clone", include_str!("../../../scenarios/rcu-plan-clone.toml")),
    ("rcu-plan-postmark", include_str!("../../../scenarios/rcu-plan-postmark.toml")),
    ("xen-tail-latency", include_str!("../../../scenarios/xen-tail-latency.toml")),
    ("xen-wakeup", include_str!("../../../scenarios/xen-wakeup.toml")),
    ("xen-stalls", include_str!("../../../scenarios/xen-stalls.toml")),
    ("xen-sensitivity", include_str!("../../../scenarios/xen-sensitivity.toml")),
    ("xen-fairness", include_str!("../../../scenarios/xen-fairness.toml")),
    ("io-inactivity", include_str!("../../../scenarios/io-inactivity.toml")),
    ("io-calibration", include_str!("../../../scenarios/io-calibration.toml")),
    ("io-fairness", include_str!("../../../scenarios/io-fairness.toml")),
    ("io-sweeps", include_str!("../../../scenarios/io-sweeps.toml")),
    ("io-migrate", include_str!("../../../scenarios/io-migrate.toml")),
    ("io-migrate-seq", include_str!("../../../scenarios/io-migrate-seq.toml")),
    ("io-migrate-4", include_str!("../../../scenarios/io-migrate-4.toml")),
    ("io-migrate-seq-4", include_str!("../../../scenarios/io-migrate-seq-4.toml")),
    ("io-migrate-jitter", include_str!("../../../scenarios/io-migrate-jitter.toml")),
    ("io-migrate-jitter-4", include_str!("../../../scenarios/io-migrate-jitter-4.toml")),
    ("delete-free-delay", include_str!("../../../scenarios/delete-free-delay.toml")),
    ("delete-free-shared", include_str!("../../../scenarios/delete-free-shared.toml")),
    ("delete-free-spread", include_str!("../../../scenarios/delete-free-spread.toml")),
    ("delete-free-alone", include_str!("../../../scenarios/delete-free-alone.toml")),
    ("delete-free-stalled", include_str!("../../../scenarios/delete-free-stalled.toml")),
    ("delete-free-cost", include_str!("../../../scenarios/delete-free-cost.toml")),
    ("delete-free-writer", include_str!("../../../scenarios/delete-free-writer.toml")),
    ("delete-free-vm", include_str!("../../../scenarios/delete-free-vm.toml")),
];

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

/// The file of a scenario, as it was written.
pub fn text(name: &str) -> Result<String, Failure> {
    match is_path(name) {
        true => input::read_text(Path::new(name), limits::FILE_BYTES, "scenario"),
        false => built_in(name, "a .toml file").map_err(Failure::Usage),
    }
}

fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/')
}

/// The text of a scenario that is built in; the message says what else could be named.
fn built_in(name: &str, or: &str) -> Result<String, String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).into());
    }
    let hint = match overrides::nearest(name, BUILT_IN.iter().map(|(known, _)| *known)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("`reprieve list` shows those that are built in; or name {or}"),
    };
    Err(format!("there is no scenario {name:?}; {hint}"))
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
