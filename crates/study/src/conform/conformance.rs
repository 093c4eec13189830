//! Checks whether the simulator gets effects right: the same scenario is run on it and on real guests.
//!
//! An effect is the ratio of a condition to the baseline. The simulator is calibrated on baselines alone, so the
//! errors of the baseline show how good the calibration is, and the errors of effects show how good the predictions
//! are.

use crate::compare::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use crate::observe::metric;
use crate::recorded::record::Study;
use crate::statistics::{self, Estimate};

/// The metrics that are compared: all of grace periods, memory and throughput that both grounds measure.
pub const METRICS: [&str; 18] = [
    metric::GP_MEAN,
    metric::GP_P50,
    metric::GP_P99,
    metric::GP_MAX,
    metric::READER_PREEMPTIONS,
    metric::READER_PREEMPTIONS_LAST,
    metric::READER_HELD,
    metric::GP_COMPUTE,
    metric::KERNEL_CPU,
    metric::FOOTPRINT_PEAK,
    metric::FOOTPRINT_MEAN,
    metric::UNUSABLE_PEAK,
    metric::UNUSABLE_MEAN,
    metric::BACKLOG_PEAK,
    metric::BACKLOG_MEAN,
    metric::THROUGHPUT,
    metric::SYNC_MEAN,
    metric::SYNC_MAX,
];

/// The simulator against real guests.
#[derive(Clone, Debug, PartialEq)]
pub struct Conformance {
    /// Name of the condition that the others are compared with.
    pub baseline: String,
    /// The baseline itself: one for each of [`METRICS`] that both sides have, in their order.
    pub levels: Vec<Level>,
    /// One for each further condition with runs on both sides and each of [`METRICS`] with a ratio to the baseline on
    /// both sides, in the order of the real study's conditions.
    pub effects: Vec<Effect>,
}

/// One metric under the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Which metric.
    pub metric: &'static str,
    /// Median over the runs with real guests, in the metric's unit.
    pub real: f64,
    /// Median over the simulated runs.
    pub simulated: f64,
}

impl Level {
    /// Natural logarithm of simulated over real; `None` unless both are positive.
    pub fn error(&self) -> Option<f64> {
        statistics::log_ratio(self.simulated, self.real)
    }
}

/// One condition's effect on one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Name of the condition.
    pub condition: String,
    /// Which metric.
    pub metric: &'static str,
    /// Condition over baseline of the real guests, medians.
    pub real: Ratio,
    /// The same of the simulated runs.
    pub simulated: Ratio,
}

/// A ratio to the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// With its 95 % bootstrap interval.
    pub estimate: Estimate,
    /// Whether there are enough runs for a permutation test to give a p-value below 0.05.
    pub has_enough_runs: bool,
}

impl Ratio {
    /// Whether the effect is clear: the whole interval is further than [`NO_EFFECT`] from 1, on one side of it, and
    /// there are enough runs.
    pub fn is_clear(&self) -> bool {
        self.has_enough_runs && self.leaves_one_out()
    }

    fn leaves_one_out(&self) -> bool {
        self.estimate.low > NO_EFFECT || self.estimate.high < 1.0 / NO_EFFECT
    }
}

/// Whether the simulator has an effect's direction right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Both effects are clear, and point the same way.
    Same,
    /// Both are clear, and point different ways.
    Wrong,
    /// The real effect is clear, the simulated one is not.
    RealAlone,
    /// The simulated effect is clear, the real one is not.
    SimulatedAlone,
    /// Neither is clear, because there are too few runs; their intervals lie on opposite sides of 1.
    FewRunsApart,
    /// Neither is clear.
    Neither,
}

impl Effect {
    /// Simulated log-ratio less real log-ratio; `None` unless both ratios are positive.
    pub fn error(&self) -> Option<f64> {
        statistics::log_ratio(self.simulated.estimate.value, self.real.estimate.value)
    }

    /// Whether both ratios are on the same side of 1, clear or not.
    fn points_alike(&self) -> bool {
        let is_up = |ratio: Ratio| ratio.estimate.value > 1.0;
        is_up(self.real) == is_up(self.simulated)
    }

    /// Whether the directions agree.
    pub fn sign(&self) -> Sign {
        match (self.real.is_clear(), self.simulated.is_clear()) {
            (true, true) if self.points_alike() => Sign::Same,
            (true, true) => Sign::Wrong,
            (true, false) => Sign::RealAlone,
            (false, true) => Sign::SimulatedAlone,
            (false, false) if self.real.leaves_one_out() && self.simulated.leaves_one_out() => {
                if self.points_alike() { Sign::Neither } else { Sign::FewRunsApart }
            }
            (false, false) => Sign::Neither,
        }
    }
}

/// Counts over the effects on one metric, or on all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Effects compared.
    pub effects: usize,
    /// Effects that are clear on both sides.
    pub clear: usize,
    /// Of these, effects that point different ways.
    pub wrong: usize,
    /// Effects that seem to point different ways, with too few runs to tell.
    pub few_runs_apart: usize,
    /// Effects that are clear with real guests alone.
    pub real_alone: usize,
    /// Of these, effects that point the other way in the simulator, though not clearly.
    pub real_alone_apart: usize,
    /// Effects that are clear in the simulator alone.
    pub simulated_alone: usize,
    /// Effects that have an error: a ratio of 0 on either side has none.
    pub errors: usize,
    /// Median magnitude of the errors, as a share: 0.15 if half of the simulated effects are within a factor of 1.15.
    pub median_error: Option<f64>,
}

/// The real study and the simulated one; `None` unless there is one of each.
pub(crate) fn real_and_simulated<'a>(first: &'a Study, second: &'a Study) -> Option<(&'a Study, &'a Study)> {
    match (first.is_simulated(), second.is_simulated()) {
        (false, true) => Some((first, second)),
        (true, false) => Some((second, first)),
        _ => None,
    }
}

impl Conformance {
    /// Compares two studies, in either order; `None` unless exactly one of them was simulated.
    /// [`crate::conform::latency_conformance`] compares latencies.
    pub fn between(first: &Study, second: &Study) -> Option<Conformance> {
        let (real, simulated) = real_and_simulated(first, second)?;
        (!real.scenario.workload.is_latency()).then(|| Conformance::of(real, simulated))
    }

    fn of(real: &Study, simulated: &Study) -> Conformance {
        let baseline = real.scenario.baseline();
        let level = |metric: &'static str| {
            let median = |study: &Study| statistics::median(&study.values_of(metric, baseline));
            Some(Level { metric, real: median(real)?, simulated: median(simulated)? })
        };
        let effect = |condition: &String, metric: &'static str| {
            Some(Effect {
                condition: condition.clone(),
                metric,
                real: ratio(real, baseline, condition, metric)?,
                simulated: ratio(simulated, baseline, condition, metric)?,
            })
        };
        let others = real.scenario.conditions.keys().filter(|condition| *condition != baseline);
        let effects = others
            .flat_map(|condition| METRICS.into_iter().filter_map(move |metric| effect(condition, metric)));
        Conformance {
            baseline: baseline.into(),
            levels: METRICS.into_iter().filter_map(level).collect(),
            effects: effects.collect(),
        }
    }

    /// Effects whose direction the simulator has wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter().filter(|effect| effect.sign() == Sign::Wrong)
    }

    /// Whether any effect has enough runs on both sides to be clear.
    pub fn has_enough_runs(&self) -> bool {
        self.effects.iter().any(|effect| effect.real.has_enough_runs && effect.simulated.has_enough_runs)
    }

    /// Counts the effects on one metric, or on all.
    pub fn tally(&self, metric: Option<&str>) -> Tally {
        let of = |effect: &&Effect| metric.is_none_or(|metric| metric == effect.metric);
        let effects = || self.effects.iter().filter(of);
        let with = |signs: &[Sign]| effects().filter(|effect| signs.contains(&effect.sign())).count();
        Tally {
            effects: effects().count(),
            clear: with(&[Sign::Same, Sign::Wrong]),
            wrong: with(&[Sign::Wrong]),
            few_runs_apart: with(&[Sign::FewRunsApart]),
            real_alone: with(&[Sign::RealAlone]),
            real_alone_apart: effects()
                .filter(|effect| effect.sign() == Sign::RealAlone && !effect.points_alike())
                .count(),
            simulated_alone: with(&[Sign::SimulatedAlone]),
            errors: effects().filter_map(Effect::error).count(),
            median_error: median_share(effects().filter_map(Effect::error)),
        }
    }

    /// Median magnitude of the baseline's errors, as a share.
    pub fn baseline_error(&self) -> Option<f64> {
        median_share(self.levels.iter().filter_map(Level::error))
    }
}

/// Of logarithms of factors.
fn median_share(errors: impl Iterator<Item = f64>) -> Option<f64> {
    statistics::median(&errors.map(f64::abs).collect::<Vec<f64>>()).map(|median| median.exp_m1())
}

fn ratio(study: &Study, baseline: &str, condition: &str, metric: &str) -> Option<Ratio> {
    let (base, treated) = (study.values_of(metric, baseline), study.values_of(metric, condition));
    let mut stream = statistics::stream(study.scenario.run.seed, &format!("bootstrap {metric}"));
    let estimate = statistics::ratio_of_medians(&treated, &base, &mut stream)?;
    let has_enough_runs = statistics::least_p(treated.len(), base.len()) < SIGNIFICANT_BELOW;
    Some(Ratio { estimate, has_enough_runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Observation, Provenance, Standing};
    use crate::scenario::GroundKind;
    use crate::scenario::overrides;
    use crate::units;

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [conditions.baseline]
        [conditions.quota]
        quota = [{ vcpu = 1, percent = 20 }]
        [conditions.hogs]
        hogs = 1
        [conditions.pinned]
        pcpus = [0]
    ";

    /// A study with four runs for each condition of about that average GP duration in ms; the backlog's peak is its reciprocal.
    fn study(ground: GroundKind, runs: &[(&str, f64)]) -> Study {
        let scenario = overrides::read(TEXT, Some(ground), &[]).unwrap();
        let run = |condition: &str, gp_ms: f64| Observation {
            condition: condition.to_string(),
            repetition: 0,
            standing: Standing::Accepted,
            case: None,
            sweep: None,
            provenance: Provenance { ground: format!("{ground}, 0.0.0"), ..Provenance::default() },
            metrics: [
                (metric::GP_MEAN.to_string(), gp_ms * units::MILLISECOND_NS as f64),
                (metric::BACKLOG_PEAK.to_string(), if gp_ms == 0.0 { 0.0 } else { 1e6 / gp_ms }),
            ]
            .into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        };
        let spread = [0.99, 1.0, 1.0, 1.01];
        let runs = runs.iter().flat_map(|(name, ms)| spread.map(|factor| run(name, ms * factor)));
        Study::new(scenario, runs.collect(), None)
    }

    fn of<'a>(found: &'a Conformance, condition: &str, metric: &str) -> &'a Effect {
        found.effects.iter().find(|effect| effect.condition == condition && effect.metric == metric).unwrap()
    }

    #[test]
    fn effects_are_ratios_to_the_baseline_on_either_side() {
        // Half as fast under the baseline, and under the quota: the effect is the same.
        let real = study(GroundKind::Vm, &[("baseline", 4.0), ("quota", 20.0), ("hogs", 8.0)]);
        let simulated = study(GroundKind::Sim, &[("baseline", 8.0), ("quota", 40.0), ("pinned", 5.0)]);
        let found = Conformance::between(&real, &simulated).unwrap();
        let effect = of(&found, "quota", metric::GP_MEAN);
        assert_eq!((effect.real.estimate.value, effect.simulated.estimate.value), (5.0, 5.0));
        assert_eq!((effect.error(), effect.sign()), (Some(0.0), Sign::Same));
        assert_eq!(found.effects.len(), 2, "none without runs on both sides, or of what was not measured");
        let level = &found.levels[0];
        assert_eq!((level.metric, level.error()), (metric::GP_MEAN, Some(2.0_f64.ln())));
        assert!((found.baseline_error().unwrap() - 1.0).abs() < 1e-9, "twice, or half");
        assert_eq!(Conformance::between(&simulated, &real), Some(found), "the order does not matter");
    }

    #[test]
    fn a_wrong_sign_differs_from_an_effect_that_is_not_clear() {
        let real =
            study(GroundKind::Vm, &[("baseline", 4.0), ("quota", 8.0), ("hogs", 8.0), ("pinned", 4.0)]);
        let simulated =
            study(GroundKind::Sim, &[("baseline", 4.0), ("quota", 2.0), ("hogs", 4.0), ("pinned", 2.0)]);
        let found = Conformance::between(&real, &simulated).unwrap();
        let sign = |condition| of(&found, condition, metric::GP_MEAN).sign();
        assert_eq!(
            [sign("quota"), sign("hogs"), sign("pinned")],
            [Sign::Wrong, Sign::RealAlone, Sign::SimulatedAlone]
        );
        assert_eq!(found.wrong().count(), 2, "the backlog's, too");
        let Tally { effects, clear, wrong, real_alone, real_alone_apart, .. } =
            found.tally(Some(metric::GP_MEAN));
        assert_eq!((effects, clear, wrong, real_alone, real_alone_apart), (3, 1, 1, 1, 1), "x1 is not up");
        let error = of(&found, "quota", metric::GP_MEAN).error().unwrap();
        assert!((error - 0.25_f64.ln()).abs() < 1e-9, "x0.5 for x2");
    }

    #[test]
    fn few_runs_are_never_clear() {
        let few = |ground, runs: &[(&str, f64)]| {
            let mut few = study(ground, runs);
            let mut count = 0;
            few.observations.retain(|_| {
                count += 1;
                count % 4 != 0
            });
            few
        };
        let real = few(GroundKind::Vm, &[("baseline", 4.0), ("quota", 20.0)]);
        let simulated = few(GroundKind::Sim, &[("baseline", 4.0), ("quota", 1.0)]);
        let found = Conformance::between(&real, &simulated).unwrap();
        let sign = of(&found, "quota", metric::GP_MEAN).sign();
        assert_eq!((sign, found.wrong().count()), (Sign::FewRunsApart, 0));
        assert_eq!(found.tally(None).few_runs_apart, 2);
    }

    #[test]
    fn an_effect_of_two_per_cent_is_none() {
        let real = study(GroundKind::Vm, &[("baseline", 4.0), ("quota", 4.1), ("hogs", 4.2)]);
        let simulated = study(GroundKind::Sim, &[("baseline", 4.0), ("quota", 3.9), ("hogs", 3.8)]);
        let clear = |low: f64, high: f64| {
            let estimate = Estimate { value: (low + high) / 2.0, low, high };
            Ratio { estimate, has_enough_runs: true }.is_clear()
        };
        assert_eq!(
            [clear(1.02, 1.5), clear(1.021, 1.5), clear(0.9, 0.979), clear(0.5, 0.99)],
            [false, true, true, false]
        );
        let found = Conformance::between(&real, &simulated).unwrap();
        assert_eq!(of(&found, "hogs", metric::GP_MEAN).sign(), Sign::Wrong);
    }

    #[test]
    fn what_was_zero_has_no_ratio_or_no_error() {
        let real = study(GroundKind::Vm, &[("baseline", 4.0), ("quota", 0.0), ("hogs", 6.0)]);
        let simulated = study(GroundKind::Sim, &[("baseline", 4.0), ("quota", 4.0), ("hogs", 4.0)]);
        let found = Conformance::between(&real, &simulated).unwrap();
        assert_eq!(of(&found, "quota", metric::GP_MEAN).error(), None);
        let error = found.tally(Some(metric::GP_MEAN)).median_error.unwrap();
        assert!((error - 0.5).abs() < 1e-9, "of the other alone");
        let found =
            Conformance::between(&study(GroundKind::Vm, &[("baseline", 0.0), ("quota", 1.0)]), &simulated);
        assert_eq!(found.unwrap().effects, []);
    }

    #[test]
    fn two_studies_of_a_kind_have_no_conformance() {
        let [real, simulated] =
            [GroundKind::Vm, GroundKind::Sim].map(|ground| study(ground, &[("baseline", 4.0)]));
        assert_eq!(Conformance::between(&real, &real), None);
        assert_eq!(Conformance::between(&simulated, &simulated), None);
    }
}
