//! The scenarios that are built in, and how a name or a path becomes a scenario.

use std::path::Path;

use reprieve_study::{Scenario, overrides};

use crate::failure::Failure;
use crate::input;

/// Largest scenario file.
const FILE_BYTES: u64 = 1 << 20;

/// Names and texts.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("rcu-memory", include_str!("../../../scenarios/rcu-memory.toml")),
    ("rcu-clone", include_str!("../../../scenarios/rcu-clone.toml")),
    ("rcu-postmark", include_str!("../../../scenarios/rcu-postmark.toml")),
    ("rcu-stimuli", include_str!("../../../scenarios/rcu-stimuli.toml")),
    ("rcu-control", include_str!("../../../scenarios/rcu-control.toml")),
    ("rcu-observer", include_str!("../../../scenarios/rcu-observer.toml")),
];

/// Reads the scenario of that name, or of the file at that path (recognised by its ending or a separator).
pub fn read(name: &str, assignments: &[String]) -> Result<Scenario, Failure> {
    if name.ends_with(".toml") || name.contains('/') {
        let text = input::read_text(Path::new(name), FILE_BYTES, "scenario")?;
        return overrides::read(&text, assignments)
            .map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
        let hint = match overrides::nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}, or name a .toml file", known.join(", ")),
        };
        return Err(Failure::Usage(format!("there is no scenario {name:?}; {hint}")));
    };
    Ok(overrides::read(text, assignments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_is_right_and_has_its_file_s_name() {
        for (name, _) in BUILT_IN {
            let scenario = read(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(scenario.name, name);
            assert!(scenario.conditions[0].is_undisturbed(), "{name}: the baseline is disturbed");
            assert!(scenario.conditions.values().all(|condition| !condition.label.is_empty()), "{name}");
        }
    }
}
