//! Compares simulated runs that replay a recording with the recorded run. vCPUs are off at the same times in both, so
//! the host's scheduling explains no difference.

use crate::observe::metric;
use crate::observe::observation::{Observation, Replayed};
use crate::recorded::record::Study;
use crate::statistics;

/// The metrics that are compared.
const METRICS: [&str; 8] = [
    metric::GP_MEAN,
    metric::GP_P50,
    metric::GP_P99,
    metric::GP_MAX,
    metric::READER_HELD,
    metric::BACKLOG_PEAK,
    metric::FOOTPRINT_PEAK,
    metric::THROUGHPUT,
];

/// One replayed recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The condition that replays it, with the case if there are some.
    pub title: String,
    /// What had been recorded, where, and how.
    pub source: String,
    /// One figure for each metric that both have.
    pub figures: Vec<Figure>,
}

/// A metric in the recorded run and in its replays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Which metric.
    pub metric: &'static str,
    /// The value of the recorded run.
    pub recorded: f64,
    /// Median of the replays.
    pub replayed: f64,
}

impl Figure {
    /// Natural logarithm of replayed over recorded; `None` unless both are positive.
    pub fn error(&self) -> Option<f64> {
        statistics::log_ratio(self.replayed, self.recorded)
    }
}

/// The replays of a study, in the order in which they were first run. A recording without metrics has no figures.
pub fn of(study: &Study) -> Vec<Replay> {
    let mut titles: Vec<String> = Vec::new();
    let counts = |run: &&Observation| run.replayed.is_some() && run.standing.counts();
    for run in study.observations.iter().filter(counts) {
        if !titles.contains(&run.title()) {
            titles.push(run.title());
        }
    }
    let replay = |title: &String| {
        let same = |run: &&Observation| counts(run) && run.title() == *title;
        let runs: Vec<&Observation> = study.observations.iter().filter(same).collect();
        let Replayed { source, metrics } = runs.first()?.replayed.as_ref()?;
        let figure = |metric: &'static str| {
            let values: Vec<f64> = runs.iter().filter_map(|run| run.value(metric)).collect();
            let (recorded, replayed) = (*metrics.get(metric)?, statistics::median(&values)?);
            Some(Figure { metric, recorded, replayed })
        };
        let figures = METRICS.into_iter().filter_map(figure).collect();
        Some(Replay { title: title.clone(), source: source.clone(), figures })
    };
    titles.iter().filter_map(replay).collect()
}

/// The largest error of a metric over all replays, as a factor of at least 1; `None` if none has one.
pub fn worst(replays: &[Replay], metric: &str) -> Option<f64> {
    let figures = replays.iter().flat_map(|replay| &replay.figures).filter(|figure| figure.metric == metric);
    figures.filter_map(|figure| Some(figure.error()?.abs().exp())).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::Provenance;
    use crate::scenario::overrides;

    #[test]
    fn a_replay_is_held_against_its_recording() {
        let text = "name = 't'\ntitle = 't'\n[workload]\nkind = 'memory'\n[conditions.baseline]\n[conditions.r]\nreplay = 'f'";
        let scenario = overrides::read(text, None, &[]).unwrap();
        let run = |repetition, gp_ns: f64| {
            let mut out = Observation::new("r", repetition, Provenance::default());
            out.metrics.insert(metric::GP_MEAN.into(), gp_ns);
            out.metrics.insert(metric::GP_P99.into(), 7.0);
            let metrics = [(metric::GP_MEAN.to_string(), 4e6)].into();
            out.replayed = Some(Replayed { source: "s".into(), metrics });
            out
        };
        let study = Study::new(scenario, vec![run(0, 2e6), run(1, 2e6), run(2, 9e6)], None);
        let found = of(&study);
        assert_eq!((found.len(), found[0].title.as_str(), found[0].source.as_str()), (1, "r", "s"));
        let figure = Figure { metric: metric::GP_MEAN, recorded: 4e6, replayed: 2e6 };
        assert_eq!(found[0].figures, [figure], "of what both have");
        assert!((worst(&found, metric::GP_MEAN).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(worst(&found, metric::GP_P99), None);
    }
}
