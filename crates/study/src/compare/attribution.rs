//! Attributes the throughput that a condition costs to causes. The simulator runs the condition once more with a
//! cause left out; the throughput that is still lost was not lost to that cause.
//!
//! Leaving a cause out may also make the baseline faster, and that gain is no part of the loss. So the remaining loss
//! is measured against the baseline *with the same cause left out*:
//!
//! ```text
//! share = 1 - (baseline without the cause - condition without the cause) / (baseline - condition)
//! ```
//!
//! A condition with `without` is the counterpart of the condition that is the same apart from `without` and the
//! label, if the baseline has such a counterpart too; otherwise it is a condition like any other. `run.attribute`
//! adds the counterparts that are needed, and then only the conditions that it names are attributed.
//!
//! Shares need not add up to 1. Two causes that each suffice for the loss overlap: removing one changes nothing. Of
//! two causes that do harm only together, removing either one regains everything, so their sum is above 1.
//! [`Attribution::remainder`] is the difference from 1.

use crate::observe::metric;
use crate::observe::observation::Observation;
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
    /// The share of the loss that no single cause explains: 1 less the shares of the causes that were left out alone,
    /// with its 95 % bootstrap interval. Above zero, that much is regained only when several causes are left out
    /// together; below zero, that much was counted more than once. `None` when nothing is lost, or no cause was left
    /// out alone.
    pub remainder: Option<Estimate>,
}

/// The loss that remains when causes are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the condition that leaves the causes out.
    pub condition: String,
    /// The causes.
    pub causes: Vec<Cause>,
    /// Median throughput under the baseline with the same causes left out, operations per second.
    pub baseline_per_s: f64,
    /// Median throughput under the condition with the same causes left out.
    pub condition_per_s: f64,
    /// Share of the loss that disappears with the causes, with its 95 % bootstrap interval; `None` when nothing is
    /// lost.
    pub share: Option<Estimate>,
}

impl Part {
    /// Throughput that is still lost, operations per second; below zero when the condition is faster than the baseline.
    pub fn loss_per_s(&self) -> f64 {
        self.baseline_per_s - self.condition_per_s
    }
}

impl Attribution {
    /// Each condition of the scenario that has counterparts with causes left out, and runs of all of them.
    pub fn all(scenario: &Scenario, observations: &[Observation]) -> Vec<Attribution> {
        let asked = &scenario.run.attribute;
        let lossy = |(name, _): &(&String, &Condition)| {
            name.as_str() != scenario.baseline() && (asked.is_empty() || asked.contains(name))
        };
        let runs = Runs { scenario, observations };
        let conditions = scenario.conditions.iter().filter(lossy);
        conditions.filter_map(|(name, whole)| runs.attribute(name, whole)).collect()
    }

    /// Throughput lost, operations per second; below zero when the condition is faster.
    pub fn loss_per_s(&self) -> f64 {
        self.baseline_per_s - self.condition_per_s
    }
}

/// The runs that an attribution is made from.
struct Runs<'a> {
    scenario: &'a Scenario,
    observations: &'a [Observation],
}

impl Runs<'_> {
    /// Throughput of each run of a condition.
    fn throughput(&self, condition: &str) -> Vec<f64> {
        let runs = self.observations.iter().filter(|run| run.is_of(condition));
        runs.filter_map(|run| run.value(metric::THROUGHPUT)).collect()
    }

    fn attribute(&self, name: &str, whole: &Condition) -> Option<Attribution> {
        let baseline = self.scenario.baseline();
        let (base, treated) = (self.throughput(baseline), self.throughput(name));
        let counterparts =
            self.scenario.conditions.iter().filter(|(_, other)| other.is_counterpart_of(whole));
        let parts: Vec<Part> =
            counterparts.filter_map(|(name, other)| self.part(&base, &treated, name, other)).collect();
        let attribution = Attribution {
            condition: name.into(),
            baseline: baseline.into(),
            baseline_per_s: statistics::median(&base)?,
            condition_per_s: statistics::median(&treated)?,
            remainder: self.remainder(name, [&base, &treated], &parts),
            parts,
        };
        (!attribution.parts.is_empty()).then_some(attribution)
    }

    fn remainder(&self, name: &str, whole: [&[f64]; 2], parts: &[Part]) -> Option<Estimate> {
        let single: Vec<&str> =
            parts.iter().filter(|part| part.causes.len() == 1).map(|part| part.condition.as_str()).collect();
        if single.is_empty() {
            return None;
        }
        let mut groups: Vec<Vec<f64>> = whole.map(<[f64]>::to_vec).into();
        for part in &single {
            groups.push(self.throughput(baseline_without(self.scenario, &self.scenario.conditions[*part])?));
            groups.push(self.throughput(part));
        }
        let groups: Vec<&[f64]> = groups.iter().map(Vec::as_slice).collect();
        let mut rng = statistics::stream(self.scenario.run.seed, &format!("remainder {name}"));
        statistics::of_medians(&groups, &mut rng, |medians| {
            let shares: Option<f64> =
                medians[2..].chunks(2).map(|pair| share([medians[0], medians[1]], [pair[0], pair[1]])).sum();
            shares.map(|sum| 1.0 - sum)
        })
    }

    fn part(&self, base: &[f64], treated: &[f64], name: &str, part: &Condition) -> Option<Part> {
        let base_without = self.throughput(baseline_without(self.scenario, part)?);
        let treated_without = self.throughput(name);
        let groups: [&[f64]; 4] = [base, treated, &base_without, &treated_without];
        let mut rng = statistics::stream(self.scenario.run.seed, &format!("attribution {name}"));
        Some(Part {
            condition: name.into(),
            causes: part.without.clone(),
            baseline_per_s: statistics::median(&base_without)?,
            condition_per_s: statistics::median(&treated_without)?,
            share: statistics::of_medians(&groups, &mut rng, |medians| {
                share([medians[0], medians[1]], [medians[2], medians[3]])
            }),
        })
    }
}

/// The condition that is the baseline with the same causes left out.
fn baseline_without<'a>(scenario: &'a Scenario, part: &Condition) -> Option<&'a str> {
    let baseline = scenario.conditions.get(scenario.baseline())?;
    let fits = |other: &Condition| other.is_counterpart_of(baseline) && other.leaves_out_the_same_as(part);
    scenario.conditions.iter().find(|(_, other)| fits(other)).map(|(name, _)| name.as_str())
}

/// The condition whose counterpart `name` is, if there is one and the baseline has such a counterpart too.
pub fn whole_of<'a>(scenario: &'a Scenario, name: &str) -> Option<&'a str> {
    let part = scenario.conditions.get(name)?;
    baseline_without(scenario, part)?;
    let whole = scenario.conditions.iter().find(|(_, condition)| part.is_counterpart_of(condition))?;
    Some(whole.0.as_str())
}

/// The share of the loss that disappears when causes are left out of both baseline and condition; each pair has the
/// throughputs with and without them. `None` without a loss.
fn share([base, treated]: [f64; 2], [base_without, treated_without]: [f64; 2]) -> Option<f64> {
    let loss = base - treated;
    (loss > 0.0).then(|| 1.0 - (base_without - treated_without) / loss)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Provenance, Standing};
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [conditions.baseline]
        [conditions.baseline-no-readers]
        without = ['reader-preemption']
        [conditions.baseline-no-share]
        without = ['cpu-share']
        [conditions.baseline-neither]
        without = ['cpu-share', 'reader-preemption']
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
            case: None,
            sweep: None,
            provenance: Provenance::default(),
            metrics: [(metric::THROUGHPUT.to_string(), value)].into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        };
        of.iter().flat_map(|(name, values)| values.iter().map(move |value| run(name, *value))).collect()
    }

    #[test]
    fn what_the_baseline_gains_too_is_no_part_of_the_loss() {
        // Nothing is left of the loss; all of it is; a gain of both is none of the loss.
        assert_eq!(share([1000.0, 400.0], [1000.0, 1000.0]), Some(1.0));
        assert_eq!(share([1000.0, 400.0], [1000.0, 400.0]), Some(0.0));
        assert_eq!(share([1000.0, 400.0], [1300.0, 700.0]), Some(0.0));
        // The loss is larger without the cause: it hid a part of it.
        assert_eq!(share([1000.0, 400.0], [1300.0, 400.0]), Some(-0.5));
        assert_eq!(share([400.0, 400.0], [400.0, 500.0]), None);
    }

    fn all_observed() -> Vec<Observation> {
        observed(&[
            ("baseline", &[1000.0, 990.0, 1010.0]),
            ("baseline-no-readers", &[1000.0]),
            ("baseline-no-share", &[1100.0]),
            ("baseline-neither", &[1120.0]),
            ("over", &[400.0, 390.0, 410.0]),
            ("no-readers", &[550.0]),
            ("no-share", &[800.0, 790.0, 810.0]),
            ("neither", &[1090.0]),
            ("of-another", &[500.0]),
        ])
    }

    #[test]
    fn a_share_is_what_is_gone_of_the_loss() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let all = Attribution::all(&scenario, &all_observed());
        let [attribution] = &all[..] else { panic!("{all:#?}") };
        assert_eq!((attribution.condition.as_str(), attribution.loss_per_s()), ("over", 600.0));
        let shares: Vec<(&str, f64, f64)> = attribution
            .parts
            .iter()
            .map(|part| (part.condition.as_str(), part.loss_per_s(), part.share.unwrap().value))
            .collect();
        let expected = [("no-readers", 450.0, 0.25), ("no-share", 300.0, 0.5), ("neither", 30.0, 0.95)];
        assert_eq!(shares, expected);
        assert_eq!(
            attribution.remainder.unwrap().value,
            0.25,
            "only causes that were left out alone are added up"
        );
        let interval = attribution.parts[1].share.unwrap();
        assert!(interval.low < 0.5 && interval.high > 0.5 && interval.low > 0.4, "{interval:?}");
    }

    #[test]
    fn a_part_belongs_to_the_condition_that_is_the_same_otherwise() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let whole = |name: &str| whole_of(&scenario, name);
        assert_eq!((whole("neither"), whole("baseline-neither")), (Some("over"), Some("baseline")));
        assert_eq!((whole("of-another"), whole("over")), (None, None));
    }

    #[test]
    fn without_a_loss_or_without_runs_there_is_nothing_to_share() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let faster = observed(&[
            ("baseline", &[400.0]),
            ("over", &[500.0]),
            ("no-share", &[600.0]),
            ("baseline-no-share", &[400.0]),
        ]);
        let all = Attribution::all(&scenario, &faster);
        assert_eq!((all[0].parts[0].share, all[0].remainder), (None, None));
        assert_eq!(Attribution::all(&scenario, &faster[..2]), []);
        assert_eq!(Attribution::all(&scenario, &faster[1..]), []);
    }

    #[test]
    fn without_the_baseline_s_counterpart_it_is_a_condition_like_any_other() {
        let scenario = overrides::read(
            &TEXT.replace("[conditions.baseline-no-share]", "[conditions.b]\n        hogs = 1"),
            None,
            &[],
        );
        let scenario = scenario.unwrap();
        assert_eq!(
            (whole_of(&scenario, "no-share"), whole_of(&scenario, "no-readers")),
            (None, Some("over"))
        );
        let attribution = &Attribution::all(&scenario, &all_observed())[0];
        let parts: Vec<&str> = attribution.parts.iter().map(|part| part.condition.as_str()).collect();
        assert_eq!(parts, ["no-readers", "neither"]);
    }
}
