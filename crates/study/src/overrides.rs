//! Reading a scenario, with `--set key=value` on top, and messages that name the nearest key for a slip.

use serde::Deserialize;
use toml::{Table, Value};

use crate::scenario::{BadScenario, Scenario};

/// A slip must be closer than this to a known name to be worth a suggestion (Jaro-Winkler, 0 to 1).
const NEAR: f64 = 0.75;

/// Stands for the key where it is not known which one is at fault.
const UNPLACED: &str = "scenario";

/// The name among `known` that `wrong` was probably meant to be.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored.filter(|(score, _)| *score > NEAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Parses a scenario file and applies assignments `a.b.c=value` in order. A value is TOML; what is no TOML
/// value is taken as a string. The result is checked.
pub fn read(text: &str, assignments: &[String]) -> Result<Scenario, BadScenario> {
    let bad = |key: &str, problem: String| BadScenario { key: key.into(), problem };
    let mut table: Table = text.parse().map_err(|e: toml::de::Error| bad(UNPLACED, e.to_string()))?;
    let scenario: Scenario =
        table.clone().try_into().map_err(|e: toml::de::Error| explain(&table, e.message()))?;
    let full = Table::try_from(&scenario).map_err(|e| bad(UNPLACED, e.to_string()))?;
    // The assignment since which the table is no scenario: serde does not say where a wrong type stands.
    let mut culprit = None;
    for assignment in assignments {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(bad(assignment, "write it as key=value".into()));
        };
        assign(&mut table, &full, key.trim(), value.trim())?;
        match Scenario::deserialize(table.clone()) {
            Ok(_) => culprit = None,
            Err(_) => culprit = culprit.or(Some(key.trim())),
        }
    }
    let scenario: Scenario = table.clone().try_into().map_err(|e: toml::de::Error| {
        let explained = explain(&table, e.message());
        match culprit {
            Some(key) if explained.key == UNPLACED => BadScenario { key: key.into(), ..explained },
            _ => explained,
        }
    })?;
    scenario.check()?;
    Ok(scenario)
}

/// Sets one key. It must exist in `full`, the scenario with all its defaults.
fn assign(table: &mut Table, full: &Table, key: &str, value: &str) -> Result<(), BadScenario> {
    let paths = leaf_paths(full);
    if !paths.iter().any(|path| path == key) {
        let near = nearest(key, paths.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("the keys are {}", paths.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        return Err(BadScenario { key: key.into(), problem: format!("there is no such key; {hint}") });
    }
    let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    let mut steps: Vec<&str> = key.split('.').collect();
    let last = steps.pop().expect("split gives at least one part");
    let mut here = table;
    for step in steps {
        let entry = here.entry(step).or_insert_with(|| Value::Table(Table::new()));
        here = entry.as_table_mut().expect("the key exists in the full table, so its parents are tables");
    }
    here.insert(last.into(), parsed.unwrap_or_else(|| Value::String(value.into())));
    Ok(())
}

/// Dotted paths of all values of a table that are no tables.
fn leaf_paths(table: &Table) -> Vec<String> {
    let mut paths = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                paths.extend(leaf_paths(inner).into_iter().map(|path| format!("{key}.{path}")))
            }
            _ => paths.push(key.clone()),
        }
    }
    paths
}

/// Turns serde's ``unknown field `x`, expected one of `a`, `b` `` into a suggestion.
fn explain(table: &Table, message: &str) -> BadScenario {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let (Some((wrong, known)), true) = (quoted.split_first(), unknown) else {
        return BadScenario { key: UNPLACED.into(), problem: message.trim().into() };
    };
    let hint = nearest(wrong, known.iter().copied()).map_or_else(
        || format!("expected one of {}", known.join(", ")),
        |near| format!("did you mean {near}?"),
    );
    let key = path_of(table, wrong).unwrap_or_else(|| (*wrong).to_string());
    BadScenario { key, problem: format!("unknown; {hint}") }
}

/// Where in the table that key or string value stands.
fn path_of(table: &Table, wanted: &str) -> Option<String> {
    table.iter().find_map(|(key, value)| match value {
        _ if key == wanted => Some(key.clone()),
        Value::Table(inner) => path_of(inner, wanted).map(|path| format!("{key}.{path}")),
        Value::String(text) if text == wanted => Some(key.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "t"
        title = "t"
        [workload]
        kind = "memory"
        [conditions.baseline]
        [conditions.overcommitted]
        quota = [{ vcpu = 1, percent = 20 }]
    "#;

    fn with(assignments: &[&str]) -> Result<Scenario, String> {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        read(TEXT, &assignments).map_err(|e| e.to_string())
    }

    #[test]
    fn assignments_reach_values_with_and_without_a_line_in_the_file() {
        let scenario = with(&[
            "run.repeat=7",
            "guest.accelerator=tcg",
            "conditions.overcommitted.quota=[{vcpu=0,percent=50}]",
            "run.conditions=[\"baseline\"]",
        ])
        .unwrap();
        assert_eq!(scenario.run.repeat, 7);
        assert_eq!(scenario.conditions[1].quota[0].percent, 50.0);
        assert_eq!(scenario.chosen().count(), 1);
    }

    #[test]
    fn a_slip_gets_the_nearest_name() {
        assert_eq!(
            with(&["guest.vcpu=4"]).unwrap_err(),
            "guest.vcpu: there is no such key; did you mean guest.vcpus?"
        );
        assert_eq!(with(&["guest.vcpus"]).unwrap_err(), "guest.vcpus: write it as key=value");
        assert!(
            with(&["guest.vcpus=many", "run.repeat=1"]).unwrap_err().starts_with("guest.vcpus: invalid type")
        );
        assert!(with(&["guest.vcpus=0"]).unwrap_err().starts_with("guest.vcpus: 0 is not within"));
        let slip = read(&TEXT.replace("title", "tilte"), &[]).unwrap_err().to_string();
        assert_eq!(slip, "tilte: unknown; did you mean title?");
        let kind = read(&TEXT.replace("memory", "memroy"), &[]).unwrap_err().to_string();
        assert_eq!(kind, "workload.kind: unknown; did you mean memory?");
    }
}
