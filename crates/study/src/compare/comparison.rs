//! Conditions against the baseline: ratio, interval, p-value, published ratio, verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::observe::metric;
use crate::observe::observation::Observation;
use crate::scenario::{PublishedRatio, Scenario};
use crate::statistics::{self, Estimate};

/// A difference with a p-value below this is called an effect.
pub const SIGNIFICANT_BELOW: f64 = 0.05;

/// A ratio within this factor of 1 is too small to act on. Among some 200 effects a few are significant although they
/// are below 2 %; they do not count.
pub const NO_EFFECT: f64 = 1.02;

/// One condition against the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the condition.
    pub condition: String,
    /// Name of the condition it is compared with.
    pub baseline: String,
    /// One row for each metric that either side has, in the order of [`metric::ALL`].
    pub rows: Vec<Row>,
}

/// One metric's comparison. The values are the raw ones, one for each repetition that counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Identifier in [`metric::ALL`].
    pub metric: String,
    /// Values under the baseline.
    pub baseline: Vec<f64>,
    /// Values under the condition.
    pub treated: Vec<f64>,
    /// Condition over baseline, medians, with its 95 % bootstrap interval.
    pub ratio: Option<Estimate>,
    /// Two-sided permutation test of this row alone.
    pub p_value: Option<f64>,
    /// The same after Holm's correction for all rows of the table.
    pub p_holm: Option<f64>,
    /// The published ratio.
    pub published: Option<PublishedRatio>,
    /// Our ratio against the published one.
    pub verdict: Verdict,
}

/// Our ratio against the published one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing was published for this metric.
    NoReference,
    /// The metric has no ratio here.
    NotMeasured,
    /// The interval of our ratio contains 1.
    NoClearEffect,
    /// The interval does not contain 1, but there are too few repetitions to tell: no division of the values into two
    /// groups could give a p-value below 0.05.
    TooFewRuns {
        /// Whether our ratio and the published one are on the same side of 1.
        same_direction: bool,
    },
    /// Both ratios are on the same side of 1.
    SameDirection {
        /// Our effect over the published one, as logarithms of ratios: 1 when equal, 2 for x4 where x2 was published.
        times: f64,
    },
    /// The ratios are on different sides of 1.
    OppositeDirection,
}

/// Our effect agrees with a published one if neither is more than this many times the other, as logarithms of ratios:
/// x1.19 to x1.48 agree with x1.3.
pub const AGREES_WITHIN: f64 = 1.5;

impl Verdict {
    /// Of two effects that are beyond doubt.
    pub fn between(ours: f64, published: f64) -> Verdict {
        let times = ours.ln() / published.ln();
        if times > 0.0 { Verdict::SameDirection { times } } else { Verdict::OppositeDirection }
    }

    /// Whether our effect has the published direction and about the published size.
    pub fn agrees(&self) -> bool {
        let near = 1.0 / AGREES_WITHIN..=AGREES_WITHIN;
        matches!(self, Verdict::SameDirection { times } if near.contains(times))
    }

    fn of(ratio: Option<Estimate>, published: Option<&PublishedRatio>, least_p: f64) -> Verdict {
        let Some(published) = published else { return Verdict::NoReference };
        let Some(ours) = ratio else { return Verdict::NotMeasured };
        if ours.low <= 1.0 && ours.high >= 1.0 {
            return Verdict::NoClearEffect;
        }
        let same_direction = (ours.value > 1.0) == (published.ratio > 1.0);
        if least_p >= SIGNIFICANT_BELOW {
            return Verdict::TooFewRuns { same_direction };
        }
        Verdict::between(ours.value, published.ratio)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: String = match self {
            Verdict::NoReference => "".into(),
            Verdict::NotMeasured => "no ratio".into(),
            Verdict::NoClearEffect => "no clear effect".into(),
            Verdict::TooFewRuns { same_direction: true } => "points the same way; too few runs".into(),
            Verdict::TooFewRuns { same_direction: false } => "points the other way; too few runs".into(),
            Verdict::SameDirection { times } if self.agrees() => format!("agrees, {times:.2} of the effect"),
            Verdict::SameDirection { times: less @ ..1.0 } => {
                format!("same direction, only {less:.2} of the effect")
            }
            Verdict::SameDirection { times } => format!("same direction, {times:.1} times the effect"),
            Verdict::OppositeDirection => "opposite direction".into(),
        };
        out.write_str(&said)
    }
}

impl Comparison {
    /// Compares each condition that was run with the baseline; nothing if the baseline was not.
    pub fn all(scenario: &Scenario, observations: &[Observation]) -> Vec<Comparison> {
        let baseline = scenario.baseline();
        let present = |name: &&str| {
            observations.iter().any(|run| run.condition == *name && run.sweep.is_none() && run.case.is_none())
        };
        if !present(&baseline) {
            return Vec::new();
        }
        let others = scenario.chosen().map(|(name, _)| name.as_str()).skip(1).filter(present);
        others.map(|condition| Comparison::of(scenario, observations, baseline, condition)).collect()
    }

    fn of(scenario: &Scenario, observations: &[Observation], baseline: &str, condition: &str) -> Comparison {
        let published = &scenario.published;
        let values = |name: &str, metric: &str| -> Vec<f64> {
            let counted = observations.iter().filter(|observation| observation.is_of(name));
            counted.filter_map(|observation| observation.value(metric)).collect()
        };
        let row = |metric: &metric::Metric| {
            let (base, treated) = (values(baseline, metric.id), values(condition, metric.id));
            if base.is_empty() && treated.is_empty() {
                return None;
            }
            let reference = published.of(condition).find(|ratio| ratio.metric == metric.id);
            Some(Row::new(metric.id, base, treated, reference, scenario.run.seed))
        };
        let mut rows: Vec<Row> = metric::ALL.iter().filter_map(row).collect();
        let tested: Vec<f64> = rows.iter().filter_map(|row| row.p_value).collect();
        let mut adjusted = statistics::holm(&tested).into_iter();
        for row in rows.iter_mut().filter(|row| row.p_value.is_some()) {
            row.p_holm = adjusted.next();
        }
        Comparison { condition: condition.into(), baseline: baseline.into(), rows }
    }

    /// The row of that metric.
    pub fn row(&self, metric: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.metric == metric)
    }
}

impl Row {
    /// Compares two sets of values of one metric. The seed determines the resampling.
    pub fn new(
        metric: &str,
        baseline: Vec<f64>,
        treated: Vec<f64>,
        published: Option<&PublishedRatio>,
        seed: u64,
    ) -> Row {
        let stream = |purpose: &str| statistics::stream(seed, &format!("{purpose} {metric}"));
        let ratio = statistics::ratio_of_medians(&treated, &baseline, &mut stream("bootstrap"));
        let p_value = statistics::permutation_p(&treated, &baseline, &mut stream("permutation"));
        Row {
            metric: metric.into(),
            verdict: Verdict::of(ratio, published, statistics::least_p(treated.len(), baseline.len())),
            published: published.cloned(),
            baseline,
            treated,
            ratio,
            p_value,
            p_holm: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Provenance, Standing};
    use crate::scenario::overrides;

    fn published(ratio: f64) -> PublishedRatio {
        PublishedRatio {
            metric: "gp_mean_ns".into(),
            ratio,
            printed: String::new(),
            condition: String::new(),
        }
    }

    fn observation(condition: &str, value: f64, standing: Standing) -> Observation {
        Observation {
            condition: condition.into(),
            repetition: 0,
            standing,
            case: None,
            sweep: None,
            provenance: Provenance::default(),
            metrics: [("gp_mean_ns".to_string(), value)].into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        }
    }

    #[test]
    fn verdicts() {
        let around = |value: f64| Some(Estimate { value, low: value * 0.9, high: value * 1.1 });
        let of = |ours: Option<Estimate>, theirs: Option<f64>| {
            Verdict::of(ours, theirs.map(published).as_ref(), 0.01)
        };
        let times = |verdict| match verdict {
            Verdict::SameDirection { times } => (times * 1e6).round() / 1e6,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(around(2.0), None), Verdict::NoReference);
        assert_eq!(of(None, Some(2.0)), Verdict::NotMeasured);
        assert_eq!(of(around(1.05), Some(2.0)), Verdict::NoClearEffect);
        assert_eq!(of(around(0.5), Some(2.0)), Verdict::OppositeDirection);
        assert_eq!(times(of(around(4.0), Some(2.0))), 2.0);
        assert_eq!(times(of(around(0.25), Some(0.5))), 2.0);
        // +30 %, as the average grace period of the memory microbenchmark: half as large, and three times as large, do not agree.
        let agrees = |ours| of(around(ours), Some(1.3)).agrees();
        assert_eq!([1.13, 1.20, 1.48, 1.5, 1.91].map(agrees), [false, true, true, false, false]);
        let said = |ours, theirs| of(around(ours), Some(theirs)).to_string();
        assert_eq!(said(1.31, 1.3), "agrees, 1.03 of the effect");
        assert_eq!(said(1.91, 1.3), "same direction, 2.5 times the effect");
        assert_eq!(said(1.2, 2.0), "same direction, only 0.26 of the effect");
        let few = Verdict::of(around(4.0), Some(published(2.0)).as_ref(), 0.1);
        assert_eq!(few, Verdict::TooFewRuns { same_direction: true });
    }

    #[test]
    fn redone_runs_do_not_enter_and_every_condition_meets_the_baseline() {
        let text = r#"
            name = "t"
            title = "t"
            [workload]
            kind = "memory"
            [conditions.baseline]
            [conditions.again]
            [conditions.overcommitted]
            hogs = 1
            [published]
            condition = "overcommitted"
            ratios = [{ metric = "gp_mean_ns", ratio = 2.18, printed = "x2.18" }]
        "#;
        let scenario = overrides::read(text, None, &[]).unwrap();
        let mut observations = vec![observation("baseline", 4.0, Standing::Accepted)];
        observations.push(observation("baseline", 400.0, Standing::Redone));
        observations.push(observation("overcommitted", 8.0, Standing::Kept));
        observations.push(observation("again", 4.0, Standing::Accepted));
        let all = Comparison::all(&scenario, &observations);
        assert_eq!(all.iter().map(|c| c.condition.as_str()).collect::<Vec<_>>(), ["again", "overcommitted"]);
        let row = all[1].row("gp_mean_ns").unwrap();
        assert_eq!((row.baseline.as_slice(), row.ratio.unwrap().value), ([4.0].as_slice(), 2.0));
        assert_eq!(row.verdict, Verdict::TooFewRuns { same_direction: true });
        assert_eq!(all[0].row("gp_mean_ns").unwrap().verdict, Verdict::NoReference);
        let without_baseline: Vec<Observation> = observations.drain(2..).collect();
        assert_eq!(Comparison::all(&scenario, &without_baseline), []);
    }
}
