//! Reads a scenario file, and applies `--set key=value`.

use serde::Deserialize;
use toml::{Table, Value};

use super::check::refuse_if;
use super::conditions_of::{self, Others};
use super::explain::{self, WHOLE};
use super::{BadScenario, GroundKind, Result, Scenario, Setting, limits};

pub use super::explain::nearest;

/// Parses a scenario file for a ground (by default the file's own) and applies assignments `a.b.c=value` in order. A
/// value is TOML, or else a text. The conditions that `run.attribute` asks for are added, and the result is checked.
///
/// Before that, the table `[on.GROUND]` is laid over the rest of the file: tables are merged, other values replaced.
/// A file that takes the conditions of another one is refused: see [`read_with`].
pub fn read(text: &str, ground: Option<GroundKind>, assignments: &[String]) -> Result<Scenario> {
    read_with(text, ground, assignments, &|_| Err("no other scenario can be read here".into()))
}

/// As [`read`], with `others` to take conditions from: `conditions_of = "NAME"`.
pub fn read_with(
    text: &str,
    ground: Option<GroundKind>,
    assignments: &[String],
    others: Others,
) -> Result<Scenario> {
    check_size(text)?;
    let mut table: Table =
        text.parse().map_err(|e: toml::de::Error| BadScenario::new(WHOLE, e.to_string()))?;
    let ground = choose_ground(&mut table, ground)?;
    conditions_of::resolve(&mut table, ground, others)?;
    let mut scenario = to_scenario(&table)?;
    if !assignments.is_empty() {
        scenario = assigned(&table, &scenario, assignments)?;
    }
    // This comes first, because it bounds the work of everything after it.
    scenario.check_counts()?;
    scenario.add_counterparts()?;
    scenario.check()?;
    scenario.check_assigned(
        assignments.iter().filter_map(|assignment| Some(assignment.split_once('=')?.0.trim())),
    )?;
    Ok(scenario)
}

/// Refuses a scenario file that is too large.
pub(crate) fn check_size(text: &str) -> Result {
    let problem = format!("{} bytes are more than {} for a file", text.len(), limits::FILE_BYTES);
    refuse_if(text.len() as u64 > limits::FILE_BYTES, WHOLE, problem)
}

/// The scenario of the table, with assignments `key=value` on top.
fn assigned(table: &Table, scenario: &Scenario, assignments: &[String]) -> Result<Scenario> {
    let problem = format!("{} assignments are more than {}", assignments.len(), limits::ASSIGNMENTS);
    refuse_if(assignments.len() > limits::ASSIGNMENTS, WHOLE, problem)?;
    let full = to_table(scenario)?;
    let mut settings = Vec::new();
    for assignment in assignments {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(BadScenario::new(assignment, "write it as key=value"));
        };
        let key = key.trim();
        refuse_if(key == "ground", key, "choose it with --on")?;
        // A text may look like a number: kernel 6.12.
        let path: Vec<&str> = key.split('.').collect();
        let value = match explain::lookup(&full, &path) {
            Some(Value::String(_)) => match parse(value.trim()) {
                text @ Value::String(_) => text,
                _ => Value::String(value.trim().into()),
            },
            _ => parse(value.trim()),
        };
        settings.push((key, value));
    }
    let mut scenario = to_scenario(&set(table, &paths(&full), &settings)?)?;
    for (name, condition) in &mut scenario.conditions {
        let prefix = format!("conditions.{name}.");
        let changed: Vec<&str> = settings.iter().filter_map(|(key, _)| key.strip_prefix(&prefix)).collect();
        // The label says what the condition was before.
        if !changed.is_empty() && !changed.contains(&"label") {
            condition.label.clear();
        }
    }
    Ok(scenario)
}

/// The scenario with other values for some keys. The result is not checked.
pub fn apply<'a>(
    scenario: &Scenario,
    settings: impl IntoIterator<Item = (&'a str, &'a Setting)>,
) -> Result<Scenario> {
    Prepared::of(scenario)?.with(settings)
}

/// A scenario that is given other values for some keys again and again.
pub(super) struct Prepared {
    full: Table,
    paths: Vec<String>,
}

impl Prepared {
    pub fn of(scenario: &Scenario) -> Result<Prepared> {
        let full = to_table(scenario)?;
        Ok(Prepared { paths: paths(&full), full })
    }

    /// The scenario with these values. The result is not checked.
    pub fn with<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a Setting)>) -> Result<Scenario> {
        let settings: Vec<_> = settings.into_iter().map(|(key, value)| (key, value.to_toml())).collect();
        to_scenario(&set(&self.full, &self.paths, &settings)?)
    }
}

/// The table with other values for some keys, which must be among `paths`.
fn set(table: &Table, paths: &[String], settings: &[(&str, Value)]) -> Result<Table> {
    let mut table = table.clone();
    settings.iter().try_for_each(|(key, value)| assign(&mut table, paths, key, value.clone()))?;
    Ok(table)
}

pub(super) fn to_table(scenario: &Scenario) -> Result<Table> {
    Table::try_from(scenario).map_err(|e| BadScenario::new(WHOLE, e.to_string()))
}

fn to_scenario(table: &Table) -> Result<Scenario> {
    #[cfg(test)]
    DESERIALIZED.set(DESERIALIZED.get() + 1);
    explain::parse(table)
}

#[cfg(test)]
thread_local! {
    /// Number of tables that this thread has parsed as scenarios.
    pub(crate) static DESERIALIZED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The part of a file that is needed before the rest can be read.
#[derive(Deserialize)]
struct OnlyGround {
    ground: GroundKind,
}

/// Removes `[on]` from the table, lays the chosen ground's part over the rest, and returns the ground.
pub(crate) fn choose_ground(table: &mut Table, ground: Option<GroundKind>) -> Result<GroundKind> {
    let names = GroundKind::ALL.map(|ground| ground.to_string());
    let mut on = match table.remove("on") {
        None => Table::new(),
        Some(Value::Table(on)) => on,
        Some(_) => return Err(BadScenario::new("on", "write it as tables, [on.sim] and [on.vm]")),
    };
    if let Some(other) = on.keys().find(|name| !names.contains(name)) {
        let problem = format!("there is no such ground; there are {}", names.join(", "));
        return Err(BadScenario::new(format!("on.{other}"), problem));
    }
    let ground = match (ground, table.get("ground")) {
        (Some(ground), _) => ground,
        (None, None) => GroundKind::default(),
        (None, Some(given)) => {
            explain::parse::<OnlyGround>(&Table::from_iter([("ground".into(), given.clone())]))?.ground
        }
    };
    let name = ground.to_string();
    match on.remove(&name) {
        None => {}
        Some(Value::Table(over)) if !over.contains_key("ground") => merge(table, over),
        Some(_) => {
            return Err(BadScenario::new(
                format!("on.{name}"),
                "must be a table of other keys of a scenario",
            ));
        }
    }
    table.insert("ground".into(), name.into());
    Ok(ground)
}

/// Lays one table over another.
pub(crate) fn merge(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(here)), Value::Table(over)) => merge(here, over),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

/// Sets one key. It must be among `paths`, those of the scenario with all its defaults.
fn assign(table: &mut Table, paths: &[String], key: &str, value: Value) -> Result {
    if !paths.iter().any(|path| path == key) {
        let problem = format!("there is no such key; {}", explain::other_keys(key, paths));
        return Err(BadScenario::new(key, problem));
    }
    let (parent, last) = match key.rsplit_once('.') {
        None => (Some(table), key),
        Some((parents, last)) => (parent(table, parents), last),
    };
    let gone = || BadScenario::new(key, "is gone: an earlier assignment replaced what held it");
    parent.ok_or_else(gone)?.insert(last.into(), value);
    Ok(())
}

/// The table at that path, created if the file has none. The path exists in the full table, so each step leads to a
/// table, or to an item of a list of tables that the file has; `None` if an earlier setting replaced one of them.
fn parent<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Table> {
    let mut here = table;
    let mut steps = path.split('.');
    while let Some(step) = steps.next() {
        let mut entry = here.entry(step).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Array(items) = entry {
            entry = items.get_mut(steps.next()?.parse::<usize>().ok()?)?;
        }
        here = entry.as_table_mut()?;
    }
    Some(here)
}

/// A value as TOML, or as text if it is none.
fn parse(value: &str) -> Value {
    let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    parsed.unwrap_or_else(|| Value::String(value.into()))
}

/// Dotted paths of everything that can be set: values, arrays of tables with the values in each (`pauses`,
/// `pauses.0.for_ms`), and tables that name keys of the scenario.
fn paths(table: &Table) -> Vec<String> {
    let mut paths = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) if !inner.is_empty() && !inner.keys().any(|key| key.contains('.')) => {
                paths.extend(self::paths(inner).into_iter().map(|path| format!("{key}.{path}")))
            }
            Value::Array(items) => {
                paths.push(key.clone());
                let tables =
                    items.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_table()?)));
                paths.extend(tables.flat_map(|(index, item)| {
                    self::paths(item).into_iter().map(move |path| format!("{key}.{index}.{path}"))
                }));
            }
            _ => paths.push(key.clone()),
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SchedulerKind;

    const TEXT: &str = r#"
        name = "t"
        title = "t"
        [workload]
        kind = "memory"
        [conditions.baseline]
        [conditions.overcommitted]
        quota = [{ vcpu = 1, percent = 20 }]
    "#;

    fn on(text: &str, ground: Option<GroundKind>, assignments: &[&str]) -> Result<Scenario, String> {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        read(text, ground, &assignments).map_err(|e| e.to_string())
    }

    fn with(assignments: &[&str]) -> Result<Scenario, String> {
        on(TEXT, None, assignments)
    }

    #[test]
    fn assignments_reach_values_with_and_without_a_line_in_the_file() {
        let scenario = with(&[
            "run.repeat=7",
            "host.scheduler=cfs",
            "conditions.overcommitted.quota=[{vcpu=0,percent=50}]",
            "run.conditions=[\"baseline\"]",
        ])
        .unwrap();
        assert_eq!(scenario.run.repeat, 7);
        assert_eq!(scenario.conditions[1].quota[0].percent, 50.0);
        assert_eq!(scenario.chosen().count(), 1);
        assert_eq!(scenario.host.scheduler, SchedulerKind::Cfs);
    }

    #[test]
    fn a_text_that_looks_like_a_number_is_a_text_where_one_is_wanted() {
        let kernel = |assignment| on(TEXT, Some(GroundKind::Vm), &[assignment]).unwrap().guest.kernel;
        assert_eq!(kernel("guest.kernel=6.12"), "6.12");
        assert_eq!(kernel("guest.kernel=6.10"), "6.10", "digits are kept");
        assert_eq!(kernel("guest.kernel='6.12'"), "6.12");
    }

    #[test]
    fn assignments_reach_into_arrays_of_tables_and_into_what_a_condition_sets() {
        let text =
            format!("{TEXT}spikes = [{{ at_ms = 0, for_ms = 5, vcpus = 1 }}]\nset = {{ guest.vcpus = 4 }}");
        let with = |assignment| on(&text, None, &[assignment]);
        let condition = |assignment| with(assignment).unwrap().conditions[1].clone();
        assert_eq!(condition("conditions.overcommitted.spikes.0.for_ms=9").spikes[0].for_ms, 9);
        assert_eq!(condition("conditions.overcommitted.spikes=[]").spikes, []);
        let set = condition("conditions.overcommitted.set={'guest.memory_mib'=1024}").set;
        assert_eq!(
            set.into_iter().collect::<Vec<_>>(),
            [("guest.memory_mib".into(), Setting::Integer(1024))]
        );
        assert!(with("conditions.overcommitted.spikes.1.for_ms=9").unwrap_err().contains("did you mean"));
        let gone = ["conditions.overcommitted.spikes=[]", "conditions.overcommitted.spikes.0.for_ms=9"];
        assert!(on(&text, None, &gone).unwrap_err().ends_with("an earlier assignment replaced what held it"));
    }

    #[test]
    fn each_ground_lays_its_own_part_over_the_rest() {
        let text = r#"
            name = "t"
            title = "t"
            [guest]
            vcpus = 16
            memory_mib = 8192
            [workload]
            kind = "memory"
            [conditions.baseline]
            [on.sim.conditions.overcommitted]
            overcommit = 2.0
            [on.vm.guest]
            vcpus = 2
            append = "x"
            [on.vm.conditions.overcommitted]
            quota = [{ vcpu = 1, percent = 20 }]
        "#;
        let (sim, vm) = (on(text, None, &[]).unwrap(), on(text, Some(GroundKind::Vm), &[]).unwrap());
        assert_eq!((sim.ground, sim.guest.vcpus, sim.guest.append.as_str()), (GroundKind::Sim, 16, ""));
        assert_eq!((vm.ground, vm.guest.vcpus, vm.guest.append.as_str()), (GroundKind::Vm, 2, "x"));
        assert_eq!((vm.guest.memory_mib, vm.conditions[1].overcommit), (8192, 0.0));
        assert_eq!((sim.conditions[1].overcommit, sim.conditions[1].quota.len()), (2.0, 0));
        let vm = on(text, Some(GroundKind::Vm), &["guest.vcpus=3"]).unwrap();
        assert_eq!(vm.guest.vcpus, 3, "an assignment is stronger than the ground's part");
        let in_the_file =
            text.replace("[guest]", "ground = 'vm'\n[guest]").replacen("ground", "title='t'\nground", 1);
        let in_the_file = in_the_file.replacen("title = \"t\"", "", 1);
        assert_eq!(on(&in_the_file, None, &[]).unwrap().guest.vcpus, 2);
        assert_eq!(on(&in_the_file, Some(GroundKind::Sim), &[]).unwrap().guest.vcpus, 16);
    }

    #[test]
    fn a_ground_that_there_is_not_is_refused() {
        let on = |line: &str| on(&format!("{line}\n{TEXT}"), None, &[]).unwrap_err();
        assert_eq!(on("on = 'vm'"), "on: write it as tables, [on.sim] and [on.vm]");
        assert_eq!(on("on.kvm = {}"), "on.kvm: there is no such ground; there are sim, vm, threads, xen");
        assert_eq!(on("on.sim = 1"), "on.sim: must be a table of other keys of a scenario");
        assert_eq!(
            on("ground = 'vmm'"),
            "ground: \"vmm\" is none of sim, vm, threads, xen; did you mean vm?"
        );
        assert_eq!(on("on.sim.guest.vcpu = 1"), "guest.vcpu: unknown; did you mean vcpus?");
        assert_eq!(with(&["ground=vm"]).unwrap_err(), "ground: choose it with --on");
    }

    #[test]
    fn a_condition_that_is_changed_loses_the_label_that_described_it() {
        let label = |assignments: &[&str]| {
            let text = "
                name = 't'
                title = 't'
                workload = { kind = 'memory' }
                [conditions.a]
                [conditions.b]
                label = 'twice as many'
                overcommit = 2.0
            ";
            on(text, None, assignments).unwrap().conditions["b"].label.clone()
        };
        assert_eq!(label(&["guest.vcpus=2"]), "twice as many");
        assert_eq!(label(&["conditions.b.overcommit=3"]), "");
        assert_eq!(label(&["conditions.b.overcommit=3", "conditions.b.label=thrice"]), "thrice");
    }

    #[test]
    fn a_slip_gets_the_nearest_name() {
        assert_eq!(
            with(&["guest.vcpu=4"]).unwrap_err(),
            "guest.vcpu: there is no such key; did you mean guest.vcpus? docs/keys.md lists all keys"
        );
        assert_eq!(with(&["guest.vcpus"]).unwrap_err(), "guest.vcpus: write it as key=value");
        assert!(
            with(&["guest.vcpus=many", "run.repeat=1"]).unwrap_err().starts_with("guest.vcpus: invalid type")
        );
        assert!(with(&["guest.vcpus=0"]).unwrap_err().starts_with("guest.vcpus: 0 is not within"));
        let slip = read(&TEXT.replace("title", "tilte"), None, &[]).unwrap_err().to_string();
        assert_eq!(slip, "tilte: unknown; did you mean title?");
        let kind = read(&TEXT.replace("memory", "memroy"), None, &[]).unwrap_err().to_string();
        assert!(kind.starts_with("workload.kind: \"memroy\" is none of memory, "), "{kind}");
    }
}
