//! Runs a scenario with several values of one key: `reprieve run NAME --vary KEY=V1,V2,...`.
//!
//! A key of a condition gives one condition for each value, all compared with the same baseline. Any other key
//! changes the baseline too, so it gives one case for each value, in which all conditions are run.

use indexmap::IndexMap;

use super::check::{OF_ONE_RUN, of_one_run, refuse_if};
use super::{BadScenario, Case, Condition, Published, Result, Scenario, Setting, limits, overrides};

impl Scenario {
    /// The scenario with each value of `KEY=V1,V2,...`, without its sweeps and published figures.
    ///
    /// # Errors
    /// The key does not exist or cannot be varied, or cannot have one of the values.
    pub fn varied(&self, assignment: &str) -> Result<Scenario> {
        let Some((key, values)) = assignment.split_once('=') else {
            return Err(BadScenario::new(assignment, "write it as key=value,value,..."));
        };
        let key = key.trim();
        let values: Vec<Setting> = values.split(',').map(|value| Setting::parse(value.trim())).collect();
        let is_few_or_many = !(2..=limits::SWEEP_VALUES).contains(&values.len());
        let problem = format!("give it 2 to {} values, with commas between them", limits::SWEEP_VALUES);
        refuse_if(is_few_or_many, key, problem)?;
        let mut varied = self.clone();
        varied.sweeps.clear();
        varied.space = None;
        varied.published = Published::default();
        match key.strip_prefix("conditions.") {
            Some(rest) => varied.vary_condition(key, rest, &values)?,
            None => varied.vary_all(key, &values)?,
        }
        varied.check_counts()?;
        varied.check()?;
        Ok(varied)
    }

    fn vary_condition(&mut self, key: &str, rest: &str, values: &[Setting]) -> Result {
        let name = self
            .conditions
            .keys()
            .find(|name| rest.strip_prefix(*name).is_some_and(|rest| rest.starts_with('.')));
        let Some(name) = name.cloned() else {
            let known: Vec<&str> = self.conditions.keys().map(String::as_str).collect();
            return Err(BadScenario::new(key, format!("names no condition; there are {}", known.join(", "))));
        };
        let baseline = self.baseline().to_string();
        let problem = "the baseline has one value: the others are compared with it";
        refuse_if(name == baseline, key, problem)?;
        let variant = |value: &Setting| {
            let mut scenario = overrides::apply(self, [(key, value)])?;
            let condition = scenario.conditions.swap_remove(&name).unwrap_or_default();
            Ok((title(key, value), Condition { label: String::new(), ..condition }))
        };
        let variants: Vec<(String, Condition)> = values.iter().map(variant).collect::<Result<_>>()?;
        self.conditions.retain(|other, _| *other == baseline);
        self.conditions.extend(variants);
        self.run.conditions.clear();
        Ok(())
    }

    fn vary_all(&mut self, key: &str, values: &[Setting]) -> Result {
        let problem = "this scenario has cases already; vary a key of a condition";
        refuse_if(!self.cases.is_empty(), key, problem)?;
        let problem = format!("cannot be varied; conditions and keys of {} can", OF_ONE_RUN.join(", "));
        refuse_if(!of_one_run(key), key, problem)?;
        for value in values {
            // Here errors name the key alone; a case's would name the case, too.
            overrides::apply(self, [(key, value)])?.check()?;
            self.check_effect(key)?;
            let set = IndexMap::from([(key.to_string(), value.clone())]);
            self.cases.insert(title(key, value), Case { label: title(key, value), set, ..Case::default() });
        }
        Ok(())
    }
}

/// The key's last word and the value.
fn title(key: &str, value: &Setting) -> String {
    format!("{}={value}", key.rsplit('.').next().unwrap_or(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'memory' }
        [conditions.alone]
        [conditions.crowded]
        label = 'crowded'
        overcommit = 2.0
        [conditions.other]
        hogs = 1
        [published]
        source = 's'
        condition = 'crowded'
        ratios = [{ metric = 'gp_mean_ns', ratio = 2.0, printed = 'x' }]
    ";

    fn varied(assignment: &str) -> Result<Scenario, String> {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        scenario.varied(assignment).map_err(|error| error.to_string())
    }

    #[test]
    fn a_condition_s_key_gives_conditions_beside_the_one_baseline() {
        let scenario = varied("conditions.crowded.overcommit=1.5, 2,3").unwrap();
        let names: Vec<&str> = scenario.conditions.keys().map(String::as_str).collect();
        assert_eq!(names, ["alone", "overcommit=1.5", "overcommit=2", "overcommit=3"]);
        assert_eq!(scenario.conditions["overcommit=3"].overcommit, 3.0);
        assert_eq!(scenario.conditions["overcommit=3"].label, "");
        assert_eq!(scenario.published, Published::default());
    }

    #[test]
    fn another_key_gives_cases_with_all_conditions() {
        let scenario = varied("host.scheduler=cfs,eevdf").unwrap();
        assert_eq!(scenario.cases.keys().collect::<Vec<_>>(), ["scheduler=cfs", "scheduler=eevdf"]);
        assert_eq!((scenario.conditions.len(), scenario.runs()), (3, 2 * 3 * 3));
    }

    #[test]
    fn a_slip_is_refused_with_its_key() {
        assert!(varied("conditions.crowded.overcommit=2").unwrap_err().contains("give it 2 to"));
        assert!(
            varied("conditions.crowd.overcommit=1,2")
                .unwrap_err()
                .contains("there are alone, crowded, other")
        );
        assert!(varied("conditions.alone.hogs=1,2").unwrap_err().contains("the baseline has one value"));
        assert!(varied("host.slice=1,2").unwrap_err().contains("did you mean"));
        assert!(varied("guest.boot_limit_ms=2000,3000").unwrap_err().contains("has no effect here"));
        assert!(varied("host.scheduler=cfs,bfs").unwrap_err().contains("bfs"));
        assert!(varied("host.scheduler").unwrap_err().contains("write it as"));
    }
}
