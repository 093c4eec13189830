//! Explains errors of a scenario file in the file's own terms: the dotted key at fault, and its possible values.
//!
//! serde's messages name Rust's types and no keys. `serde_path_to_error` gives the path to the key, but only as far
//! as the workload, because its kind is a tag; so the workload is parsed once more with the type of its kind.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use toml::{Table, Value};

use super::keys::{self, KeyTable};
use super::workload::{Clones, DeleteFree, Fio, Io, Memory, Postmark, Requests, Tasks, Wakeup};
use super::{BadScenario, Result};

/// The key of an error that concerns the whole file.
pub(super) const WHOLE: &str = "scenario";
/// The hint to the list of all keys.
pub(super) const ALL_KEYS: &str = "docs/keys.md lists all keys";
/// Least similarity of a wrong name to one that is suggested (Jaro-Winkler, 0 to 1).
const NEAR: f64 = 0.75;
/// Most keys that a message suggests.
const MOST_SUGGESTED: usize = 3;

/// serde's names of expected values, and plain words for them.
const EXPECTED: [(&str, &str); 12] = [
    ("u64", "a whole number from 0 up"),
    ("u32", "a whole number from 0 up"),
    ("usize", "a whole number from 0 up"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("a string", "a text"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("variant identifier", "a name"),
    ("struct ", "a table"),
    ("internally tagged enum ", "a table"),
];

/// The name among `known` that `wrong` was probably meant to be.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored.filter(|(score, _)| *score > NEAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// The hint for a key that does not exist. Most often a table is missing on the way to it (`overcommit` for
/// `conditions.NAME.overcommit`); otherwise a name is mistyped.
pub(super) fn other_keys(wrong: &str, known: &[String]) -> String {
    let mut near: Vec<&str> = known.iter().map(String::as_str).filter(|key| leaves_out(wrong, key)).collect();
    near.truncate(MOST_SUGGESTED);
    if near.is_empty() {
        near.extend(nearest(wrong, known.iter().map(String::as_str)));
    }
    match near.is_empty() {
        true => ALL_KEYS.into(),
        false => format!("did you mean {}? {ALL_KEYS}", near.join(" or ")),
    }
}

/// Whether `short` is the key without some of its steps; the last step is the same.
fn leaves_out(short: &str, key: &str) -> bool {
    let mut steps = key.rsplit('.');
    let mut wanted = short.rsplit('.');
    steps.next() == wanted.next() && wanted.all(|step| steps.any(|other| other == step))
}

/// The value that the table stands for.
///
/// # Errors
/// The key at fault, and what it may be.
pub(super) fn parse<T: DeserializeOwned>(table: &Table) -> Result<T> {
    parse_at("", table)
}

/// The value of a table whose keys begin with `prefix`.
fn parse_at<T: DeserializeOwned>(prefix: &str, table: &Table) -> Result<T> {
    serde_path_to_error::deserialize(table.clone()).map_err(|error| {
        let (path, error) = (steps(error.path()), error.into_inner());
        explain(prefix, table, path, error.message())
    })
}

/// The steps of a dotted key; items of a list have their number.
fn steps(path: &Path) -> Vec<String> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

fn explain(prefix: &str, table: &Table, mut path: Vec<String>, message: &str) -> BadScenario {
    let inside = lookup(table, &path).and_then(Value::as_table);
    if let (true, Some(Err(bad))) = (path == ["workload"], inside.and_then(again)) {
        return bad;
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let says = |words: &str| message.starts_with(words);
    let problem = match quoted.split_first() {
        Some((key, _)) if says("missing field") => {
            path.push((*key).into());
            "is missing".into()
        }
        Some((wrong, known)) if says("unknown field") => {
            path.extend((path.last().map(String::as_str) != Some(wrong)).then(|| (*wrong).into()));
            let key = format!("{prefix}{}", path.join("."));
            elsewhere(&key).unwrap_or_else(|| unknown(wrong, known))
        }
        Some((wrong, known)) if says("unknown variant") => {
            // The path to a tag ends at its table.
            path.extend(inside.and_then(|table| key_of(table, &format!("{wrong:?}"))));
            let near = nearest(wrong, known.iter().copied());
            let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
            format!("{wrong:?} is none of {}{hint}", known.join(", "))
        }
        _ => {
            path.extend(inside.and_then(|table| key_of(table, given(message))));
            in_plain_words(message)
        }
    };
    let key = format!("{prefix}{}", path.join("."));
    let key = if key.is_empty() { WHOLE.into() } else { key };
    BadScenario { key, problem }
}

/// The hint that a key belongs in another table, if there is such a key.
fn elsewhere(wrong: &str) -> Option<String> {
    let known: Vec<String> = keys::all().iter().flat_map(KeyTable::paths).collect();
    let is_elsewhere = |key: &&String| *key != wrong && leaves_out(wrong, key);
    let near: Vec<&str> =
        known.iter().filter(is_elsewhere).take(MOST_SUGGESTED).map(String::as_str).collect();
    (!near.is_empty()).then(|| format!("unknown; did you mean {}?", near.join(" or ")))
}

fn unknown(wrong: &str, known: &[&str]) -> String {
    match nearest(wrong, known.iter().copied()) {
        Some(near) => format!("unknown; did you mean {near}?"),
        None => format!("unknown; expected one of {}", known.join(", ")),
    }
}

/// Parses the workload with the type of its kind; `None` if the kind itself is at fault.
fn again(workload: &Table) -> Option<Result> {
    let mut keys = workload.clone();
    let kind = keys.remove("kind")?;
    match kind.as_str()? {
        "memory" => Some(parse_at::<Memory>("workload.", &keys).map(drop)),
        "clone" => Some(parse_at::<Clones>("workload.", &keys).map(drop)),
        "postmark" => Some(parse_at::<Postmark>("workload.", &keys).map(drop)),
        "wakeup" => Some(parse_at::<Wakeup>("workload.", &keys).map(drop)),
        "requests" => Some(parse_at::<Requests>("workload.", &keys).map(drop)),
        "tasks" => Some(parse_at::<Tasks>("workload.", &keys).map(drop)),
        "io" => Some(parse_at::<Io>("workload.", &keys).map(drop)),
        "fio" => Some(parse_at::<Fio>("workload.", &keys).map(drop)),
        "delete-free" => Some(parse_at::<DeleteFree>("workload.", &keys).map(drop)),
        _ => None,
    }
}

/// The value at that path.
pub(super) fn lookup<'a>(table: &'a Table, path: &[impl AsRef<str>]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(first.as_ref())?, |at, step| match at {
        Value::Table(table) => table.get(step.as_ref()),
        Value::Array(items) => items.get(step.as_ref().parse::<usize>().ok()?),
        _ => None,
    })
}

/// The key of the table whose value is written in this way.
fn key_of(table: &Table, written: &str) -> Option<String> {
    table.iter().find(|(_, value)| value.to_string() == written).map(|(key, _)| key.clone())
}

/// The value in one of serde's messages: `"x"` of ``invalid type: string "x", expected u64``.
fn given(message: &str) -> &str {
    let value = message.rsplit_once(", expected ").and_then(|(given, _)| given.splitn(4, ' ').nth(3));
    value.unwrap_or_default().trim_matches('`')
}

/// serde's message without the names of Rust's types.
fn in_plain_words(message: &str) -> String {
    let message = message.trim();
    // toml's message where a name is expected and the value is not a text.
    if message == "invalid type: unit variant, expected string only" {
        return "expected a text".into();
    }
    let Some((given, expected)) = message.rsplit_once(", expected ") else { return message.into() };
    let plain = EXPECTED
        .iter()
        .find(|(rust, _)| expected == *rust || rust.ends_with(' ') && expected.starts_with(rust));
    plain.map_or_else(|| message.into(), |(_, plain)| format!("{given}, expected {plain}"))
}

#[cfg(test)]
mod tests {
    use crate::GroundKind;
    use crate::scenario::overrides;

    const HEAD: &str = "name = 't'\ntitle = 't'\n";
    const REST: &str = "workload = { kind = 'memory' }\n[conditions.a]\n[conditions.b]\n";

    fn error(text: &str, assignments: &[&str]) -> String {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        overrides::read(text, Some(GroundKind::Sim), &assignments).unwrap_err().to_string()
    }

    fn in_a_file(lines: &str) -> String {
        error(&format!("{HEAD}{REST}{lines}"), &[])
    }

    fn with_workload(workload: &str) -> String {
        error(&format!("{HEAD}workload = {{ {workload} }}\n[conditions.a]\n"), &[])
    }

    fn assigned(assignment: &str) -> String {
        error(&format!("{HEAD}{REST}"), &[assignment])
    }

    #[test]
    fn a_value_of_a_wrong_type_is_named_with_its_key_and_in_words() {
        let number = "expected a whole number from 0 up";
        assert_eq!(
            in_a_file("[guest]\nvcpus = '8'"),
            format!("guest.vcpus: invalid type: string \"8\", {number}")
        );
        assert_eq!(
            in_a_file("quota = [{ vcpu = 0, percent = 20 }, { vcpu = -1, percent = 20 }]"),
            format!("conditions.b.quota.1.vcpu: invalid value: integer `-1`, {number}")
        );
        assert_eq!(
            with_workload("kind = 'memory', burst = 'x'"),
            format!("workload.burst: invalid type: string \"x\", {number}")
        );
        assert_eq!(
            with_workload("kind = 'io', disk = { gib = true }"),
            format!("workload.disk.gib: invalid type: boolean `true`, {number}")
        );
        assert_eq!(in_a_file("[guest]\nrcu = 3"), "guest.rcu: invalid type: integer `3`, expected a table");
        assert_eq!(
            in_a_file("[guest]\nspeed = 'fast'"),
            "guest.speed: invalid type: string \"fast\", expected a number"
        );
        assert_eq!(
            assigned("run.repeat=many"),
            format!("run.repeat: invalid type: string \"many\", {number}")
        );
        assert_eq!(
            in_a_file("set = { guest.vcpus = [1] }"),
            "conditions.b.set.guest: a key is set to a number, a text, a list of texts, true or false"
        );
        assert_eq!(with_workload("kind = 3"), "workload.kind: invalid type: integer `3`, expected a name");
        assert_eq!(in_a_file("[host]\nscheduler = 3"), "host.scheduler: expected a text");
        let step = "do = 'read', access = 'random', kib = 'x'";
        assert_eq!(
            with_workload(&format!(
                "kind = 'io', applications = {{ a = {{ tasks = [{{ steps = [{{ {step} }}] }}] }} }}"
            )),
            format!("workload.applications.a.tasks.0.steps.0.kib: invalid type: string \"x\", {number}")
        );
    }

    #[test]
    fn a_key_that_is_missing_is_named_in_full() {
        assert_eq!(in_a_file("[sweeps.s]\nvalues = [1]"), "sweeps.s.key: is missing");
        assert_eq!(in_a_file("quota = [{ vcpu = 0 }]"), "conditions.b.quota.0.percent: is missing");
        assert_eq!(error("name = 't'\n", &[]), "title: is missing");
        assert_eq!(with_workload("burst = 3"), "workload.kind: is missing");
    }

    #[test]
    fn a_name_that_there_is_not_gets_all_that_there_are() {
        let all = "eevdf, cfs, credit, credit2, rtds";
        assert_eq!(
            in_a_file("[host]\nscheduler = 'bfs'"),
            format!("host.scheduler: \"bfs\" is none of {all}; did you mean cfs?")
        );
        assert_eq!(assigned("host.scheduler=fair"), format!("host.scheduler: \"fair\" is none of {all}"));
        assert!(with_workload("kind = 'memroy'").ends_with("delete-free; did you mean memory?"));
        assert_eq!(
            with_workload("kind = 'fio', access = 'randm'"),
            "workload.access: \"randm\" is none of sequential, random; did you mean random?"
        );
    }

    #[test]
    fn a_key_that_there_is_not_gets_the_nearest_ones_and_the_list() {
        let list = "docs/keys.md lists all keys";
        assert_eq!(
            assigned("guest.blimit=5"),
            format!("guest.blimit: there is no such key; did you mean guest.rcu.blimit? {list}")
        );
        assert_eq!(
            assigned("overcommit=2"),
            format!(
                "overcommit: there is no such key; did you mean conditions.a.overcommit or \
                 conditions.b.overcommit? {list}"
            )
        );
        assert_eq!(assigned("qqqqqq=2"), format!("qqqqqq: there is no such key; {list}"));
        assert_eq!(in_a_file("[guest]\nvcpu = 8"), "guest.vcpu: unknown; did you mean vcpus?");
        assert_eq!(in_a_file("[guest]\nblimit = 8"), "guest.blimit: unknown; did you mean guest.rcu.blimit?");
        assert_eq!(
            with_workload("kind = 'io', gib = 8"),
            "workload.gib: unknown; did you mean workload.disk.gib?"
        );
        assert!(with_workload("kind = 'clone', burst = 8").starts_with("workload.burst: unknown; expected"));
        assert_eq!(
            with_workload("kind = 'memory', brust = 3"),
            "workload.brust: unknown; did you mean burst?"
        );
    }

    #[test]
    fn only_numbers_are_swept() {
        let sweep = "[sweeps.s]\nkey = 'host.scheduler'\nvalues = ['cfs', 'eevdf']";
        assert_eq!(in_a_file(sweep), "sweeps.s.values: \"cfs\" is not a number, and only numbers are swept");
    }

    #[test]
    fn a_condition_alone_is_doubted() {
        let read = |text: &str| overrides::read(&format!("{HEAD}{text}"), None, &[]).unwrap();
        let alone = read("workload = { kind = 'memory' }\n[conditions.a]\n").doubts();
        assert!(alone.unwrap().contains("compared with nothing"));
        assert_eq!(read(REST).doubts(), None);
    }
}
