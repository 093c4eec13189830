//! `conditions_of = "NAME"`: a scenario file that takes the conditions of another one.
//!
//! The other file's conditions come first, in their order. Conditions of the same names in this file are laid over
//! them, and its further conditions follow. The other file may take conditions from a third one. Only conditions are
//! taken, as they are on the ground of the scenario that takes them.
//!
//! A scenario may come from anybody, and this key makes its reader open a file. So the key can name a scenario but no
//! path, and no message quotes a file that is not a scenario.

use toml::{Table, Value};

use super::overrides::{check_size, choose_ground, merge};
use super::{BadScenario, GroundKind, Result, limits};

/// The text of the scenario file of that name, or why there is none.
pub type Others<'a> = &'a dyn Fn(&str) -> Result<String, String>;

const KEY: &str = "conditions_of";

/// Replaces `conditions_of` by the conditions that it stands for.
pub(crate) fn resolve(table: &mut Table, ground: GroundKind, others: Others) -> Result {
    let own = table.get("name").and_then(Value::as_str).unwrap_or("this file").to_owned();
    take(table, ground, others, &mut vec![own])
}

/// `chain` has the scenarios that take conditions from each other, beginning with the one that is read.
fn take(table: &mut Table, ground: GroundKind, others: Others, chain: &mut Vec<String>) -> Result {
    let bad = |problem: String| BadScenario::new(KEY, problem);
    let name = match table.remove(KEY) {
        None => return Ok(()),
        Some(Value::String(name)) => name,
        Some(_) => return Err(bad("write the name of another scenario, as a string".into())),
    };
    if !is_name(&name) {
        let problem =
            "write the name of another scenario: a file beside this one without its .toml, or a built-in one";
        return Err(bad(format!("{name:?} is no name; {problem}")));
    }
    let is_circle = chain.contains(&name);
    chain.push(name.clone());
    if is_circle {
        return Err(bad(format!("a circle: {}", chain.join(", which takes them from "))));
    }
    if chain.len() > limits::CHAIN_FILES {
        return Err(bad(format!("more than {} files take them from each other", limits::CHAIN_FILES)));
    }
    let text = others(&name).map_err(bad)?;
    check_size(&text).map_err(|e| bad(format!("{name}: {}", e.problem)))?;
    let mut other: Table = text.parse().map_err(|e| bad(format!("{name}: {}", no_toml(&text, &e))))?;
    choose_ground(&mut other, Some(ground)).map_err(|e| bad(format!("{name}: {e}")))?;
    take(&mut other, ground, others, chain)?;
    let Some(Value::Table(mut conditions)) = other.remove("conditions") else {
        return Err(bad(format!("{name} has no conditions")));
    };
    match table.remove("conditions") {
        None => {}
        Some(Value::Table(over)) => merge(&mut conditions, over),
        Some(_) => return Err(BadScenario::new("conditions", "write them as tables, [conditions.NAME]")),
    }
    table.insert("conditions".into(), Value::Table(conditions));
    Ok(())
}

/// Whether it names a file of the same folder that is not hidden.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Says which line is not TOML, without quoting it.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    format!("no scenario: line {line} is no TOML")
}

#[cfg(test)]
mod tests {
    use crate::scenario::overrides;
    use crate::scenario::{GroundKind, Scenario, limits};

    const HEAD: &str = "title = 't'\n[workload]\nkind = 'memory'\n";

    /// The files of a folder, by name.
    fn read(name: &str, ground: GroundKind, files: &[(&str, &str)]) -> Result<Scenario, String> {
        let text = |name: &str| {
            let file = files.iter().find(|(known, _)| *known == name);
            let (_, rest) = file.ok_or(format!("there is no scenario {name:?}"))?;
            Ok(format!("name = '{name}'\n{rest}"))
        };
        overrides::read_with(&text(name)?, Some(ground), &[], &text).map_err(|e| e.to_string())
    }

    #[test]
    fn the_other_s_conditions_come_first_and_are_changed_by_one_s_own() {
        let first = format!(
            "{HEAD}[conditions.baseline]\n[conditions.crowded]\novercommit = 2.0\nlabel = 'crowded'\n\
             [on.vm.conditions.crowded]\novercommit = 0.0"
        );
        let second = format!(
            "conditions_of = 'first'\n{HEAD}[conditions.last]\n[conditions.crowded]\novercommit = 3.0"
        );
        let third = format!("conditions_of = 'second'\n{HEAD}");
        let files = [("first", first.as_str()), ("second", &second), ("third", &third)];
        for name in ["second", "third"] {
            let scenario = read(name, GroundKind::Sim, &files).unwrap();
            assert_eq!(scenario.name, name);
            assert_eq!(scenario.conditions.keys().collect::<Vec<_>>(), ["baseline", "crowded", "last"]);
            let crowded = &scenario.conditions["crowded"];
            assert_eq!((crowded.overcommit, crowded.label.as_str()), (3.0, "crowded"));
        }
        let fourth = format!("conditions_of = 'first'\n{HEAD}");
        let files = [("first", first.as_str()), ("fourth", &fourth)];
        let overcommit = |ground| read("fourth", ground, &files).unwrap().conditions["crowded"].overcommit;
        assert_eq!((overcommit(GroundKind::Sim), overcommit(GroundKind::Vm)), (2.0, 0.0));
    }

    #[test]
    fn a_chain_of_files_has_an_end() {
        let text = |number: usize| match number {
            0 => format!("{HEAD}[conditions.a]"),
            _ => format!("conditions_of = '{}'\n{HEAD}", number - 1),
        };
        let texts: Vec<(String, String)> =
            (0..=limits::CHAIN_FILES).map(|n| (n.to_string(), text(n))).collect();
        let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let of = |files_in_chain: usize| read(&(files_in_chain - 1).to_string(), GroundKind::Sim, &files);
        assert_eq!(of(limits::CHAIN_FILES).unwrap().conditions.len(), 1);
        assert_eq!(
            of(limits::CHAIN_FILES + 1).unwrap_err(),
            "conditions_of: more than 16 files take them from each other"
        );
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let refused = |other: &str, files: &[(&str, &str)]| {
            let own = format!("conditions_of = {other}\n{HEAD}");
            let files: Vec<_> = [("own", own.as_str())].iter().chain(files).copied().collect();
            read("own", GroundKind::Sim, &files).unwrap_err()
        };
        assert_eq!(refused("'none'", &[]), "conditions_of: there is no scenario \"none\"");
        assert_eq!(refused("['a']", &[]), "conditions_of: write the name of another scenario, as a string");
        assert_eq!(refused("'own'", &[]), "conditions_of: a circle: own, which takes them from own");
        assert_eq!(
            refused("'a'", &[("a", "conditions_of = 'b'"), ("b", "conditions_of = 'a'")]),
            "conditions_of: a circle: own, which takes them from a, which takes them from b, which takes them from a"
        );
        assert_eq!(refused("'a'", &[("a", "title = 'a'")]), "conditions_of: a has no conditions");
        // The third line: the first is the name.
        assert_eq!(
            refused("'a'", &[("a", "x = 1\nsecret of mine")]),
            "conditions_of: a: no scenario: line 3 is no TOML"
        );
        for path in ["../private", "/etc/x", "a/b", ".a", "..", ""] {
            let said = refused(&format!("'{path}'"), &[(path, "[conditions.x]")]);
            assert!(
                said.starts_with(&format!("conditions_of: {path:?} is no name; write the name")),
                "{said}"
            );
        }
        assert_eq!(
            refused("'a'", &[("a", "[conditions.x]\novercomit = 1.0")]),
            "conditions.x.overcomit: unknown; did you mean overcommit?"
        );
        assert_eq!(
            overrides::read(&format!("name = 'n'\nconditions_of = 'a'\n{HEAD}"), None, &[])
                .unwrap_err()
                .to_string(),
            "conditions_of: no other scenario can be read here"
        );
    }
}
