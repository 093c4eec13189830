//! The limits of a scenario: what no ground could run is refused here, with the key at fault.

mod counts;
mod delete_free;
mod fio;
mod ground;
mod io;
mod workload;

use super::{
    BadScenario, Case, Condition, GroundKind, Scenario, SchedulerKind, Sweep, Workload, Xen, limits,
};
use crate::observe::metric;
use crate::observe::tape::Tape;
use crate::units;
pub(super) use ground::{ONLY_SIM, grounds_of};

/// What a recording may lack at its end: who watches a guest looks for the last time a little before the window ends.
pub const TAPE_END_NS: u64 = 10 * units::MILLISECOND_NS;
/// Most kinds of further own threads of the host.
const MOST_NOISE_TAILS: usize = 8;

/// What a condition or a sweep may change: keys of one run, not of the plan.
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

/// Refuses a key that none of these reads.
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
    /// Refuses what no ground could run. Limits of the machine at hand (its memory, its pCPUs) are the
    /// ground's to check.
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

    /// What concerns every run.
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
                format!("is not at most {} bytes without control characters", limits::APPEND_BYTES),
            );
        }
        if guest.rcu.qlowmark > guest.rcu.qhimark {
            return bad("guest.rcu.qlowmark", "is more than guest.rcu.qhimark");
        }
        Ok(())
    }

    fn check_host(&self) -> Result<(), BadScenario> {
        let host = &self.host;
        if host.noise_tail.len() > MOST_NOISE_TAILS {
            return bad("host.noise_tail", format!("there are more than {MOST_NOISE_TAILS}"));
        }
        let mut noise_permille = host.noise_per_s.saturating_mul(host.noise_ns) / 1_000_000;
        for tail in &host.noise_tail {
            noise_permille += tail.for_us * 1000 / (tail.every_us + tail.for_us);
        }
        if noise_permille > 900 {
            return bad("host.noise_ns", "the host's own threads would take more than 90 % of each pCPU");
        }
        self.check_xen()
    }

    fn check_xen(&self) -> Result<(), BadScenario> {
        let (host, xen) = (&self.host, &self.host.xen);
        // A slice that is no more than the rate limit would never end in time.
        if xen.ratelimit_us != 0 {
            within("host.xen.ratelimit_us", xen.ratelimit_us, 100, (xen.slice_ms * 1_000).min(500_000))?;
        }
        for (key, cap) in
            [("guest_cap_percent", xen.guest_cap_percent), ("spinner_cap_percent", xen.spinner_cap_percent)]
        {
            if cap != 0 && host.scheduler != SchedulerKind::Credit && self.ground == GroundKind::Sim {
                return bad(format!("host.xen.{key}"), "of the simulated schedulers credit alone has caps");
            }
        }
        for (n, fix) in xen.fixes.iter().enumerate() {
            let (name, wanted) = (fix.name(), fix.scheduler());
            if host.scheduler != wanted {
                let (wanted, given) = (wanted.name(), host.scheduler.name());
                let problem = format!("{name} is a fix of Xen's {wanted}, and host.scheduler is {given}");
                return bad("host.xen.fixes", problem);
            }
            if xen.fixes[..n].contains(fix) {
                return bad("host.xen.fixes", format!("{name} stands there twice"));
            }
        }
        if !host.scheduler.is_xen() && *xen != Xen::default() {
            let problem =
                "host.scheduler is none of Xen's; set it to credit, credit2 or rtds, or remove this";
            return bad("host.xen", problem);
        }
        if host.scheduler.is_xen() && host.slice_us != 0 {
            return bad("host.slice_us", "Xen's slice is host.xen.slice_ms");
        }
        Ok(())
    }

    fn check_condition(&self, name: &str) -> Result<(), BadScenario> {
        let prefix = format!("conditions.{name}.");
        let key = |key: &str| format!("{prefix}{key}");
        let condition = &self.conditions[name];
        self.check_quotas(&key("quota"), condition)?;
        if condition.overcommit != 0.0 {
            within_f64(&key("overcommit"), condition.overcommit, 1.0, 16.0)?;
        }
        self.check_times(&key, condition)?;
        check_replay(&key("replay"), condition)?;
        check_bursts(&key, condition, self.guest.vcpus)?;
        self.check_condition_s_ground(&prefix, condition)?;
        if self.ground != GroundKind::Sim {
            return Ok(());
        }
        self.check_threads(name, condition)?;
        let pcpus = self.pcpus_under(condition);
        match condition.pcpus.iter().find(|pcpu| **pcpu >= pcpus) {
            Some(other) => {
                bad(key("pcpus"), format!("there is no pCPU {other}; the simulated host has {pcpus}"))
            }
            None => Ok(()),
        }
    }

    /// The recording that this condition replays, if it does, is as it must be for that.
    ///
    /// # Errors
    /// It is of another number of vCPUs, or shorter than what is to be measured.
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

    /// What the simulated host's scheduler has to choose from.
    fn check_threads(&self, name: &str, condition: &Condition) -> Result<(), BadScenario> {
        let vcpus = self.guest.vcpus as u64;
        let pcpus = self.pcpus_under(condition) as u64;
        let vms =
            1 + u64::from(self.workload.io().map_or(0, |io| io.rivals)) + u64::from(condition.neighbours);
        let overcommitted = (condition.overcommit * pcpus as f64).ceil() as u64;
        let spikes: u64 = condition.spikes.iter().map(|spike| u64::from(spike.vcpus)).sum();
        let each_pcpu = 1 + u64::from(condition.hogs);
        let threads =
            vms * vcpus + overcommitted + each_pcpu * pcpus + u64::from(condition.spinners) + spikes;
        if threads > limits::HOST_THREADS {
            let problem = format!(
                "its VMs, hogs and spikes have {threads} threads on the simulated host, more than {}",
                limits::HOST_THREADS
            );
            return bad(format!("conditions.{name}"), problem);
        }
        Ok(())
    }

    fn check_quotas(&self, key: &str, condition: &Condition) -> Result<(), BadScenario> {
        let capped = matches!(self.host.scheduler, SchedulerKind::Credit | SchedulerKind::Credit2);
        if capped && self.ground == GroundKind::Sim && !condition.quota.is_empty() {
            return bad(
                key,
                "Xen's credit schedulers have no quotas; set host.scheduler to rtds, or remove it",
            );
        }
        let mut limited = vec![false; self.guest.vcpus];
        for quota in &condition.quota {
            let Some(seen) = limited.get_mut(quota.vcpu) else {
                return bad(key, self.no_vcpu(quota.vcpu));
            };
            if std::mem::replace(seen, true) {
                return bad(key, format!("vCPU {} has two quotas", quota.vcpu));
            }
            if quota.percent / 100.0 * (quota.period_ms as f64) < 1.0 {
                return bad(key, "the kernel grants no less than 1 ms a period; lengthen the period");
            }
        }
        Ok(())
    }

    /// Pauses and spikes: within the window, and of what there is.
    fn check_times(&self, key: &dyn Fn(&str) -> String, condition: &Condition) -> Result<(), BadScenario> {
        // The window of a workload of fixed size ends when the work does.
        let window_ms = match self.workload {
            Workload::Postmark { .. } => 3_600_000,
            _ => self.run.window_ms,
        };
        let fits = |key: String, at_ms: u64, for_ms: u64| {
            if for_ms == 0 || at_ms.saturating_add(for_ms) > window_ms {
                return bad(
                    key,
                    format!("{for_ms} ms at {at_ms} ms are not within the {window_ms} ms of a window"),
                );
            }
            Ok(())
        };
        for pause in &condition.pauses {
            if pause.vcpu >= self.guest.vcpus {
                return bad(key("pauses"), self.no_vcpu(pause.vcpu));
            }
            fits(key("pauses"), pause.at_ms, pause.for_ms)?;
        }
        for spike in &condition.spikes {
            fits(key("spikes"), spike.at_ms, spike.for_ms)?;
        }
        Ok(())
    }

    pub(super) fn no_vcpu(&self, vcpu: usize) -> String {
        format!("there is no vCPU {vcpu}; the last one is {}", self.guest.vcpus - 1)
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
                return bad("published.ratios", format!("{} is not a ratio", published.ratio));
            }
        }
        for pair in &self.published.pairs {
            let named = [&pair.condition, &pair.against];
            let known = named.iter().all(|name| self.conditions.contains_key(*name));
            if metric::find(&pair.metric).is_none() || !known {
                let problem =
                    format!("there is no {} of {} and {}", pair.metric, pair.condition, pair.against);
                return bad("published.pairs", problem);
            }
            if !(pair.case.is_empty() || self.cases.contains_key(&pair.case)) {
                return bad("published.pairs", format!("there is no case {:?}", pair.case));
            }
            if !(pair.ratio.is_finite() && pair.ratio > 0.0) {
                return bad("published.pairs", format!("{} is not a ratio", pair.ratio));
            }
        }
        for order in &self.published.orders {
            let known = order.rising.iter().all(|name| self.conditions.contains_key(name));
            if metric::find(&order.metric).is_none() || !known || order.rising.len() < 2 {
                let problem = format!("there is no {} of {:?}", order.metric, order.rising);
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

/// A recording holds all that the host did, so nothing else may be set beside it.
fn check_replay(key: &str, condition: &Condition) -> Result<(), BadScenario> {
    let alone = Condition { replay: String::new(), ..condition.clone() };
    match condition.replay.is_empty() || alone.is_undisturbed() {
        true => Ok(()),
        false => bad(
            key,
            "a recording holds all that the host did to the guest; remove it, or what else disturbs the guest",
        ),
    }
}

/// Bursts of one pCPU must not meet, and the kernel lets real-time threads have 95 % of a second
/// (`sched_rt_runtime_us`).
fn check_bursts(
    key: &dyn Fn(&str) -> String,
    condition: &Condition,
    vcpus: usize,
) -> Result<(), BadScenario> {
    let Some(bursts) = condition.bursts else { return Ok(()) };
    if let Some(vcpu) = bursts.vcpu {
        within(&key("bursts.vcpu"), vcpu as u64, 0, vcpus.saturating_sub(1) as u64)?;
    }
    within(&key("bursts.for_ms"), bursts.for_ms, 1, bursts.every_ms * 9 / 10)?;
    within(&key("bursts.jitter_ms"), bursts.jitter_ms, 0, (bursts.every_ms - bursts.for_ms) / 2)
}

/// Whether a key is one that a single run may have another value of.
pub(super) fn of_one_run(key: &str) -> bool {
    OF_ONE_RUN.iter().any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
