//! Limits how much a scenario asks for. These checks bound the work of all later ones, so they come first and look at
//! counts and lengths alone.

use serde::Serialize;

use super::{bad, refuse_if};
use crate::scenario::{Clones, Condition, Published, Result, Scenario, Setting, Space, Workload, limits};

/// The way out if a product is too large.
const SPLIT: &str = "make several scenarios of it";

impl Scenario {
    /// Counts that are known from the file as it is.
    pub(crate) fn check_counts(&self) -> Result {
        self.check_texts()?;
        at_most("conditions", self.conditions.len(), limits::CONDITIONS, "conditions")?;
        at_most("cases", self.cases.len(), limits::CASES, "cases")?;
        at_most("sweeps", self.sweeps.len(), limits::SWEEPS, "sweeps")?;
        at_most("run.conditions", self.run.conditions.len(), limits::CONDITIONS, "names")?;
        at_most("run.attribute", self.run.attribute.len(), limits::ATTRIBUTED, "names")?;
        for (name, condition) in &self.conditions {
            check_condition(name, condition)?;
        }
        for (name, case) in &self.cases {
            check_set("cases", name, &case.label, case.set.iter())?;
        }
        for (name, sweep) in &self.sweeps {
            let key = |key: &str| format!("sweeps.{name}.{key}");
            names("sweeps", [name])?;
            texts(&format!("sweeps.{name}"), [&sweep.label, &sweep.key, &sweep.unit])?;
            at_most(&key("values"), sweep.values.len(), limits::SWEEP_VALUES, "values")?;
            at_most(&key("conditions"), sweep.conditions.len(), limits::CONDITIONS, "names")?;
        }
        self.space.as_ref().map_or(Ok(()), check_space)?;
        check_published(&self.published)
    }

    /// Products, such as the number of runs. They are computed before anything is expanded.
    pub(super) fn check_products(&self) -> Result {
        let points = self.points();
        let key = if self.sweeps.is_empty() { "conditions" } else { "sweeps" };
        let problem = format!(
            "conditions by cases and by values of sweeps are {points} scenarios, more than {}; {SPLIT}",
            limits::POINTS
        );
        refuse_if(points > limits::POINTS, key, problem)?;
        let runs = self.runs();
        let problem = format!("{runs} runs are more than {}; lower it", limits::RUNS);
        refuse_if(runs > limits::RUNS, "run.repeat", problem)?;
        let largest = self.conditions.values().map(toml_bytes).max().unwrap_or(0);
        let bytes = toml_bytes(&self.common()).saturating_add(largest);
        let expanded = bytes.saturating_mul(points);
        let problem = format!(
            "{points} scenarios of {bytes} bytes are {expanded} bytes to run, more than {}; {SPLIT}",
            limits::EXPANDED_BYTES
        );
        refuse_if(expanded > limits::EXPANDED_BYTES, "conditions", problem)
    }

    fn check_texts(&self) -> Result {
        names("name", [&self.name])?;
        texts("title", [&self.title])?;
        texts("guest.kernel", [&self.guest.kernel])?;
        match &self.workload {
            Workload::Io(io) => {
                let applications = &io.applications;
                at_most("workload.applications", applications.len(), limits::APPLICATIONS, "applications")?;
                names("workload.applications", applications.keys())?;
                texts("workload.applications", applications.values().map(|one| &one.label))
            }
            Workload::Clone(clones) => {
                at_most("workload.namespaces", clones.namespaces.len(), Clones::NAMESPACES.len(), "kinds")
            }
            _ => Ok(()),
        }
    }
}

/// Length as TOML.
fn toml_bytes(value: &impl Serialize) -> u64 {
    toml::to_string(value).map_or(0, |text| text.len() as u64)
}

fn check_condition(name: &String, condition: &Condition) -> Result {
    check_set("conditions", name, &condition.label, condition.set.iter())?;
    let sub = |sub: &str| format!("conditions.{name}.{sub}");
    at_most(&sub("quota"), condition.quota.len(), limits::PCPUS, "quotas")?;
    at_most(&sub("pcpus"), condition.pcpus.len(), limits::PCPUS, "pCPUs")?;
    at_most(&sub("pauses"), condition.pauses.len(), limits::PAUSES, "pauses")?;
    texts(&sub("replay"), [&condition.replay])?;
    at_most(&sub("spikes"), condition.spikes.len(), limits::SPIKES, "spikes")?;
    at_most(&sub("without"), condition.without.len(), crate::scenario::Cause::ALL.len(), "causes")?;
    at_most(&sub("remedies"), condition.remedies.len(), crate::scenario::Remedy::ALL.len(), "remedies")
}

/// Checks a name, a label, and the keys that are set.
fn check_set<'a>(
    of: &str,
    name: &String,
    label: &String,
    set: impl ExactSizeIterator<Item = (&'a String, &'a Setting)>,
) -> Result {
    names(of, [name])?;
    texts(&format!("{of}.{name}.label"), [label])?;
    let key = format!("{of}.{name}.set");
    at_most(&key, set.len(), limits::SET_KEYS, "keys")?;
    for (name, value) in set {
        texts(&key, [name])?;
        check_value(&key, value)?;
    }
    Ok(())
}

fn check_value(key: &str, value: &Setting) -> Result {
    match value {
        Setting::Text(text) => texts(key, [text]),
        Setting::List(list) => {
            at_most(key, list.len(), limits::SET_KEYS, "texts")?;
            texts(key, list)
        }
        Setting::Bool(_) | Setting::Integer(_) | Setting::Number(_) => Ok(()),
    }
}

fn check_space(space: &Space) -> Result {
    at_most("space.axes", space.axes.len(), limits::AXES, "axes")?;
    at_most("space.conditions", space.conditions.len(), limits::CONDITIONS, "names")?;
    names("space.conditions", &space.conditions)?;
    names("space.axes", space.axes.keys())?;
    for (name, axis) in &space.axes {
        let key = format!("space.axes.{name}");
        texts(&key, [&axis.label, &axis.key, &axis.unit])?;
        let key = format!("{key}.values");
        at_most(&key, axis.values.len(), limits::AXIS_VALUES, "values")?;
        axis.values.iter().try_for_each(|value| check_value(&key, value))?;
    }
    Ok(())
}

fn check_published(published: &Published) -> Result {
    let counts = [
        ("ratios", published.ratios.len()),
        ("pairs", published.pairs.len()),
        ("orders", published.orders.len()),
        ("statements", published.statements.len()),
    ];
    for (key, count) in counts {
        at_most(&format!("published.{key}"), count, limits::PUBLISHED, key)?;
    }
    texts("published", [&published.source, &published.condition])?;
    texts("published.statements", &published.statements)?;
    texts(
        "published.ratios",
        published.ratios.iter().flat_map(|one| [&one.condition, &one.metric, &one.printed]),
    )?;
    let pairs = published.pairs.iter();
    texts("published.pairs", pairs.flat_map(|one| [&one.case, &one.metric, &one.condition, &one.printed]))?;
    for order in &published.orders {
        texts("published.orders", [&order.case, &order.metric])?;
        at_most("published.orders", order.rising.len(), limits::CONDITIONS, "conditions")?;
    }
    Ok(())
}

fn at_most(key: &str, count: usize, limit: usize, what: &str) -> Result {
    refuse_if(count > limit, key, format!("{count} {what} are more than {limit}"))
}

fn names<'a>(key: &str, names: impl IntoIterator<Item = &'a String>) -> Result {
    lengths(key, "name", names, limits::NAME_BYTES)
}

fn texts<'a>(key: &str, texts: impl IntoIterator<Item = &'a String>) -> Result {
    lengths(key, "text", texts, limits::TEXT_BYTES)
}

fn lengths<'a>(key: &str, what: &str, texts: impl IntoIterator<Item = &'a String>, limit: usize) -> Result {
    let Some(text) = texts.into_iter().find(|text| text.len() > limit) else { return Ok(()) };
    bad(key, format!("a {what} of {} bytes is longer than {limit}", text.len()))
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
