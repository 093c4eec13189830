//! Refuses scenarios that cannot be run, with the key at fault. Here are the limits that depend on several keys;
//! ranges of single numbers stand beside their fields, see `ranges`.

mod condition;
mod counts;
mod delete_free;
mod fio;
mod ground;
mod guest_remedies;
mod host;
mod io;
mod tasks;
mod workload;

use std::fmt::Display;

use indexmap::IndexMap;

use super::{
    BadScenario, Case, PublishedOrder, PublishedPair, PublishedRatio, Rcu, Result, Scenario, Setting, Sweep,
    Workload, limits,
};
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

pub(super) fn bad<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T> {
    Err(BadScenario::new(key, problem))
}

/// Refuses a key if what `problem` says is so.
pub(super) fn refuse_if(is_so: bool, key: impl Into<String>, problem: impl Into<String>) -> Result {
    if is_so { bad(key, problem) } else { Ok(()) }
}

pub(super) fn within<N: PartialOrd + Copy + Display>(key: &str, value: N, low: N, high: N) -> Result {
    let is_within = (low..=high).contains(&value);
    refuse_if(!is_within, key, format!("{value} is not within {low} to {high}"))
}

/// Refuses a key that none of these scenarios reads.
fn check_effect_in_any<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>, key: &str) -> Result {
    let mut refusal = Ok(());
    for scenario in scenarios {
        refusal = scenario.check_effect(key);
        if refusal.is_ok() {
            break;
        }
    }
    refusal
}

/// Refuses settings of keys that single runs cannot have values of their own for.
fn check_settable(key: &str, set: &IndexMap<String, Setting>) -> Result {
    let Some(other) = set.keys().find(|key| !of_one_run(key)) else { return Ok(()) };
    bad(key, format!("{other} cannot be set; keys of {} can", OF_ONE_RUN.join(", ")))
}

impl Scenario {
    /// Refuses a scenario that its ground could not run on any machine. The ground itself checks the limits of the
    /// machine at hand, such as its memory and pCPUs.
    pub fn check(&self) -> Result {
        self.check_counts()?;
        self.check_run()?;
        let problem = "a scenario needs at least one condition, the baseline";
        refuse_if(self.conditions.is_empty(), "conditions", problem)?;
        self.check_names("run.conditions", &self.run.conditions)?;
        for (name, condition) in &self.conditions {
            check_settable(&format!("conditions.{name}.set"), &condition.set)?;
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
        self.check_space()?;
        self.check_published()
    }

    /// This scenario, if it can be run under that condition.
    pub(super) fn check_for(self, condition: &str) -> Result<Scenario> {
        self.check_run()?;
        self.check_condition(condition)?;
        Ok(self)
    }

    /// Checks the keys that concern every run.
    fn check_run(&self) -> Result {
        self.check_ranges()?;
        self.check_rows()?;
        self.check_guest()?;
        self.check_host()?;
        self.check_workload()?;
        self.check_ground()
    }

    fn check_rows(&self) -> Result {
        let rows = &self.observe.rows;
        let problem = format!("{} metrics are more than the {} of a short table", rows.len(), limits::ROWS);
        refuse_if(rows.len() > limits::ROWS, "observe.rows", problem)?;
        let Some(id) = rows.iter().find(|id| metric::find(id).is_none()) else { return Ok(()) };
        bad(
            "observe.rows",
            format!("there is no metric {id:?}; their identifiers are in every record (--json)"),
        )
    }

    fn check_guest(&self) -> Result {
        let append = &self.guest.append;
        let is_unfit = append.len() > limits::APPEND_BYTES || append.contains(char::is_control);
        let problem = format!("must be at most {} bytes, without control characters", limits::APPEND_BYTES);
        refuse_if(is_unfit, "guest.append", problem)?;
        let Rcu { qlowmark, qhimark, .. } = self.guest.rcu;
        let problem = format!("{qlowmark} is more than guest.rcu.qhimark, {qhimark}; lower it");
        refuse_if(qlowmark > qhimark, "guest.rcu.qlowmark", problem)
    }

    /// Checks that the recording fits the condition that replays it.
    ///
    /// # Errors
    /// The recording has another number of vCPUs, or is shorter than the window.
    pub fn check_tape(&self, condition: &str, tape: &Tape) -> Result {
        let key = format!("conditions.{condition}.replay");
        let (has, wants) = (tape.vcpus(), self.guest.vcpus);
        let problem = format!("the recording is of {has} vCPUs, and guest.vcpus is {wants}");
        refuse_if(has != wants, &key, problem)?;
        let has_rivals = self.workload.io().is_some_and(|io| io.rivals > 0);
        let problem =
            "with workload.rivals a recording is not all that disturbs the guest; remove one of them";
        refuse_if(has_rivals, &key, problem)?;
        let has_ms = (tape.length_ns + TAPE_END_NS) / units::MILLISECOND_NS;
        let is_fixed_work = matches!(self.workload, Workload::Postmark { .. });
        let (length, wants_ms) = (units::duration(tape.length_ns as f64), self.run.window_ms);
        let problem = format!(
            "the recording has {length}, and run.window_ms is {wants_ms}; set that to at most {has_ms}"
        );
        refuse_if(!is_fixed_work && wants_ms > has_ms, key, problem)
    }

    fn check_case(&self, name: &str, case: &Case) -> Result {
        let key = format!("cases.{name}.set");
        check_settable(&key, &case.set)?;
        let common = self.in_case(name)?;
        let within = |error: BadScenario| BadScenario::new(&key, error.to_string());
        common.check_run().map_err(within)?;
        let mut points = Vec::new();
        for (condition, _) in self.chosen() {
            let scenario = self.at_case(&common, case, condition)?;
            scenario.check_condition(condition).map_err(|error| match case.quota.is_empty() {
                true => error,
                false => BadScenario::new(format!("cases.{name}.quota"), error.to_string()),
            })?;
            points.push(scenario);
        }
        case.set.keys().try_for_each(|key| check_effect_in_any(&points, key).map_err(within))
    }

    fn check_sweep(&self, common: &Scenario, name: &str, sweep: &Sweep) -> Result {
        let key = |key: &str| format!("sweeps.{name}.{key}");
        let can_be_swept = of_one_run(&sweep.key) || sweep.key.starts_with("conditions.");
        let problem =
            format!("{} cannot be swept; keys of conditions., {} can", sweep.key, OF_ONE_RUN.join(", "));
        refuse_if(!can_be_swept, key("key"), problem)?;
        within(&key("values"), sweep.values.len(), 1, limits::SWEEP_VALUES)?;
        self.check_names(&key("conditions"), &sweep.conditions)?;
        let conditions: Vec<&str> = self.swept(sweep).collect();
        for value in &sweep.values {
            let is_number = value.number().is_some_and(f64::is_finite);
            let problem = format!("\"{value}\" is not a number, and only numbers are swept");
            refuse_if(!is_number, key("values"), problem)?;
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
    pub(super) fn check_assigned<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result {
        let mut points = Vec::new();
        for key in keys {
            if points.is_empty() {
                points = self.block()?.into_iter().map(|run| run.scenario).collect();
            }
            check_effect_in_any(points.iter().map(|point| &**point), key)?;
        }
        Ok(())
    }

    pub(super) fn check_names(&self, key: &str, names: &[String]) -> Result {
        let unknown = names.iter().find(|name| !self.conditions.contains_key(*name));
        let Some(name) = unknown else { return Ok(()) };
        let known: Vec<&str> = self.conditions.keys().map(String::as_str).collect();
        bad(key, format!("no condition {name:?}; there are {}", known.join(", ")))
    }

    fn check_published(&self) -> Result {
        let has_condition = |name: &str| self.conditions.contains_key(name);
        let check_ratio = |key: &str, ratio: f64| {
            let is_positive = ratio.is_finite() && ratio > 0.0;
            refuse_if(!is_positive, key, format!("{ratio} is not a positive number"))
        };
        let check_case_name = |key: &str, case: &String| {
            let is_known = case.is_empty() || self.cases.contains_key(case);
            refuse_if(!is_known, key, format!("there is no case {case:?}"))
        };
        for PublishedRatio { metric, ratio, .. } in &self.published.ratios {
            let problem = format!("there is no metric {metric:?}");
            refuse_if(metric::find(metric).is_none(), "published.ratios", problem)?;
            check_ratio("published.ratios", *ratio)?;
        }
        for PublishedPair { case, metric, condition, against, ratio, .. } in &self.published.pairs {
            let is_known =
                metric::find(metric).is_some() && has_condition(condition) && has_condition(against);
            let problem =
                format!("there is no metric {metric:?}, or no condition {condition:?} or {against:?}");
            refuse_if(!is_known, "published.pairs", problem)?;
            check_case_name("published.pairs", case)?;
            check_ratio("published.pairs", *ratio)?;
        }
        for PublishedOrder { case, metric, rising } in &self.published.orders {
            let is_order = rising.len() >= 2 && rising.iter().all(|name| has_condition(name));
            let problem =
                format!("there is no metric {metric:?}, or {rising:?} are not two or more conditions");
            refuse_if(metric::find(metric).is_none() || !is_order, "published.orders", problem)?;
            check_case_name("published.orders", case)?;
        }
        let mut conditions = self.published.ratios.iter().map(|ratio| self.published.condition_of(ratio));
        let Some(name) = conditions.find(|name| !has_condition(name)) else { return Ok(()) };
        bad("published.condition", format!("there is no condition {name:?}"))
    }
}

/// Whether a single run may have another value of the key.
pub(super) fn of_one_run(key: &str) -> bool {
    OF_ONE_RUN.iter().any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
