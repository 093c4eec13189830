//! Checks every number of a scenario against the range that stands beside its field. Ranges that depend on other keys
//! are in `check`.

use toml::{Table, Value};

use super::schema::Schema;
use super::{BadScenario, Result, Scenario, overrides};

impl Scenario {
    pub(super) fn check_ranges(&self) -> Result {
        check_table(Schema::root(), &overrides::to_table(self)?, &mut Vec::new())
    }
}

fn check_table(schema: Schema, table: &Table, path: &mut Vec<String>) -> Result {
    let is = |kind: &Schema| {
        kind.tag().is_some_and(|(key, name)| table.get(key).and_then(Value::as_str) == Some(name))
    };
    let schema = schema.variants().find(is).unwrap_or(schema);
    for (key, value) in table {
        if let Some(inner) = schema.property(key).or_else(|| schema.named()) {
            path.push(key.clone());
            check(inner, value, path)?;
            path.pop();
        }
    }
    Ok(())
}

fn check(schema: Schema, value: &Value, path: &mut Vec<String>) -> Result {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Table(table) => return check_table(schema, table, path),
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return Ok(()) };
            for (number, item) in items.iter().enumerate() {
                path.push(number.to_string());
                check(schema, item, path)?;
                path.pop();
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    match schema.range() {
        Some((low, high)) if !(low..=high).contains(&number) => {
            Err(BadScenario::new(path.join("."), format!("{number} is not within {low} to {high}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        let table: Table = text.parse().unwrap();
        check_table(Schema::root(), &table, &mut Vec::new()).err().map(|error| error.to_string())
    }

    #[test]
    fn both_ends_of_a_range_are_allowed_and_nothing_beyond() {
        for (key, low, high) in [
            ("guest.vcpus", "1", "64"),
            ("guest.speed", "0.01", "1000"),
            ("guest.rcu.blimit", "1", "10000000"),
        ] {
            let with = |value: &str| refused(&format!("{key} = {value}"));
            assert_eq!((with(low), with(high)), (None, None), "{key}");
            for beyond in ["-1", "1e18", "nan"] {
                assert!(with(beyond).unwrap().starts_with(&format!("{key}: ")), "{key}");
            }
            assert!(with("0").unwrap().ends_with(&format!("0 is not within {low} to {high}")));
        }
    }

    #[test]
    fn a_number_is_found_in_lists_under_names_and_in_the_kind_of_its_table() {
        assert_eq!(
            refused("conditions.a.quota = [{ percent = 20 }, { percent = 0.5 }]").unwrap(),
            "conditions.a.quota.1.percent: 0.5 is not within 1 to 100"
        );
        assert_eq!(
            refused("workload = { kind = 'memory', burst = 0 }").unwrap(),
            "workload.burst: 0 is not within 1 to 100000"
        );
        assert_eq!(refused("workload = { kind = 'clone', burst = 0 }"), None, "that kind has no such key");
        let steps = "[{ do = 'read', us = 0 }, { do = 'compute', us = 0 }]";
        assert_eq!(
            refused(&format!("workload = {{ kind = 'io', applications.a.tasks = [{{ steps = {steps} }}] }}"))
                .unwrap(),
            "workload.applications.a.tasks.0.steps.1.us: 0 is not within 1 to 10000000"
        );
    }
}
