//! Refuses scenarios that cannot be run, with the key at fault. Here are the limits that depend on several keys;
//! ranges of single numbers stand beside their fields, see `ranges`.

mod condition;
mod counts;
mod delete_free;
mod fio;
mod ground;
mod host;
mod io;
mod workload;

use super::{BadScenario, Case, Scenario, Sweep, Workload, limits};
use crate::observe::metric;
use crate::observe::tape::Tape;
use crate::units;
pub(super) use ground::{ONLY_SIM, grounds_of};

/// Time that a recording may lack at its end, because the last sample of a guest is taken shortly before the window
/// ends.
pub const TAPE_END_NS: u64 = 10 * units::MILLISECOND_NS;

/// Keys that a condition, a case or a sweep may change: those of a single run, not those of the plan.
pub(super) const OF_ONE_RUN: [&str; 7] =
    ["guest.", "host.", "workload.", "observe.", "limits.", "run.warmup_ms", "run.window_ms"];

pub(super) fn bad<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, BadScenario> {
    Err(BadScenario::new(key, problem))
}

pub(super) fn within(key: &str, value: u64, low: u64, high: u64) -> Result<(), BadScenario> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    bad(key, format!("{value} is not within {low} to {high}"))
}

fn within_f64(key: &str, value: f64, low: f64, high: f64) -> Result<(), BadScenario> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    bad(key, format!("{value} is not within {low} to {high}"))
}

/// Refuses a key that none of these scenarios reads.
fn check_effect_in_any<'a>(
    scenarios: impl IntoIterator<Item = &'a Scenario>,
    key: &str,
) -> Result<(), BadScenario> {
    let mut refusal = Ok(());
    for scenario in scenarios {
        refusal = scenario.check_effect(key);
        if refusal.is_ok() {
            break;
        }
    }
    refusal
}

impl Scenario {
    /// Refuses a scenario that its ground could not run on any machine. The ground itself checks the limits of the
    /// machine at hand, such as its memory and pCPUs.
    pub fn check(&self) -> Result<(), BadScenario> {
        self.check_counts()?;
        self.check_run()?;
        if self.conditions.is_empty() {
            return bad("conditions", "a scenario needs at least one condition, the baseline");
        }
        self.check_names("run.conditions", &self.run.conditions)?;
        for (name, condition) in &self.conditions {
            if let Some(key) = condition.set.keys().find(|key| !of_one_run(key)) {
                let problem = format!("{key} cannot be set; keys of {} can", OF_ONE_RUN.join(", "));
                return bad(format!("conditions.{name}.set"), problem);
            }
        }
        self.check_products()?;
        let common = self.common();
        for (name, condition) in &self.conditions {
            let scenario = self.at(&common, name, None)?;
            scenario.check_condition(name)?;
            let within =
                |error: BadScenario| BadScenario::new(format!("conditions.{name}.set"), error.to_string());
            condition.set.keys().try_for_each(|key| scenario.check_effect(key).map_err(within))?;
        }
        self.sweeps.iter().try_for_each(|(name, sweep)| self.check_sweep(&common, name, sweep))?;
        self.cases.iter().try_for_each(|(name, case)| self.check_case(name, case))?;
        self.check_published()
    }

    /// This scenario, if it can be run under that condition.
    pub(super) fn check_for(self, condition: &str) -> Result<Scenario, BadScenario> {
        self.check_run()?;
        self.check_condition(condition)?;
        Ok(self)
    }

    /// Checks the keys that concern every run.
    fn check_run(&self) -> Result<(), BadScenario> {
        self.check_ranges()?;
        self.check_rows()?;
        self.check_guest()?;
        self.check_host()?;
        self.check_workload()?;
        self.check_ground()
    }

    fn check_rows(&self) -> Result<(), BadScenario> {
        let rows = &self.observe.rows;
        if rows.len() > limits::ROWS {
            return bad(
                "observe.rows",
                format!("{} metrics are more than the {} of a short table", rows.len(), limits::ROWS),
            );
        }
        match rows.iter().find(|id| metric::find(id).is_none()) {
            Some(id) => bad(
                "observe.rows",
                format!("there is no metric {id:?}; their identifiers are in every record (--json)"),
            ),
            None => Ok(()),
        }
    }

    fn check_guest(&self) -> Result<(), BadScenario> {
        let guest = &self.guest;
        let append = &guest.append;
        if append.len() > limits::APPEND_BYTES || append.contains(char::is_control) {
            return bad(
                "guest.append",
                format!("must be at most {} bytes, without control characters", limits::APPEND_BYTES),
            );
        }
        if guest.rcu.qlowmark > guest.rcu.qhimark {
            return bad(
                "guest.rcu.qlowmark",
                format!(
                    "{} is more than guest.rcu.qhimark, {}; lower it",
                    guest.rcu.qlowmark, guest.rcu.qhimark
                ),
            );
        }
        Ok(())
    }

    /// Checks that the recording fits the condition that replays it.
    ///
    /// # Errors
    /// The recording has another number of vCPUs, or is shorter than the window.
    pub fn check_tape(&self, condition: &str, tape: &Tape) -> Result<(), BadScenario> {
        let key = format!("conditions.{condition}.replay");
        if tape.vcpus() != self.guest.vcpus {
            let (has, wants) = (tape.vcpus(), self.guest.vcpus);
            return bad(key, format!("the recording is of {has} vCPUs, and guest.vcpus is {wants}"));
        }
        if self.workload.io().is_some_and(|io| io.rivals > 0) {
            return bad(
                key,
                "with workload.rivals a recording is not all that disturbs the guest; remove one of them",
            );
        }
        let has_ms = (tape.length_ns() + TAPE_END_NS) / units::MILLISECOND_NS;
        let is_fixed_work = matches!(self.workload, Workload::Postmark { .. });
        if !is_fixed_work && self.run.window_ms > has_ms {
            let (length, wants_ms) = (units::duration(tape.length_ns() as f64), self.run.window_ms);
            let problem = format!(
                "the recording has {length}, and run.window_ms is {wants_ms}; set that to at most {has_ms}"
            );
            return bad(key, problem);
        }
        Ok(())
    }

    fn check_case(&self, name: &str, case: &Case) -> Result<(), BadScenario> {
        let key = format!("cases.{name}.set");
        if let Some(other) = case.set.keys().find(|key| !of_one_run(key)) {
            let problem = format!("{other} cannot be set; keys of {} can", OF_ONE_RUN.join(", "));
            return bad(key, problem);
        }
        let common = self.in_case(name)?;
        let within = |error: BadScenario| BadScenario::new(&key, error.to_string());
        common.check_run().map_err(within)?;
        let mut points = Vec::new();
        for (condition, _) in self.chosen() {
            let scenario = self.at(&common, condition, None)?;
            scenario.check_condition(condition)?;
            points.push(scenario);
        }
        case.set.keys().try_for_each(|key| check_effect_in_any(&points, key).map_err(within))
    }

    fn check_sweep(&self, common: &Scenario, name: &str, sweep: &Sweep) -> Result<(), BadScenario> {
        let key = |key: &str| format!("sweeps.{name}.{key}");
        if !of_one_run(&sweep.key) && !sweep.key.starts_with("conditions.") {
            let problem =
                format!("{} cannot be swept; keys of conditions., {} can", sweep.key, OF_ONE_RUN.join(", "));
            return bad(key("key"), problem);
        }
        within(&key("values"), sweep.values.len() as u64, 1, limits::SWEEP_VALUES as u64)?;
        self.check_names(&key("conditions"), &sweep.conditions)?;
        let conditions: Vec<&str> = self.swept(sweep).collect();
        for value in &sweep.values {
            if !value.number().is_some_and(f64::is_finite) {
                return bad(
                    key("values"),
                    format!("\"{value}\" is not a number, and only numbers are swept"),
                );
            }
            for condition in &conditions {
                let scenario = self.at(common, condition, Some((name, sweep, value)))?;
                scenario
                    .check_effect(&sweep.key)
                    .map_err(|error| BadScenario::new(key("key"), format!("{error} (under {condition})")))?;
            }
        }
        Ok(())
    }

    /// Refuses assigned keys that no run reads.
    pub(super) fn check_assigned<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<(), BadScenario> {
        let mut points = Vec::new();
        for key in keys {
            if points.is_empty() {
                points = self.block()?.into_iter().map(|run| run.scenario).collect();
            }
            check_effect_in_any(points.iter().map(|point| &**point), key)?;
        }
        Ok(())
    }

    fn check_names(&self, key: &str, names: &[String]) -> Result<(), BadScenario> {
        match names.iter().find(|name| !self.conditions.contains_key(*name)) {
            Some(name) => {
                let known: Vec<&str> = self.conditions.keys().map(String::as_str).collect();
                bad(key, format!("no condition {name:?}; there are {}", known.join(", ")))
            }
            None => Ok(()),
        }
    }

    fn check_published(&self) -> Result<(), BadScenario> {
        let bad = |key: &str, problem: String| Err(BadScenario { key: key.into(), problem });
        for published in &self.published.ratios {
            if metric::find(&published.metric).is_none() {
                return bad("published.ratios", format!("there is no metric {:?}", published.metric));
            }
            if !(published.ratio.is_finite() && published.ratio > 0.0) {
                return bad("published.ratios", format!("{} is not a positive number", published.ratio));
            }
        }
        for pair in &self.published.pairs {
            let named = [&pair.condition, &pair.against];
            let known = named.iter().all(|name| self.conditions.contains_key(*name));
            if metric::find(&pair.metric).is_none() || !known {
                let problem = format!(
                    "there is no metric {:?}, or no condition {:?} or {:?}",
                    pair.metric, pair.condition, pair.against
                );
                return bad("published.pairs", problem);
            }
            if !(pair.case.is_empty() || self.cases.contains_key(&pair.case)) {
                return bad("published.pairs", format!("there is no case {:?}", pair.case));
            }
            if !(pair.ratio.is_finite() && pair.ratio > 0.0) {
                return bad("published.pairs", format!("{} is not a positive number", pair.ratio));
            }
        }
        for order in &self.published.orders {
            let known = order.rising.iter().all(|name| self.conditions.contains_key(name));
            if metric::find(&order.metric).is_none() || !known || order.rising.len() < 2 {
                let problem = format!(
                    "there is no metric {:?}, or {:?} are not two or more conditions",
                    order.metric, order.rising
                );
                return bad("published.orders", problem);
            }
            if !(order.case.is_empty() || self.cases.contains_key(&order.case)) {
                return bad("published.orders", format!("there is no case {:?}", order.case));
            }
        }
        let conditions = self.published.ratios.iter().map(|ratio| self.published.condition_of(ratio));
        match conditions.into_iter().find(|name| !self.conditions.contains_key(*name)) {
            Some(name) => bad("published.condition", format!("there is no condition {name:?}")),
            None => Ok(()),
        }
    }
}

/// Whether a single run may have another value of the key.
pub(super) fn of_one_run(key: &str) -> bool {
    OF_ONE_RUN.iter().any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
