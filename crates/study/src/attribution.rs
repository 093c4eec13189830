//! How much of the throughput that a condition costs is due to which cause: the simulator runs the condition once
//! more with the cause left out, and what comes back was lost to it.
//!
//! A condition with `without` belongs to the condition that is the same but for it (and the label). Losses need not
//! add up: two causes that each suffice overlap (their sum is above the loss), and two that are only harmful
//! together are both needed (each one's removal gives everything back).

use crate::metric;
use crate::observation::Observation;
use crate::scenario::{Cause, Condition, Scenario};
use crate::statistics::{self, Estimate};

/// The loss under one condition, and its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    /// Name of the condition.
    pub condition: String,
    /// Name of the condition without loss.
    pub baseline: String,
    /// Median throughput under the baseline, operations per second.
    pub baseline_per_s: f64,
    /// Median throughput under the condition.
    pub condition_per_s: f64,
    /// One for each condition that leaves causes out, in the scenario's order.
    pub parts: Vec<Part>,
}

/// What comes back when causes are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the condition that leaves them out.
    pub condition: String,
    /// What it leaves out.
    pub causes: Vec<Cause>,
    /// Median throughput under it, operations per second.
    pub per_s: f64,
    /// What it regains, as a share of the loss, with its 95 % bootstrap interval; `None` when nothing is lost.
    pub share: Option<Estimate>,
}

impl Attribution {
    /// Each condition of the scenario that has counterparts with causes left out, and runs of all of them.
    pub fn all(scenario: &Scenario, observations: &[Observation]) -> Vec<Attribution> {
        let lossy = |(name, _): &(&String, &Condition)| name.as_str() != scenario.baseline();
        let of = |(name, condition): (&String, &Condition)| {
            Attribution::of(scenario, observations, name, condition)
        };
        scenario.conditions.iter().filter(lossy).filter_map(of).collect()
    }

    fn of(
        scenario: &Scenario,
        observations: &[Observation],
        name: &str,
        condition: &Condition,
    ) -> Option<Attribution> {
        let baseline = scenario.baseline();
        let values = |name: &str| -> Vec<f64> {
            let runs = observations.iter().filter(|run| run.is_of(name));
            runs.filter_map(|run| run.metrics.get(metric::THROUGHPUT).copied()).collect()
        };
        let (base, treated) = (values(baseline), values(name));
        let part = |name: &String, other: &Condition| {
            let without = values(name);
            let mut rng = statistics::stream(scenario.run.seed, &format!("attribution {name}"));
            Some(Part {
                condition: name.clone(),
                causes: other.without.clone(),
                per_s: statistics::median(&without)?,
                share: statistics::of_medians(&[&base, &treated, &without], &mut rng, |medians| {
                    share(medians[0], medians[1], medians[2])
                }),
            })
        };
        let counterparts = scenario.conditions.iter().filter(|(_, other)| is_counterpart(condition, other));
        let parts: Vec<Part> = counterparts.filter_map(|(name, other)| part(name, other)).collect();
        let attribution = Attribution {
            condition: name.into(),
            baseline: baseline.into(),
            baseline_per_s: statistics::median(&base)?,
            condition_per_s: statistics::median(&treated)?,
            parts,
        };
        (!attribution.parts.is_empty()).then_some(attribution)
    }

    /// Throughput lost, operations per second; below zero when the condition is faster.
    pub fn loss_per_s(&self) -> f64 {
        self.baseline_per_s - self.condition_per_s
    }

    /// What no single cause gives back, as a share of the loss. Below zero when causes overlap. `None` when nothing is
    /// lost or no cause was left out alone.
    pub fn remainder(&self) -> Option<f64> {
        let single = self.parts.iter().filter(|part| part.causes.len() == 1);
        let shares: Option<Vec<f64>> = single.map(|part| Some(part.share?.value)).collect();
        let shares = shares.filter(|shares| !shares.is_empty())?;
        Some(1.0 - shares.iter().sum::<f64>())
    }
}

/// The condition that `name` leaves causes out of, if there is one.
pub fn whole_of<'a>(scenario: &'a Scenario, name: &str) -> Option<&'a str> {
    let part = scenario.conditions.get(name)?;
    let whole = scenario.conditions.iter().find(|(_, condition)| is_counterpart(condition, part))?;
    Some(whole.0.as_str())
}

/// What leaving causes out regains of the loss.
fn share(base: f64, treated: f64, without: f64) -> Option<f64> {
    let loss = base - treated;
    (loss > 0.0).then(|| (without - treated) / loss)
}

/// Whether the other condition is the same but for its causes left out.
fn is_counterpart(condition: &Condition, other: &Condition) -> bool {
    if !condition.without.is_empty() {
        return false;
    }
    let without = Condition { without: Vec::new(), label: condition.label.clone(), ..other.clone() };
    !other.without.is_empty() && without == *condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Provenance, Standing};
    use crate::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [conditions.baseline]
        [conditions.over]
        label = 'x'
        overcommit = 2
        [conditions.no-readers]
        overcommit = 2
        without = ['reader-preemption']
        [conditions.no-share]
        overcommit = 2
        without = ['cpu-share']
        [conditions.neither]
        overcommit = 2
        without = ['reader-preemption', 'cpu-share']
        [conditions.of-another]
        overcommit = 3
        without = ['cpu-share']
    ";

    fn observed(of: &[(&str, &[f64])]) -> Vec<Observation> {
        let run = |condition: &str, value: f64| Observation {
            condition: condition.into(),
            repetition: 0,
            standing: Standing::Accepted,
            sweep: None,
            provenance: Provenance::default(),
            metrics: [(metric::THROUGHPUT.to_string(), value)].into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            trace: None,
        };
        of.iter().flat_map(|(name, values)| values.iter().map(move |value| run(name, *value))).collect()
    }

    #[test]
    fn what_comes_back_is_a_share_of_what_was_lost() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let observations = observed(&[
            ("baseline", &[1000.0, 990.0, 1010.0]),
            ("over", &[400.0, 390.0, 410.0]),
            ("no-readers", &[550.0]),
            ("no-share", &[700.0, 690.0, 710.0]),
            ("neither", &[970.0]),
            ("of-another", &[500.0]),
        ]);
        let all = Attribution::all(&scenario, &observations);
        let [attribution] = &all[..] else { panic!("{all:#?}") };
        assert_eq!((attribution.condition.as_str(), attribution.loss_per_s()), ("over", 600.0));
        let shares: Vec<(&str, f64)> = attribution
            .parts
            .iter()
            .map(|part| (part.condition.as_str(), part.share.unwrap().value))
            .collect();
        assert_eq!(shares, [("no-readers", 0.25), ("no-share", 0.5), ("neither", 0.95)]);
        assert_eq!((whole_of(&scenario, "neither"), whole_of(&scenario, "of-another")), (Some("over"), None));
        assert_eq!(attribution.remainder(), Some(0.25), "only causes that were left out alone are added up");
        let interval = attribution.parts[1].share.unwrap();
        assert!(interval.low < 0.5 && interval.high > 0.5 && interval.low > 0.4, "{interval:?}");
    }

    #[test]
    fn without_a_loss_or_without_runs_there_is_nothing_to_share() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let faster = observed(&[("baseline", &[400.0]), ("over", &[500.0]), ("no-share", &[600.0])]);
        let all = Attribution::all(&scenario, &faster);
        assert_eq!((all[0].parts[0].share, all[0].remainder()), (None, None));
        assert_eq!(Attribution::all(&scenario, &faster[..2]), []);
        assert_eq!(Attribution::all(&scenario, &faster[1..]), []);
    }
}
