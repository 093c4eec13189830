//! Lists all keys of a scenario file from its types. `docs/keys.md` is made from this list.

mod markdown;

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use toml::Table;

use super::schema::Schema;
use super::{Condition, GroundKind, HostModel, Remedy, Scenario, SchedulerKind, Workload, check};
pub use markdown::render;

/// A table of a scenario file.
#[derive(Debug)]
pub struct KeyTable {
    /// Its dotted path, empty for the file itself. NAME stands for a name that the file chooses, N for the number of an
    /// item of a list, from 0.
    pub path: String,
    /// The tag, as key and value, if there are several kinds of this table: `kind = "memory"`.
    pub kind: Option<(&'static str, &'static str)>,
    /// Its purpose.
    pub description: String,
    /// Its keys, without those of inner tables.
    pub keys: Vec<Key>,
}

/// A key of a scenario file.
#[derive(Debug)]
pub struct Key {
    /// Its name within its table.
    pub name: &'static str,
    /// The type of its value, in words.
    pub value: String,
    /// The value if the file does not have the key, as TOML; `None` if the key is then absent.
    pub default: Option<String>,
    /// Whether a file must have the key.
    pub is_required: bool,
    /// The least and the largest number, if they depend on no other key.
    pub range: Option<(f64, f64)>,
    /// The grounds that read it.
    pub grounds: Vec<GroundKind>,
    /// What it means.
    pub description: String,
    /// The names that its value may be, if they are few, and what each means.
    pub names: Vec<(&'static str, String)>,
}

impl KeyTable {
    /// Dotted paths of its keys.
    pub fn paths(&self) -> Vec<String> {
        let at = Place { path: self.path.clone(), grounds: &[] };
        self.keys.iter().map(|key| at.join(key.name).path).collect()
    }
}

/// The tables of a scenario file with their keys, each table before those that it holds.
pub fn all() -> Vec<KeyTable> {
    let mut tables = Vec::new();
    let root = Schema::root();
    add_table(
        &Place { path: String::new(), grounds: &GroundKind::ALL },
        root,
        root.description(),
        &mut tables,
    );
    tables
}

/// Where a table stands.
struct Place {
    path: String,
    /// The grounds that can run it.
    grounds: &'static [GroundKind],
}

impl Place {
    fn join(&self, name: &str) -> Place {
        let path = if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) };
        Place { path, grounds: self.grounds }
    }
}

/// Adds the table, or each of its kinds, and the tables that it holds.
fn add_table(at: &Place, schema: Schema, description: String, tables: &mut Vec<KeyTable>) {
    let Some(properties) = schema.properties() else {
        schema.variants().for_each(|kind| add_table(at, kind, kind.description(), tables));
        return;
    };
    let kind = schema.tag();
    let grounds = workload(at, kind).map_or(at.grounds, |workload| workload.grounds());
    let at = &Place { path: at.path.clone(), grounds };
    let (inner, own): (Vec<_>, Vec<_>) = properties.partition(|(_, schema)| inner_table(*schema).is_some());
    let (lists, required) = (inner.iter().filter(|(_, schema)| schema.items().is_some()), schema.required());
    let mut keys: Vec<Key> = own
        .iter()
        .chain(lists)
        .map(|(name, schema)| key(at, name, *schema, required.contains(name)))
        .collect();
    keys.sort_by_key(|key| key.name);
    tables.push(KeyTable { path: at.path.clone(), kind, description, keys });
    for (name, schema) in inner {
        let Some((step, table)) = inner_table(schema) else { continue };
        let place = at.join(name);
        let place = if step.is_empty() { place } else { place.join(step) };
        add_table(&place, table, schema.description(), tables);
    }
}

/// The workload of that kind, where the kind is a workload's.
fn workload(at: &Place, kind: Option<(&str, &str)>) -> Option<Workload> {
    let (key, name) = kind.filter(|_| at.path == "workload")?;
    Workload::deserialize(Table::from_iter([(key.to_string(), name.into())])).ok()
}

/// The inner table, and the step to it: N for an item of a list, NAME, or nothing.
fn inner_table(schema: Schema) -> Option<(&'static str, Schema)> {
    let is_table = |schema: &Schema| {
        schema.properties().is_some() || schema.variants().any(|kind| kind.properties().is_some())
    };
    let places = [("N", schema.items()), ("NAME", schema.named()), ("", Some(schema))];
    places.into_iter().find_map(|(step, schema)| Some((step, schema.filter(is_table)?)))
}

fn key(at: &Place, name: &'static str, schema: Schema, is_required: bool) -> Key {
    let named = schema.items().unwrap_or(schema).variants();
    Key {
        name,
        value: value(schema),
        default: schema.get("default").filter(|value| !value.is_null()).map(Value::to_string),
        is_required,
        range: schema.range().or_else(|| schema.items()?.range()),
        grounds: grounds(&at.join(name)),
        names: named.filter_map(|one| Some((one.constant()?, one.description()))).collect(),
        description: schema.description(),
    }
}

/// The type of a value, in words.
fn value(schema: Schema) -> String {
    if let Some(text) = schema.constant() {
        return format!("`{text:?}`");
    }
    if let Some(items) = schema.items() {
        let item = inner_table(items).map_or_else(|| value(items), |_| "table".into());
        return format!("list of {item}s");
    }
    let names: Vec<&str> = schema.variants().filter_map(Schema::constant).collect();
    if !names.is_empty() {
        return "name".into();
    }
    if schema.named().is_some() {
        return "table".into();
    }
    let kind = schema.get("type").map(|kind| kind.as_array().and_then(|kinds| kinds.first()).unwrap_or(kind));
    match kind.and_then(Value::as_str) {
        Some("integer") => "whole number".into(),
        Some("number") => "number".into(),
        Some("boolean") => "`true` or `false`".into(),
        Some("string") => "text".into(),
        _ => "value".into(),
    }
}

/// The grounds that can do what the key asks for, and read it in some scenario.
fn grounds(at: &Place) -> Vec<GroundKind> {
    let path: Vec<&str> = at.path.split('.').take_while(|step| *step != "N").collect();
    let path = path.join(".");
    let reads = |ground: &&GroundKind| {
        let is_read = |sample: &Scenario| sample.ground == **ground && sample.check_effect(&path).is_ok();
        at.grounds.contains(ground)
            && check::grounds_of(&path).contains(ground)
            && SAMPLES.iter().any(is_read)
    };
    GroundKind::ALL.iter().filter(reads).copied().collect()
}

/// A scenario of each workload on each ground that runs it, under each family of schedulers.
static SAMPLES: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let mut samples = Vec::new();
    let at = Place { path: "workload".into(), grounds: &GroundKind::ALL };
    let workloads = Schema::root().property("workload").into_iter().flat_map(Schema::variants);
    for workload in workloads.filter_map(|kind| workload(&at, kind.tag())) {
        for ground in workload.grounds() {
            for scheduler in [SchedulerKind::Eevdf, SchedulerKind::Credit] {
                samples.push(sample(*ground, scheduler, &workload));
            }
        }
    }
    samples
});

fn sample(ground: GroundKind, scheduler: SchedulerKind, workload: &Workload) -> Scenario {
    Scenario {
        name: String::new(),
        title: String::new(),
        ground,
        run: Default::default(),
        guest: Default::default(),
        host: HostModel { scheduler, ..HostModel::default() },
        workload: workload.clone(),
        observe: Default::default(),
        conditions: [(String::new(), Condition { remedies: Remedy::ALL.to_vec(), ..Condition::default() })]
            .into(),
        cases: Default::default(),
        sweeps: Default::default(),
        space: None,
        limits: Default::default(),
        published: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::explain;

    /// The keys that serde accepts in this table: it lists them when the table has an unknown one.
    fn accepted(table: &KeyTable, workload: &str) -> BTreeSet<String> {
        let mut value = Table::from_iter([("no-such-key".to_string(), toml::Value::Integer(0))]);
        if let Some((key, name)) = table.kind {
            value.insert(key.into(), name.into());
        }
        for step in table.path.rsplit('.').filter(|step| !step.is_empty()) {
            if step == "workload" {
                value.entry("kind").or_insert(workload.into());
            }
            value = Table::from_iter([(step.to_string(), toml::Value::Table(value))]);
        }
        let error = Scenario::deserialize(lists(toml::Value::Table(value))).unwrap_err();
        let error = error.message();
        assert!(error.contains("unknown field `no-such-key`"), "{}: {error}", table.path);
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// Replaces each table with the key N by a list with that item.
    fn lists(value: toml::Value) -> toml::Value {
        let toml::Value::Table(mut table) = value else { return value };
        if let Some(item) = table.remove("N") {
            return toml::Value::Array(vec![lists(item)]);
        }
        toml::Value::Table(table.into_iter().map(|(key, value)| (key, lists(value))).collect())
    }

    #[test]
    fn the_list_has_the_keys_that_are_accepted_and_no_others() {
        let tables = all();
        let mut workload = "";
        for (number, table) in tables.iter().enumerate() {
            workload = table.kind.filter(|(tag, _)| *tag == "kind").map_or(workload, |(_, name)| name);
            let prefix = if table.path.is_empty() { String::new() } else { format!("{}.", table.path) };
            let mut listed: BTreeSet<String> = table.keys.iter().map(|key| key.name.to_string()).collect();
            // A table's inner ones follow it, until its next kind.
            let inner = tables[number + 1..].iter().map(|other| other.path.as_str());
            let inner =
                inner.take_while(|path| *path != table.path).map_while(|path| path.strip_prefix(&prefix));
            listed.extend(inner.filter_map(|rest| rest.split('.').next()).map(str::to_owned));
            let mut accepted = accepted(table, workload);
            // serde takes the tag of a kind before it looks at the other keys.
            accepted.extend(table.kind.map(|(key, _)| key.to_string()));
            assert_eq!(listed, accepted, "{} {:?}", table.path, table.kind);
        }
        assert!(tables.iter().map(|table| table.keys.len()).sum::<usize>() > 150);
    }

    #[test]
    fn a_default_is_what_a_file_without_the_key_has() {
        let plain = toml::Table::try_from(&SAMPLES[0]).unwrap();
        for table in
            all().iter().filter(|table| ["guest", "host.xen", "run", "limits"].contains(&&*table.path))
        {
            let steps: Vec<&str> = table.path.split('.').collect();
            let held = explain::lookup(&plain, &steps).unwrap().as_table().unwrap();
            for key in &table.keys {
                assert_eq!(Some(held[key.name].to_string()), key.default, "{}.{}", table.path, key.name);
            }
        }
    }

    #[test]
    fn every_key_says_what_it_means() {
        for table in all() {
            assert!(table.description.ends_with('.'), "{}: {:?}", table.path, table.description);
            for key in table.keys.iter().filter(|key| table.kind.is_none_or(|(tag, _)| key.name != tag)) {
                assert!(key.description.ends_with('.'), "{}.{}: {:?}", table.path, key.name, key.description);
                assert!(!key.grounds.is_empty(), "{}.{} is read nowhere", table.path, key.name);
            }
        }
    }
}
