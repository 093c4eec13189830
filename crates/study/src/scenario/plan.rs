//! The runs that a scenario asks for.
//!
//! A run's scenario holds only what that run needs: its own condition, no cases, no sweeps. All repetitions share it.
//! So the memory of a plan grows with the number of runs, and not with its square.

use std::sync::Arc;

use indexmap::IndexMap;
use rand::seq::SliceRandom;

use super::{BadScenario, Case, Condition, Published, Result, RunPlan, Scenario, Setting, Sweep};
use crate::observe::observation::{self, SweepPoint};
use crate::scenario::overrides;
use crate::statistics;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Under which condition.
    pub condition: String,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// In which case, if the scenario has cases.
    pub case: Option<String>,
    /// With which value of a sweep, if it is part of one.
    pub sweep: Option<SweepPoint>,
    /// The scenario of this run: settings of its case and its condition, and the value of the sweep, are applied.
    pub scenario: Arc<Scenario>,
}

impl PlannedRun {
    /// For progress: the condition, and the value of the sweep.
    pub fn title(&self) -> String {
        observation::title(&self.condition, self.case.as_deref(), self.sweep.as_ref())
    }
}

/// A value of a sweep: its name, itself, the value.
pub(super) type Point<'a> = (&'a str, &'a Sweep, &'a Setting);

impl Scenario {
    /// The scenario of a run under this condition: its settings are applied, and the other conditions are gone.
    ///
    /// # Errors
    /// The condition does not exist, or its settings cannot be run.
    pub fn under(&self, condition: &str) -> Result<Scenario> {
        self.at(&self.common(), condition, None)
    }

    /// Physical CPUs of the simulated host under this condition. Where a recording is replayed each vCPU has its own,
    /// because the recording already holds all time that it lost to others.
    pub fn pcpus_under(&self, condition: &Condition) -> usize {
        let vcpus = self.guest.vcpus;
        if condition.replay.is_empty() {
            return self.host.pcpus_for(vcpus);
        }
        // The emulator's own thread has one too, because the recording already holds how it kept vCPUs off.
        vcpus + usize::from(self.guest.timer_thread_ns > 0)
    }

    /// The part that the scenarios of all runs share: everything but conditions, cases, sweeps and published figures.
    pub(super) fn common(&self) -> Scenario {
        // Field by field, because a clone of the whole would copy conditions, cases and sweeps for each run.
        Scenario {
            name: self.name.clone(),
            title: self.title.clone(),
            ground: self.ground,
            // The names of conditions matter to the plan alone.
            run: RunPlan { conditions: Vec::new(), attribute: Vec::new(), ..self.run },
            guest: self.guest.clone(),
            host: self.host.clone(),
            workload: self.workload.clone(),
            observe: self.observe.clone(),
            conditions: IndexMap::new(),
            cases: IndexMap::new(),
            sweeps: IndexMap::new(),
            space: None,
            limits: self.limits.clone(),
            published: Published::default(),
        }
    }

    /// What all conditions have in common, without the conditions: in a scenario with cases, in one of these.
    ///
    /// # Errors
    /// There is no such case, or there are cases and none was named.
    pub fn of_case(&self, case: Option<&str>) -> Result<Scenario> {
        match case {
            Some(name) => self.in_case(name),
            None if self.cases.is_empty() => Ok(self.common()),
            None => {
                let known: Vec<&str> = self.cases.keys().map(String::as_str).collect();
                Err(BadScenario::new("cases", format!("choose one with --case: {}", known.join(", "))))
            }
        }
    }

    /// [`Scenario::common`] with the workload of this case and what it sets.
    pub(super) fn in_case(&self, name: &str) -> Result<Scenario> {
        let Some(case) = self.cases.get(name) else {
            return Err(BadScenario::new("cases", format!("there is no case {name:?}")));
        };
        let within = |error: BadScenario| BadScenario::new(format!("cases.{name}.set"), error.to_string());
        let settings = case.set.iter().map(|(key, value)| (key.as_str(), value));
        let workload = case.workload.as_ref().unwrap_or(&self.workload);
        overrides::apply(&Scenario { workload: workload.clone(), ..self.common() }, settings).map_err(within)
    }

    /// `common` of a case, under a condition and with the quotas of that case.
    pub(super) fn at_case(&self, common: &Scenario, case: &Case, condition: &str) -> Result<Scenario> {
        let mut scenario = self.at(common, condition, None)?;
        scenario.conditions[condition].quota.extend(case.quota.iter().cloned());
        Ok(scenario)
    }

    /// The runs in their order: within each repetition all conditions and all values of the sweeps, shuffled.
    ///
    /// # Errors
    /// The settings of a condition or a sweep cannot be run.
    pub fn plan(&self) -> Result<Vec<PlannedRun>> {
        let block = self.block()?;
        let mut rng = statistics::stream(self.run.seed, "order of runs");
        let repetition = |repetition: u32| {
            let mut runs: Vec<PlannedRun> =
                block.iter().map(|run| PlannedRun { repetition, ..run.clone() }).collect();
            runs.shuffle(&mut rng);
            runs
        };
        Ok((0..self.run.repeat).flat_map(repetition).collect())
    }

    /// The first repetition, in the file's order.
    pub(super) fn block(&self) -> Result<Vec<PlannedRun>> {
        let mut block = Vec::new();
        let mut add = |condition: &str, case: Option<&String>, sweep, scenario| {
            let (condition, case) = (condition.to_string(), case.cloned());
            block.push(PlannedRun { condition, repetition: 0, case, sweep, scenario: Arc::new(scenario) });
        };
        let common = self.common();
        for (condition, _) in self.chosen().filter(|_| self.cases.is_empty()) {
            add(condition, None, None, self.at(&common, condition, None)?);
        }
        for (name, case) in &self.cases {
            let common = self.in_case(name)?;
            for (condition, _) in self.chosen() {
                add(condition, Some(name), None, self.at_case(&common, case, condition)?);
            }
        }
        for (name, sweep) in &self.sweeps {
            let conditions: Vec<&str> = self.swept(sweep).collect();
            for value in &sweep.values {
                let point = SweepPoint { sweep: name.clone(), value: value.number().unwrap_or(f64::NAN) };
                for condition in &conditions {
                    let scenario = self.at(&common, condition, Some((name, sweep, value)))?;
                    add(condition, None, Some(point.clone()), scenario);
                }
            }
        }
        Ok(block)
    }

    /// Number of different scenarios to run. Nothing is expanded to compute it.
    pub fn points(&self) -> u64 {
        let chosen = self.chosen().count() as u64;
        let swept = |sweep: &Sweep| {
            let conditions = if sweep.conditions.is_empty() { chosen } else { sweep.conditions.len() as u64 };
            conditions.saturating_mul(sweep.values.len() as u64)
        };
        let plain = chosen.saturating_mul(self.cases.len().max(1) as u64);
        self.sweeps.values().map(swept).fold(plain, u64::saturating_add)
    }

    /// Number of runs of the plan.
    pub fn runs(&self) -> u64 {
        self.points().saturating_mul(self.run.repeat.into())
    }

    /// The conditions of a sweep.
    pub fn swept<'a>(&'a self, sweep: &'a Sweep) -> impl Iterator<Item = &'a str> {
        let chosen = self.chosen().map(|(name, _)| name.as_str()).filter(|_| sweep.conditions.is_empty());
        sweep.conditions.iter().map(String::as_str).chain(chosen)
    }

    /// `common`, of all runs or of those of a case, under a condition and with the value of a sweep if there is one.
    pub(super) fn at(
        &self,
        common: &Scenario,
        condition: &str,
        point: Option<Point<'_>>,
    ) -> Result<Scenario> {
        let Some(treatment) = self.conditions.get(condition) else {
            return Err(BadScenario::new("conditions", format!("there is no condition {condition:?}")));
        };
        let mut scenario = common.clone();
        scenario.conditions.insert(condition.into(), treatment.without_settings());
        let checked = |scenario: Result<Scenario>, key: String| {
            let scenario = scenario.and_then(|scenario| scenario.check_for(condition));
            scenario.map_err(|error| BadScenario::new(key, error.to_string()))
        };
        if !treatment.set.is_empty() {
            let settings = treatment.set.iter().map(|(key, value)| (key.as_str(), value));
            scenario = checked(overrides::apply(&scenario, settings), format!("conditions.{condition}.set"))?;
        }
        if let Some((name, sweep, value)) = point {
            // `*` stands for the condition of the run.
            let key = sweep.key.replace('*', condition);
            let other = self.condition_in(&key).filter(|(name, _)| *name != condition);
            if let Some((other, treatment)) = other {
                // It changes nothing in this run, but must exist so that the key can be set.
                scenario.conditions.insert(other.into(), treatment.without_settings());
            }
            let done = overrides::apply(&scenario, [(key.as_str(), value)]);
            scenario = checked(done, format!("sweeps.{name}"))?;
        }
        Ok(scenario)
    }

    /// The condition that a dotted key names.
    pub(super) fn condition_in(&self, key: &str) -> Option<(&str, &Condition)> {
        let (name, _) = key.strip_prefix("conditions.")?.rsplit_once('.')?;
        // `NAME.key` or `NAME.list.0.key`.
        let mut names = std::iter::successors(Some(name), |name| Some(name.rsplit_once('.')?.0));
        names.find_map(|name| self.conditions.get_key_value(name)).map(|(name, found)| (name.as_str(), found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::record::Record;
    use crate::recorded::record::Study;
    use crate::scenario::{Memory, Workload};

    const TEXT: &str = "
        name = 't'
        title = 't'
        run.repeat = 8
        [workload]
        kind = 'memory'
        [conditions.a]
        [conditions.b]
        set = { 'guest.vcpus' = 4, guest.memory_mib = 1024 }
        quota = [{ vcpu = 3, percent = 20 }]
        [conditions.c]
        [sweeps.burst]
        key = 'workload.burst'
        values = [1, 100]
        conditions = ['a', 'b']
    ";

    fn read(assignments: &[&str]) -> Result<Scenario, String> {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        overrides::read(TEXT, None, &assignments).map_err(|error| error.to_string())
    }

    #[test]
    fn a_condition_sets_keys_for_itself_alone() {
        let scenario = read(&[]).unwrap();
        let under = scenario.under("b").unwrap();
        assert_eq!((under.guest.vcpus, under.guest.memory_mib), (4, 1024));
        assert_eq!(under.under("b").unwrap(), under, "what is set is set once");
        assert!(under.conditions["b"].set.is_empty() && !scenario.conditions["b"].set.is_empty());
        let plain = scenario.under("a").unwrap();
        assert_eq!((&plain.guest, &plain.workload), (&scenario.guest, &scenario.workload));
        assert!(scenario.under("d").unwrap_err().to_string().contains("no condition \"d\""));
        let refused = |set: &str| read(&[&format!("conditions.b.set={set}")]).unwrap_err();
        assert!(refused("{ guest.vcpu = 4 }").contains("did you mean guest.vcpus?"));
        assert!(refused("{ guest.vcpus = 2.5 }").starts_with("conditions.b.set: guest.vcpus: invalid type"));
        assert!(refused("{ run.repeat = 4 }").contains("run.repeat cannot be set"));
        assert!(refused("{ guest.vcpus = 65 }").contains("guest.vcpus: 65 is not within 1 to 64"));
        assert!(refused("{ guest.vcpus = 2 }").ends_with("there is no vCPU 3; the last one is 1"));
    }

    #[test]
    fn what_is_set_survives_a_record() {
        let study = Study::new(read(&[]).unwrap(), Vec::new(), None);
        let record =
            Record { schema_version: 1, program: "".into(), command: "".into(), studies: vec![study] };
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn the_order_is_of_the_seed_interleaved_and_complete() {
        let of = |seed: u32| {
            let plan = read(&[&format!("run.seed={seed}")]).unwrap().plan().unwrap();
            plan.iter().map(|run| (run.title(), run.repetition)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        for (repetition, block) in of(1).chunks(7).enumerate() {
            let mut names: Vec<&str> = block.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            let swept = ["a with burst 1", "a with burst 100", "b", "b with burst 1", "b with burst 100"];
            assert_eq!(names, [&["a"][..], &swept, &["c"]].concat());
            assert!(block.iter().all(|(_, of)| *of as usize == repetition));
        }
        let plan = read(&[]).unwrap().plan().unwrap();
        let run = plan.iter().find(|run| run.title() == "b with burst 100").unwrap();
        let Workload::Memory(Memory { burst, .. }) = run.scenario.workload else { panic!() };
        assert_eq!(
            (burst, run.scenario.guest.vcpus),
            (100, 4),
            "the condition's own keys hold in a sweep too"
        );
    }
}
