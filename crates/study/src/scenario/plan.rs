//! The runs that a scenario asks for.

use rand::seq::SliceRandom;

use super::{BadScenario, Scenario, Setting, Sweep};
use crate::observation::{self, SweepPoint};
use crate::{overrides, statistics};

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Under which condition.
    pub condition: String,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// In which case, if the scenario has some.
    pub case: Option<String>,
    /// With which value of a sweep, if it is part of one.
    pub sweep: Option<SweepPoint>,
    /// The scenario for this run: with the value of the sweep and with what the condition sets.
    pub scenario: Scenario,
}

impl PlannedRun {
    /// For progress: the condition, and the value of the sweep.
    pub fn title(&self) -> String {
        observation::title(&self.condition, self.case.as_deref(), self.sweep.as_ref())
    }
}

impl Scenario {
    /// The scenario with what this condition sets.
    ///
    /// # Errors
    /// A condition that there is not, or that sets what cannot be run.
    pub fn under(&self, condition: &str) -> Result<Scenario, BadScenario> {
        self.at(condition, None)
    }

    /// The scenario with what this case sets.
    ///
    /// # Errors
    /// A case that there is not, or that sets what cannot be run.
    pub fn in_case(&self, name: &str) -> Result<Scenario, BadScenario> {
        let Some(case) = self.cases.get(name) else {
            return Err(BadScenario::new("cases", format!("there is no case {name:?}")));
        };
        let mut scenario = self.clone();
        scenario.cases.clear();
        let key = format!("cases.{name}.set");
        let within = |error: BadScenario| BadScenario::new(key.as_str(), error.to_string());
        let settings = case.set.iter().map(|(key, value)| (key.as_str(), value));
        overrides::apply(&scenario, settings).map_err(within)
    }

    /// The runs in their order: within each repetition all conditions and all values of the sweeps, shuffled.
    ///
    /// # Errors
    /// A condition or a sweep that sets what cannot be run.
    pub fn plan(&self) -> Result<Vec<PlannedRun>, BadScenario> {
        let mut block = Vec::new();
        for (condition, _) in self.chosen().filter(|_| self.cases.is_empty()) {
            block.push((condition.as_str(), None, None, self.under(condition)?));
        }
        for name in self.cases.keys() {
            let case = self.in_case(name)?;
            for (condition, _) in self.chosen() {
                block.push((condition.as_str(), Some(name.clone()), None, case.under(condition)?));
            }
        }
        for (name, sweep) in &self.sweeps {
            for (condition, value) in sweep.values.iter().flat_map(|v| self.swept(sweep).map(move |c| (c, v)))
            {
                let scenario = self.at(condition, Some((name, sweep, value)))?;
                let point = SweepPoint { sweep: name.clone(), value: value.number().unwrap_or(f64::NAN) };
                block.push((condition, None, Some(point), scenario));
            }
        }
        let mut rng = statistics::stream(self.run.seed, "order of runs");
        let repetition = |repetition: u32| {
            let mut runs: Vec<PlannedRun> = block
                .iter()
                .cloned()
                .map(|(condition, case, sweep, scenario)| PlannedRun {
                    condition: condition.into(),
                    repetition,
                    case,
                    sweep,
                    scenario,
                })
                .collect();
            runs.shuffle(&mut rng);
            runs
        };
        Ok((0..self.run.repeat).flat_map(repetition).collect())
    }

    /// The conditions of a sweep.
    pub fn swept<'a>(&'a self, sweep: &'a Sweep) -> impl Iterator<Item = &'a str> {
        let chosen = self.chosen().map(|(name, _)| name.as_str()).filter(|_| sweep.conditions.is_empty());
        sweep.conditions.iter().map(String::as_str).chain(chosen)
    }

    /// The scenario under a condition, with the value of a sweep (its name, itself, the value) if there is one.
    pub(super) fn at(
        &self,
        condition: &str,
        point: Option<(&str, &Sweep, &Setting)>,
    ) -> Result<Scenario, BadScenario> {
        let Some(treatment) = self.conditions.get(condition) else {
            return Err(BadScenario::new("conditions", format!("there is no condition {condition:?}")));
        };
        let mut scenario = self.clone();
        scenario.conditions[condition].set.clear();
        let within = |key: &str, error: BadScenario| BadScenario::new(key, error.to_string());
        if !treatment.set.is_empty() {
            let key = format!("conditions.{condition}.set");
            let done =
                overrides::apply(&scenario, treatment.set.iter().map(|(key, value)| (key.as_str(), value)));
            scenario =
                done.and_then(|done| done.check_for(condition)).map_err(|error| within(&key, error))?;
        }
        if let Some((name, sweep, value)) = point {
            // `*` stands for the condition of the run.
            let key = sweep.key.replace('*', condition);
            let done = overrides::apply(&scenario, [(key.as_str(), value)]);
            let key = format!("sweeps.{name}");
            scenario =
                done.and_then(|done| done.check_for(condition)).map_err(|error| within(&key, error))?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, Study, Workload};

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
        assert_eq!(scenario.under("a").unwrap(), scenario);
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
        let Workload::Memory { burst, .. } = run.scenario.workload else { panic!() };
        assert_eq!(
            (burst, run.scenario.guest.vcpus),
            (100, 4),
            "the condition's own keys hold in a sweep too"
        );
    }
}
