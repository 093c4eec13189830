//! `docs/keys.md`: the keys of a scenario file as tables.

use std::fmt::Write;

use super::{Key, KeyTable};
use crate::GroundKind;

const HEAD: &str = "\
# The keys of a scenario file

Every key that a scenario file may have, with its default and its limits. All but `ground`, which `--on` chooses, can be
changed for one run: `--set guest.vcpus=4`, or `--set conditions.overcommitted.quota.0.percent=50` for the first item of a list.

- NAME stands for a name of your own.
- A number beyond its limits is refused, with the key. Limits that depend on other keys are in the last column.
- \"Read on\" names the grounds that read the key. A file may have keys that the ground of a run does not read, because one
  file serves several grounds. `--set`, a condition, a case and a sweep may not.
- `[on.GROUND]` holds keys of this list for one ground, laid over the rest of the file: `[on.vm.guest]`.
- `conditions_of = \"NAME\"`, at the top of a file, takes the conditions of another scenario.

This page is made from the types in `crates/study/src/scenario` and their comments. Change those, then run
`UPDATE=1 cargo test -p reprieve-study keys`.
";

/// The whole document.
pub fn render(tables: &[KeyTable]) -> String {
    let mut text = HEAD.to_string();
    for table in tables {
        // Writing to a text cannot fail.
        let _ = write!(text, "\n## {}\n\n{}\n\n", heading(table), table.description);
        text += "| key | value | default | limits | read on | meaning |\n|---|---|---|---|---|---|\n";
        // The tag is in the heading.
        let tag = table.kind.map(|(tag, _)| tag);
        table.keys.iter().filter(|key| Some(key.name) != tag).for_each(|key| text += &row(key));
    }
    text
}

fn heading(table: &KeyTable) -> String {
    let name = match table.path.as_str() {
        "" => "The file".into(),
        path if path.ends_with(".N") => format!("`[[{}]]`", path.trim_end_matches(".N").replace(".N.", ".")),
        path => format!("`[{path}]`"),
    };
    match table.kind {
        Some((key, kind)) => format!("{name} with `{key} = {kind:?}`"),
        None => name,
    }
}

fn row(key: &Key) -> String {
    let default = match &key.default {
        _ if key.is_required => "required".into(),
        Some(value) => format!("`{value}`"),
        None => "none".into(),
    };
    let range = key.range.map_or(String::new(), |(low, high)| format!("{low} to {high}"));
    let grounds: Vec<String> = key.grounds.iter().map(|ground| ground.to_string()).collect();
    let grounds = if key.grounds == GroundKind::ALL { "all".into() } else { grounds.join(", ") };
    let names: String = key.names.iter().map(|(name, meaning)| format!("<br>`{name}`: {meaning}")).collect();
    let Key { name, value, description, .. } = key;
    format!("| `{name}` | {value} | {default} | {range} | {grounds} | {description}{names} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys;

    /// As the other documents it is made by the program, so that it cannot lie.
    #[test]
    fn the_document_is_what_the_types_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
        let made = render(&keys::all());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        let differs = made.lines().zip(found.lines()).find(|(made, found)| made != found);
        assert!(
            made == found,
            "docs/keys.md is not what the types say; make it again with: UPDATE=1 cargo test -p reprieve-study \
             keys\nfirst difference: {differs:?}"
        );
    }
}
