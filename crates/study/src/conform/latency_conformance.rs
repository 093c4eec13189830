//! Compares simulated latencies with real ones: the same scenario run on both grounds, condition by condition, each
//! with repetitions that differ only in their phases.
//!
//! Percentiles, the maximum and counts of stalls are taken over all repetitions together. A figure is *near* if it is
//! within its limit. A stall of tens of milliseconds occurs a few times in ten thousand wake-ups, so a count of
//! stalls, or a percentile or maximum that they determine, may be off by more without meaning. A permutation test
//! over the repetitions then gives the probability that chance makes such a difference.

use crate::conform::conformance::real_and_simulated;
use crate::observe::distribution::Distribution;
use crate::observe::metric;
use crate::observe::observation::{LATENCIES, Observation};
use crate::observe::stalls::{self, Stall};
use crate::recorded::record::Study;
use crate::statistics;

/// A longer stall comes from slices, a shorter one from the rate limit.
pub const LONG_NS: u64 = 5_000_000;
/// Largest error of a median, as a share of the real one.
const MEDIAN_LIMIT: f64 = 0.15;
/// Largest error of any other figure, as a share of the real one.
const LIMIT: f64 = 0.30;
/// A difference whose p-value is above this does not count against the simulator.
const CHANCE: f64 = 0.05;

/// The figures that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Median latency.
    Median,
    /// 99.9th percentile.
    P999,
    /// Longest latency.
    Longest,
    /// Latencies of more than 1 ms.
    Stalls,
    /// Latencies of more than [`LONG_NS`].
    LongStalls,
}

impl Quantity {
    const ALL: [Quantity; 5] =
        [Quantity::Median, Quantity::P999, Quantity::Longest, Quantity::Stalls, Quantity::LongStalls];

    /// Whether it is a number of stalls; otherwise it is a time in ns.
    pub fn is_count(self) -> bool {
        matches!(self, Quantity::Stalls | Quantity::LongStalls)
    }

    fn limit(self) -> f64 {
        if self == Quantity::Median { MEDIAN_LIMIT } else { LIMIT }
    }

    /// The figure over all repetitions together.
    fn of_all(self, all: &Distribution, runs: &[&Observation]) -> f64 {
        let quantile = |share| all.quantile_ns(share).unwrap_or(0) as f64;
        match self {
            Quantity::Median => quantile(0.5),
            Quantity::P999 => quantile(0.999),
            Quantity::Longest => all.max_ns as f64,
            Quantity::Stalls | Quantity::LongStalls => runs.iter().map(|run| self.of_one(run)).sum(),
        }
    }

    /// The figure of one repetition.
    fn of_one(self, run: &Observation) -> f64 {
        let metric = |id: &str| run.metrics.get(id).copied().unwrap_or(0.0);
        match self {
            Quantity::Median => metric(metric::LATENCY_P50),
            Quantity::P999 => metric(metric::LATENCY_P999),
            Quantity::Longest => metric(metric::LATENCY_MAX),
            Quantity::Stalls => metric(metric::LATE),
            Quantity::LongStalls => {
                run.distributions.get(LATENCIES).map_or(0, |all| all.count_above(LONG_NS)) as f64
            }
        }
    }
}

/// Whether a simulated figure is near the real one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nearness {
    /// Within its limit.
    Near,
    /// Not within its limit, but repetitions differ as much among themselves; with the test's p-value.
    Chance(f64),
    /// Neither.
    Off,
}

/// A figure on one ground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Of all repetitions together.
    pub value: f64,
    /// The smallest and the largest figure of a single repetition.
    pub range: (f64, f64),
}

/// One figure under one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the condition.
    pub condition: String,
    /// Latencies on each ground.
    pub counts: (u64, u64),
    /// What is compared.
    pub quantity: Quantity,
    /// In real Xen.
    pub real: Figure,
    /// Simulated.
    pub simulated: Figure,
    /// Whether the two are near.
    pub nearness: Nearness,
}

impl Row {
    /// Simulated less real over real; `None` when the real value is zero. Counts are taken relative to the latencies
    /// measured.
    pub fn error(&self) -> Option<f64> {
        let scale = match self.quantity.is_count() {
            true => self.counts.0 as f64 / self.counts.1.max(1) as f64,
            false => 1.0,
        };
        (self.real.value != 0.0).then(|| (self.simulated.value * scale - self.real.value) / self.real.value)
    }
}

/// A real stall beside a simulated one.
#[derive(Clone, Debug, PartialEq)]
pub struct StallPair {
    /// Name of the condition.
    pub condition: String,
    /// In real Xen.
    pub real: Stall,
    /// The simulated one whose length is nearest.
    pub simulated: Stall,
}

/// Simulated latencies against real ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyConformance {
    /// All figures of each condition that has runs on both grounds, in the order of the real study's conditions.
    pub rows: Vec<Row>,
    /// Real stalls with their events, each beside a simulated one.
    pub stalls: Vec<StallPair>,
}

impl LatencyConformance {
    /// Compares two studies, in either order; `None` unless exactly one of them was simulated and latencies were measured.
    pub fn between(first: &Study, second: &Study) -> Option<LatencyConformance> {
        let (real, simulated) = real_and_simulated(first, second)?;
        if !real.scenario.workload.is_latency() {
            return None;
        }
        let conditions: Vec<&String> = real.scenario.conditions.keys().collect();
        let rows = conditions.iter().flat_map(|condition| rows(condition, real, simulated)).collect();
        let stalls = conditions.iter().flat_map(|condition| pairs(condition, real, simulated)).collect();
        Some(LatencyConformance { rows, stalls })
    }

    /// How many figures are near, and how many there are.
    pub fn tally(&self) -> (usize, usize) {
        let near = self.rows.iter().filter(|row| row.nearness != Nearness::Off).count();
        (near, self.rows.len())
    }
}

/// All runs of one condition on one ground.
struct Side<'a> {
    runs: Vec<&'a Observation>,
    all: Distribution,
}

impl<'a> Side<'a> {
    /// `None` without latencies.
    fn of(study: &'a Study, condition: &'a str) -> Option<Side<'a>> {
        let runs: Vec<&Observation> = study.runs_of(condition).collect();
        let mut all = Distribution::default();
        runs.iter().filter_map(|run| run.distributions.get(LATENCIES)).for_each(|one| all.merge(one));
        (all.count() > 0).then_some(Side { runs, all })
    }

    fn each(&self, quantity: Quantity) -> Vec<f64> {
        self.runs.iter().map(|run| quantity.of_one(run)).collect()
    }

    fn figure(&self, quantity: Quantity) -> Figure {
        let each = self.each(quantity);
        let low = each.iter().copied().fold(f64::INFINITY, f64::min);
        let high = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Figure { value: quantity.of_all(&self.all, &self.runs), range: (low, high) }
    }
}

fn rows(condition: &str, real: &Study, simulated: &Study) -> Vec<Row> {
    let seed = real.scenario.run.seed;
    let (Some(real), Some(simulated)) = (Side::of(real, condition), Side::of(simulated, condition)) else {
        return Vec::new();
    };
    let row = |quantity: Quantity| {
        let mut row = Row {
            condition: condition.into(),
            counts: (real.all.count(), simulated.all.count()),
            quantity,
            real: real.figure(quantity),
            simulated: simulated.figure(quantity),
            nearness: Nearness::Near,
        };
        let both_zero = row.real.value == 0.0 && row.simulated.value == 0.0;
        if !both_zero && row.error().is_none_or(|error| error.abs() > quantity.limit()) {
            let mut rng = statistics::stream(seed, &format!("{condition}, {quantity:?}"));
            let p = statistics::permutation_p(&real.each(quantity), &simulated.each(quantity), &mut rng);
            row.nearness = p.filter(|p| *p >= CHANCE).map_or(Nearness::Off, Nearness::Chance);
        }
        row
    };
    Quantity::ALL.map(row).into()
}

fn pairs(condition: &str, real: &Study, simulated: &Study) -> Vec<StallPair> {
    let stalls_of = |study: &Study| -> Vec<Stall> {
        study.runs_of(condition).flat_map(|run| run.stalls.iter().cloned()).collect()
    };
    let simulated = stalls_of(simulated);
    let pair = |real: Stall| {
        let simulated = stalls::nearest(&real, &simulated)?.clone();
        Some(StallPair { condition: condition.into(), real, simulated })
    };
    stalls_of(real).into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::derive;
    use crate::observe::observation::Provenance;
    use crate::scenario::GroundKind;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        [host]
        scheduler = 'credit'
        [guest]
        vcpus = 1
        [workload]
        kind = 'wakeup'
        [conditions.a]
        [conditions.b]
        spinners = 1
    ";

    /// A study whose runs of condition b have these latencies, in us.
    fn study(ground: GroundKind, runs: &[&[u64]]) -> Study {
        let scenario = overrides::read(TEXT, Some(ground), &[]).unwrap();
        let run = |(repetition, us): (usize, &&[u64])| {
            let provenance = Provenance { ground: format!("{ground}, 0"), ..Provenance::default() };
            let mut out = Observation::new("b", repetition as u32, provenance);
            let mut all = Distribution::default();
            all.extend(us.iter().map(|us| us * 1_000));
            derive::latencies(&mut out, all);
            let late = us.iter().filter(|us| **us > 1_000).count();
            derive::put(&mut out, metric::LATE, late as f64);
            out
        };
        Study::new(scenario, runs.iter().enumerate().map(run).collect(), None)
    }

    fn row(real: &[&[u64]], simulated: &[&[u64]], quantity: Quantity) -> Row {
        let (real, simulated) = (study(GroundKind::Xen, real), study(GroundKind::Sim, simulated));
        let found = LatencyConformance::between(&simulated, &real).unwrap();
        assert_eq!(found.rows.len(), Quantity::ALL.len(), "b alone has runs");
        found.rows.into_iter().find(|row| row.quantity == quantity).unwrap()
    }

    #[test]
    fn figures_are_of_all_repetitions_together() {
        let [real, simulated]: [&[&[u64]]; 2] =
            [&[&[100, 200, 9_000], &[100, 100, 2_000]], &[&[110, 110, 9_900, 2_100, 100, 100]]];
        let stalls = row(real, simulated, Quantity::Stalls);
        assert_eq!((stalls.real.value, stalls.real.range), (2.0, (1.0, 1.0)));
        assert_eq!((stalls.error(), stalls.nearness), (Some(0.0), Nearness::Near));
        assert_eq!(row(real, simulated, Quantity::LongStalls).real.value, 1.0);
        assert!((row(real, simulated, Quantity::Longest).error().unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(row(real, simulated, Quantity::Median).nearness, Nearness::Near);
    }

    #[test]
    fn what_is_beyond_the_limit_is_chance_or_off() {
        let runs = |stalls: [usize; 8]| -> Vec<Vec<u64>> {
            stalls.map(|stalls| [vec![100; 50 - stalls], vec![2_000; stalls]].concat()).to_vec()
        };
        let nearness = |real: [usize; 8], simulated: [usize; 8]| {
            let (real, simulated) = (runs(real), runs(simulated));
            let [real, simulated] =
                [&real, &simulated].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            row(&real, &simulated, Quantity::Stalls).nearness
        };
        assert_eq!(nearness([9, 10, 11, 10, 10, 10, 9, 11], [12; 8]), Nearness::Near);
        assert_eq!(nearness([9, 10, 11, 10, 10, 10, 9, 11], [20; 8]), Nearness::Off);
        let chance = nearness([0, 0, 0, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(matches!(chance, Nearness::Chance(p) if p > 0.5), "{chance:?}");
        assert_eq!(nearness([0; 8], [0; 8]), Nearness::Near);
        assert_eq!(nearness([0; 8], [3; 8]), Nearness::Off);
    }

    #[test]
    fn counts_are_relative_to_the_latencies_measured() {
        let long = [vec![100; 98], vec![2_000; 2]].concat();
        let stalls = row(&[&[&long[..], &long[..]].concat()], &[&long], Quantity::Stalls);
        assert_eq!((stalls.real.value, stalls.simulated.value, stalls.error()), (4.0, 2.0, Some(0.0)));
    }

    #[test]
    fn a_stall_stands_beside_the_nearest_simulated_one() {
        let [mut real, mut simulated] =
            [GroundKind::Xen, GroundKind::Sim].map(|ground| study(ground, &[&[100], &[100]]));
        let stall = |length_ns| Stall { length_ns, why: String::new(), events: Vec::new() };
        real.observations[1].stalls = vec![stall(60)];
        simulated.observations[0].stalls = vec![stall(20), stall(50)];
        let found = LatencyConformance::between(&real, &simulated).unwrap().stalls;
        assert_eq!((found.len(), found[0].simulated.length_ns), (1, 50));
    }
}
