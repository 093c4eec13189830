//! Values for the keys of a scenario. The keys are those that the scenario has, so that a new one is drawn without a line
//! here; what a key may be is learned from the refusal that names its range.

use reprieve_sim::random::Stream;
use reprieve_study::scenario::BadScenario;
use reprieve_study::{Scenario, overrides};
use serde_json::Value;

use crate::bases;

/// Keys that are not the run's, or that bound it.
const LEFT_ALONE: [&str; 13] = [
    "name",
    "title",
    "ground",
    "published",
    "cases",
    "sweeps",
    "guest.kernel",
    "guest.append",
    "guest.accelerator",
    "run.repeat",
    "run.conditions",
    "run.attribute",
    "limits",
];
/// How often a refused scenario is changed before it is given up.
const REPAIRS: u32 = 60;

/// A key with its value, as `--set` has it.
type Assignment = (String, String);

/// Draws scenarios.
pub struct Draw {
    random: Stream,
}

impl Draw {
    /// The one of that number.
    pub fn new(number: u64) -> Draw {
        Draw { random: Stream::new(1, "generated scenario", number) }
    }

    /// A scenario that passes the checks, if one came of it, and what was assigned to which base.
    pub fn scenario(&mut self) -> (Option<Scenario>, String) {
        let mut text = bases::text(self.random.within(0, bases::COUNT - 1));
        if self.random.one_in(8) {
            text.push_str(bases::MORE);
        }
        let base = read(&text, &[]).expect("a base passes the checks");
        let mut keys = Vec::new();
        flatten("", &serde_json::to_value(&base).expect("a scenario has a JSON form"), &mut keys);
        let mut assignments: Vec<Assignment> = Vec::new();
        for _ in 0..self.random.within(1, 12) {
            let (key, value) = &keys[self.random.within(0, keys.len() as u64 - 1) as usize];
            let value = self.value(key, value, &keys);
            if key.ends_with("workload.system") {
                // Two of the systems are of hosts with this one alone.
                assignments.push(("host.scheduler".into(), "'cfs'".into()));
            }
            assignments.push((key.clone(), value));
        }
        if self.random.one_in(4) {
            assignments.push(("limits.simulated_ms".into(), self.integer(600_000)));
        }
        if self.random.one_in(16) {
            assignments.push(("limits.events".into(), "400_000".into()));
        }
        if text.contains("'io'") && self.random.one_in(6) {
            assignments.extend(self.hungry_readers());
        }
        let scenario = self.repaired(&text, &mut assignments);
        (scenario, format!("{text}\n{assignments:#?}"))
    }

    /// Reads that are as large as the page cache, of many small pages, by many threads: values that are drawn one by one hardly
    /// ever come together so.
    fn hungry_readers(&mut self) -> Vec<Assignment> {
        let cache_mib = self.random.within(32, 64);
        let (threads, kib) = (self.random.within(1, 24), (cache_mib << 10) - 4 * self.random.within(0, 2));
        let step = format!("{{ do = 'read', access = {}, kib = {kib} }}", self.text("access"));
        let task = format!("{{ threads = {threads}, file_mib = 256, steps = [{step}] }}");
        let block =
            [("page_kib", 4), ("cache_mib", cache_mib), ("request_kib", 4 * self.random.within(1, 64))];
        let block = block.map(|(key, value)| (format!("workload.block.{key}"), value.to_string()));
        let applications = ["mixed", "reader"];
        let tasks =
            applications.map(|name| (format!("workload.applications.{name}.tasks"), format!("[{task}]")));
        block.into_iter().chain(tasks).chain([("workload.clients".into(), "0".into())]).collect()
    }

    /// Changes what is refused until the rest is accepted.
    fn repaired(&mut self, text: &str, assignments: &mut Vec<Assignment>) -> Option<Scenario> {
        for _ in 0..REPAIRS {
            let refused = match read(text, assignments) {
                Ok(scenario) => return Some(scenario),
                Err(refused) => refused,
            };
            self.repair(&refused, assignments);
        }
        None
    }

    /// A value beyond its range becomes one of the range's ends, or something between; another fault goes.
    fn repair(&mut self, refused: &BadScenario, assignments: &mut Vec<Assignment>) {
        let of_key = |(key, _): &Assignment| key == &refused.key;
        match (assignments.iter().rposition(of_key), range(&refused.problem)) {
            (Some(at), Some((low, high))) => {
                let between = self.random.within(0, 1_000) as f64 / 1_000.0;
                assignments[at].1 = match self.random.within(0, 3) {
                    0 => low.to_string(),
                    1 => ((low + (high - low) * between.powi(4)) as u64).to_string(),
                    _ => high.to_string(),
                };
            }
            (Some(at), None) => drop(assignments.remove(at)),
            (None, _) => {
                let near = assignments.iter().rposition(|(key, _)| key.starts_with(&refused.key));
                let any = self.random.within(0, assignments.len().max(1) as u64 - 1) as usize;
                if !assignments.is_empty() {
                    assignments.remove(near.unwrap_or(any));
                }
            }
        }
    }

    fn value(&mut self, key: &str, now: &Value, keys: &[(String, Value)]) -> String {
        let last = key.rsplit('.').next().unwrap_or(key);
        match now {
            Value::Bool(_) => if self.random.one_in(2) { "true" } else { "false" }.into(),
            Value::Number(number) if number.is_u64() || number.is_i64() => {
                self.integer(number.as_u64().unwrap_or(0))
            }
            Value::Number(number) => self.float(number.as_f64().unwrap_or(1.0)),
            Value::String(_) => self.text(key),
            Value::Object(_) => self.setting(keys),
            _ => self.list(key, last),
        }
    }

    /// Ends of what a number can be, powers of ten and of two, and what is near the present value.
    fn integer(&mut self, now: u64) -> String {
        let most = i64::MAX as u64;
        let value = match self.random.within(0, 8) {
            0 => 0,
            1 => 1,
            2 => 10_u64.pow(self.random.within(0, 18) as u32),
            3 => (1 << self.random.within(1, 62)) - 1,
            4 => most,
            5 => now.saturating_mul(10).min(most),
            6 => now / 10,
            _ => self.random.within(0, now.saturating_mul(3).clamp(4, most)),
        };
        value.to_string()
    }

    fn float(&mut self, now: f64) -> String {
        let part = self.random.within(0, 3_000) as f64 / 1_000.0;
        match self.random.within(0, 7) {
            0 => "0.0".into(),
            1 => "1.0".into(),
            2 => "1e-9".into(),
            3 => "1e300".into(),
            4 => format!("1e{}", self.random.within(0, 4)),
            _ => format!("{:?}", now.max(1.0) * part),
        }
    }

    fn text(&mut self, key: &str) -> String {
        let texts = bases::TEXTS.iter().find(|(end, _)| key.ends_with(end));
        let (_, texts) = texts.unwrap_or_else(|| panic!("what can {key} be? Add it to TEXTS"));
        format!("'{}'", texts[self.random.within(0, texts.len() as u64 - 1) as usize])
    }

    /// What a condition sets: one other key.
    fn setting(&mut self, keys: &[(String, Value)]) -> String {
        let of_run = |key: &str| !key.starts_with("conditions.");
        let scalars: Vec<&(String, Value)> = keys
            .iter()
            .filter(|(key, value)| of_run(key) && !value.is_array() && !value.is_object())
            .collect();
        let (key, value) = scalars[self.random.within(0, scalars.len() as u64 - 1) as usize];
        format!("{{ '{key}' = {} }}", self.value(key, value, keys))
    }

    fn list(&mut self, key: &str, last: &str) -> String {
        let most = if self.random.one_in(10) { 300 } else { 3 };
        let count = self.random.within(0, most);
        let items: Vec<String> = (0..count).map(|_| self.item(key, last)).collect();
        format!("[{}]", items.join(", "))
    }

    fn item(&mut self, key: &str, last: &str) -> String {
        let (a, b) = (self.random.within(0, 40), self.random.within(1, 400));
        match last {
            "noise_tail" => {
                format!("{{ every_us = {}, for_us = {} }}", self.integer(100_000), self.integer(700))
            }
            "quota" => format!("{{ vcpu = {}, percent = {}, period_ms = {b} }}", a % 4, self.float(30.0)),
            "pauses" => format!("{{ vcpu = {}, at_ms = {a}, for_ms = {b} }}", a % 2),
            "spikes" => format!("{{ at_ms = {a}, for_ms = {b}, vcpus = {} }}", self.integer(8)),
            "pcpus" => (a % 4).to_string(),
            "weights" => self.integer(100),
            "steps" => match a % 3 {
                0 => format!("{{ do = 'compute', us = {b}, spread_percent = {a} }}"),
                1 => format!("{{ do = 'read', access = {}, kib = {} }}", self.text("access"), 16 * b),
                _ => format!("{{ do = 'write', access = {}, kib = {} }}", self.text("access"), 16 * b),
            },
            "tasks" => format!("{{ threads = {b}, file_mib = {b}, steps = {} }}", self.list(key, "steps")),
            _ => self.text(key),
        }
    }
}

fn read(text: &str, assignments: &[Assignment]) -> Result<Scenario, BadScenario> {
    let assignments: Vec<String> = assignments.iter().map(|(key, value)| format!("{key}={value}")).collect();
    overrides::read(text, None, &assignments)
}

/// The range that a refusal names.
fn range(problem: &str) -> Option<(f64, f64)> {
    let (low, high) = problem.split_once("is not within ")?.1.split_once(" to ")?;
    let number = |text: &str| text.split([' ', ';']).next()?.parse().ok();
    Some((number(low)?, number(high)?))
}

/// Dotted keys with their values, as `--set` names them.
fn flatten(prefix: &str, value: &Value, into: &mut Vec<(String, Value)>) {
    let Value::Object(object) = value else { return };
    for (name, value) in object {
        let key = format!("{prefix}{name}");
        // What a workload or a step is decides which keys it has, and labels say nothing to the simulator.
        let is_tag = ["label", "do"].contains(&name.as_str()) || key == "workload.kind";
        if is_tag || LEFT_ALONE.contains(&key.as_str()) {
            continue;
        }
        match value {
            Value::Object(inner) if !inner.is_empty() && name != "set" => {
                flatten(&format!("{key}."), value, into)
            }
            Value::Array(items) => {
                into.push((key.clone(), value.clone()));
                for (index, item) in items.iter().enumerate() {
                    flatten(&format!("{key}.{index}."), item, into);
                }
            }
            _ => into.push((key, value.clone())),
        }
    }
}
