//! The conditions that attribute lost throughput to causes.
//!
//! Each condition that `run.attribute` names, and the baseline, has one counterpart for each cause: the same
//! condition with that cause left out. Counterparts are added when a scenario is read, so that the plan, the
//! comparison, the record and the report see only conditions. A counterpart that the file already has is used as it
//! is, so adding them twice changes nothing.

use super::check::{ONLY_SIM, refuse_if};
use super::{BadScenario, Cause, Condition, GroundKind, Result, Scenario};

const KEY: &str = "run.attribute";

impl Scenario {
    /// Adds the counterparts that `run.attribute` asks for to the conditions that are run.
    ///
    /// # Errors
    /// The ground is not the simulator; a condition is not run, is the baseline or equals it, or leaves causes out
    /// itself; or the name of a counterpart is taken.
    pub(crate) fn add_counterparts(&mut self) -> Result {
        if self.run.attribute.is_empty() {
            return Ok(());
        }
        refuse_if(self.ground != GroundKind::Sim, KEY, ONLY_SIM)?;
        self.run.attribute.iter().try_for_each(|name| self.check_attributed(name))?;
        self.name_swept_conditions();
        let mut wholes = vec![self.baseline().to_string()];
        wholes.extend(self.run.attribute.iter().cloned());
        for whole in wholes {
            let workload = self.workload.clone();
            for cause in Cause::ALL.into_iter().filter(|&cause| workload.cannot_lose_to(cause).is_none()) {
                self.add_counterpart(&whole, cause)?;
            }
        }
        Ok(())
    }

    fn check_attributed(&self, name: &str) -> Result {
        let chosen = |wanted: &str| self.chosen().find(|(name, _)| *name == wanted).map(|(_, found)| found);
        let baseline = self.baseline();
        let (Some(condition), Some(base)) = (chosen(name), chosen(baseline)) else {
            let others: Vec<&str> = self.chosen().skip(1).map(|(name, _)| name.as_str()).collect();
            let others = others.join(", ");
            let problem = format!("no condition {name:?} is run; besides the baseline there are {others}");
            return Err(BadScenario::new(KEY, problem));
        };
        refuse_if(name == baseline, KEY, format!("{name:?} is the baseline, which loses nothing"))?;
        let relabelled = Condition { label: base.label.clone(), ..condition.clone() };
        let problem = format!("{name:?} does what the baseline does: there is nothing to attribute");
        refuse_if(relabelled == *base, KEY, problem)?;
        [(name, condition), (baseline, base)].into_iter().try_for_each(|(name, one)| {
            refuse_if(!one.without.is_empty(), KEY, format!("{name:?} leaves causes out already"))
        })
    }

    /// Sweeps leave counterparts out: a sweep of all conditions means those that the file has.
    fn name_swept_conditions(&mut self) {
        let chosen: Vec<String> = self.chosen().map(|(name, _)| name.clone()).collect();
        for sweep in self.sweeps.values_mut().filter(|sweep| sweep.conditions.is_empty()) {
            sweep.conditions.clone_from(&chosen);
        }
    }

    fn add_counterpart(&mut self, whole: &str, cause: Cause) -> Result {
        let made = Condition {
            label: format!("{whole}, but {} left out", cause.label()),
            without: vec![cause],
            ..self.conditions[whole].clone()
        };
        let same = |(_, other): &(&String, &Condition)| {
            other.is_counterpart_of(&self.conditions[whole]) && other.leaves_out_the_same_as(&made)
        };
        let name = match self.conditions.iter().find(same) {
            Some((name, _)) => name.clone(),
            None => {
                // Only characters of its parts and hyphens, so that it can be part of a file name.
                let name = format!("{whole}-without-{cause}");
                let problem =
                    format!("needs the name {name:?} for a condition; there is another one of that name");
                refuse_if(self.conditions.contains_key(&name), KEY, problem)?;
                self.conditions.insert(name.clone(), made);
                name
            }
        };
        if !self.run.conditions.is_empty() && !self.run.conditions.contains(&name) {
            self.run.conditions.push(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [conditions.baseline]
        [conditions.over]
        overcommit = 2
        set = { 'guest.vcpus' = 4 }
        [conditions.paused]
        pauses = [{ vcpu = 0, at_ms = 1, for_ms = 1 }]
        [conditions.quiet]
        label = 'the baseline again'
        [sweeps.burst]
        key = 'workload.burst'
        values = [1, 2]
    ";

    fn read(text: &str, assignments: &[&str]) -> Result<Scenario, String> {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        overrides::read(text, None, &assignments).map_err(|error| error.to_string())
    }

    fn names<'a>(conditions: impl Iterator<Item = (&'a String, &'a Condition)>) -> Vec<&'a str> {
        conditions.map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn each_cause_is_left_out_of_the_condition_and_of_the_baseline() {
        let scenario = read(TEXT, &["run.attribute=['over']", "conditions.over.overcommit=3"]).unwrap();
        let added: Vec<(&String, &Condition)> = scenario.conditions.iter().skip(4).collect();
        assert_eq!(added.len(), 2 * Cause::ALL.len());
        for (index, (name, condition)) in added.iter().enumerate() {
            let (whole, cause) = (["baseline", "over"][index / 5], Cause::ALL[index % 5]);
            assert_eq!(**name, format!("{whole}-without-{}", cause));
            assert_eq!(condition.without, [cause]);
            assert!(condition.is_counterpart_of(&scenario.conditions[whole]), "{condition:?}");
        }
        assert_eq!((added[5].1.overcommit, added[5].1.set.len()), (3.0, 1), "with what was assigned");
        assert_eq!(added[8].1.label, "over, but less CPU time left out");
        assert_eq!((scenario.baseline(), scenario.chosen().count()), ("baseline", 14));
        assert_eq!(scenario.sweeps[0].conditions, ["baseline", "over", "paused", "quiet"]);
    }

    #[test]
    fn without_the_key_nothing_is_added() {
        let scenario = read(TEXT, &[]).unwrap();
        assert_eq!(names(scenario.conditions.iter()), ["baseline", "over", "paused", "quiet"]);
        assert_eq!(scenario.sweeps[0].conditions, [""; 0]);
    }

    #[test]
    fn they_are_run_with_the_conditions_that_are_chosen() {
        let scenario =
            read(TEXT, &["run.attribute=['paused']", "run.conditions=['baseline', 'paused']"]).unwrap();
        let chosen = names(scenario.chosen());
        assert_eq!((chosen.len(), chosen[0], chosen[1]), (12, "baseline", "paused"));
        assert_eq!(
            (chosen[2], chosen[11]),
            ("baseline-without-reader-preemption", "paused-without-memory-pressure")
        );
    }

    #[test]
    fn what_the_file_has_already_is_not_added_again() {
        let text = format!(
            "{TEXT}\n[conditions.mine]\novercommit = 2\nset = {{ guest.vcpus = 4 }}\nwithout = ['cpu-share']"
        );
        let with = ["run.attribute=['over']", "run.conditions=['baseline', 'over']"];
        let mut scenario = read(&text, &with).unwrap();
        assert_eq!(scenario.conditions.len(), 5 + 9);
        assert!(scenario.run.conditions.contains(&"mine".to_string()), "but it is run");
        let once = scenario.clone();
        scenario.add_counterparts().unwrap();
        assert_eq!(scenario, once);
    }

    #[test]
    fn refuses_what_cannot_be_attributed() {
        let refused = |assignments: &[&str]| read(TEXT, assignments).unwrap_err();
        assert_eq!(
            refused(&["run.attribute=['ovre']"]),
            "run.attribute: no condition \"ovre\" is run; besides the baseline there are over, paused, quiet"
        );
        let chosen = "run.conditions=['baseline', 'paused']";
        assert!(refused(&["run.attribute=['over']", chosen]).ends_with("baseline there are paused"));
        assert!(refused(&["run.attribute=['baseline']"]).ends_with("is the baseline, which loses nothing"));
        assert!(refused(&["run.attribute=['quiet']"]).contains("does what the baseline does"));
        let already = |name: &str| {
            refused(&["run.attribute=['over']", &format!("conditions.{name}.without=['cpu-share']")])
        };
        assert!(already("over").ends_with("\"over\" leaves causes out already"));
        assert!(already("baseline").ends_with("\"baseline\" leaves causes out already"));
        let taken =
            read(&format!("{TEXT}\n[conditions.over-without-cpu-share]"), &["run.attribute=['over']"]);
        assert!(taken.unwrap_err().contains("there is another one of that name"));
        let nothing =
            overrides::read(TEXT, Some(GroundKind::Vm), &["run.attribute=['over']".into()]).unwrap_err();
        assert_eq!(nothing.to_string(), format!("run.attribute: {ONLY_SIM}"));
    }
}
