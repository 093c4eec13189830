//! The run at a point of a space.

use std::sync::Arc;

use indexmap::IndexMap;

use super::super::overrides::Prepared;
use super::super::{BadScenario, PlannedRun, Result, Scenario, Setting};

/// Expands runs of one scenario's space.
pub struct Expander<'a> {
    scenario: &'a Scenario,
    /// The conditions, each with the scenario under it.
    under: IndexMap<&'a str, Prepared>,
}

impl<'a> Expander<'a> {
    /// For a scenario with a space.
    ///
    /// # Errors
    /// A condition's settings cannot be run.
    pub fn new(scenario: &'a Scenario) -> Result<Expander<'a>> {
        let common = scenario.common();
        let prepare = |name: &'a str| Ok((name, Prepared::of(&scenario.at(&common, name, None)?)?));
        let under = scenario.space_conditions().map(prepare).collect::<Result<_>>()?;
        Ok(Expander { scenario, under })
    }

    /// The run under that condition with these values of the axes, in their order.
    ///
    /// # Errors
    /// It cannot be run: the axis and the key at fault.
    pub fn run(&self, condition: &str, repetition: u32, values: &[Setting]) -> Result<PlannedRun> {
        let Some(under) = self.under.get(condition) else {
            return Err(BadScenario::new("space.conditions", format!("there is no condition {condition:?}")));
        };
        let settings = self.settings(condition, values);
        let settings = settings.iter().map(|(key, value)| (key.as_str(), *value));
        let scenario = under.with(settings).and_then(|scenario| scenario.check_for(condition));
        let scenario = scenario.map_err(|error| BadScenario::new("space", error.to_string()))?;
        let (condition, scenario) = (condition.to_string(), Arc::new(scenario));
        Ok(PlannedRun { condition, repetition, case: None, sweep: None, scenario })
    }

    /// For each axis, whether this run reads its key, or why not; `None` if it is the key of another condition.
    pub fn effects<'s>(&'s self, run: &'s PlannedRun) -> impl Iterator<Item = Option<Result>> + 's {
        let axes = self.scenario.space.iter().flat_map(|space| space.axes.values());
        axes.map(|axis| Some(run.scenario.check_effect(&self.key_under(&axis.key, &run.condition)?)))
    }

    /// The keys that a run under this condition has, each with its value.
    fn settings<'v>(&self, condition: &str, values: &'v [Setting]) -> Vec<(String, &'v Setting)> {
        let axes = self.scenario.space.iter().flat_map(|space| space.axes.values());
        axes.zip(values)
            .filter_map(|(axis, value)| Some((self.key_under(&axis.key, condition)?, value)))
            .collect()
    }

    /// The key in a run under this condition; `None` if it is that of another condition, which changes nothing in this run.
    fn key_under(&self, key: &str, condition: &str) -> Option<String> {
        let key = key.replace('*', condition);
        let other = self.scenario.condition_in(&key).is_some_and(|(name, _)| name != condition);
        (!other).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'memory' }
        [conditions.a]
        [conditions.b]
        label = 'crowded'
        overcommit = 2.0
        set = { guest.memory_mib = 1024 }
        [space.axes.overcommit]
        key = 'conditions.b.overcommit'
        values = [1.5, 3.0]
        [space.axes.scheduler]
        key = 'host.scheduler'
        values = ['credit', 'credit2']
        [space.axes.slice]
        key = 'host.xen.slice_ms'
        values = [30]
    ";

    fn values(scheduler: &str, overcommit: f64) -> [Setting; 3] {
        [Setting::Number(overcommit), Setting::Text(scheduler.into()), Setting::Integer(10)]
    }

    #[test]
    fn a_run_has_the_values_of_its_point_and_its_condition() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let expander = Expander::new(&scenario).unwrap();
        let run = expander.run("b", 2, &values("credit", 3.0)).unwrap();
        assert_eq!(run.scenario.conditions["b"].overcommit, 3.0);
        assert_eq!((run.scenario.host.scheduler.name(), run.scenario.host.xen.slice_ms), ("credit", 10));
        assert_eq!((run.scenario.guest.memory_mib, run.repetition), (1024, 2));
        let is_read =
            |run| expander.effects(run).map(|effect| effect.map(|one| one.is_ok())).collect::<Vec<_>>();
        assert_eq!(is_read(&run), [Some(true); 3]);
        let alone = expander.run("a", 2, &values("credit", 3.0)).unwrap();
        assert_eq!(is_read(&alone), [None, Some(true), Some(true)]);
        let refused = expander.run("b", 2, &values("cfs", 3.0)).unwrap_err().to_string();
        assert!(refused.contains("host.xen: host.scheduler is none of Xen's"), "{refused}");
        let bad = expander.run("b", 0, &values("bfs", 3.0)).unwrap_err().to_string();
        assert!(bad.starts_with("space: host.scheduler: ") && bad.contains("bfs"), "{bad}");
    }

    #[test]
    fn a_key_of_another_condition_changes_nothing() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let expander = Expander::new(&scenario).unwrap();
        let baseline = |overcommit| expander.run("a", 0, &values("credit", overcommit)).unwrap();
        assert_eq!(baseline(1.5), baseline(3.0));
        assert_eq!(expander.key_under("conditions.*.overcommit", "a").unwrap(), "conditions.a.overcommit");
        assert_eq!(expander.key_under("conditions.b.overcommit", "a"), None);
    }
}
