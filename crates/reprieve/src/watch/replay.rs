//! A hindsight record as seconds that can be looked at. A second is judged when it is looked at: to judge all of a long record at
//! once takes minutes.

use std::path::Path;

use reprieve_hindsight::{ReadError, day, read};
use reprieve_policy::SECOND_NS;
use reprieve_policy::canary::CLOSE_NS;
use reprieve_policy::explain::Recent;
use reprieve_policy::sample::Sample;

use super::model::{Model, Source, VERDICT_S};
use super::moment::Moment;
use super::verdict::{self, Told};
use crate::failure::Failure;

/// A verdict rests on the samples of this time, ns: those that are kept, and those that decide how closely to look at their
/// beginning.
const RESTS_ON_NS: u64 = 2 * CLOSE_NS + 5 * SECOND_NS;

/// A record.
pub struct Replay {
    /// Its samples. A stretch begins where time goes back, or is missing.
    samples: Vec<Sample>,
    /// For each sample, the first one of its stretch.
    begins: Vec<usize>,
}

impl Replay {
    /// Reads a record. Returns it with its screen, at its end or at this time of the day.
    ///
    /// # Errors
    /// It cannot be read, is empty, or has nothing at that time.
    pub fn open(path: &Path, at_day_ns: Option<u64>) -> Result<(Replay, Model), Failure> {
        let record = read(path).map_err(|error: ReadError| Failure::Usage(error.to_string()))?;
        crate::explain::replay::say_damage(path, &record);
        let host = record.stretches.last().map_or(String::new(), |stretch| stretch.header.host.clone());
        let mut model = Model::new(Source::Record(host));
        let mut replay = Replay { samples: Vec::new(), begins: Vec::new() };
        for stretch in record.stretches {
            let begin = replay.samples.len();
            for sample in stretch.samples {
                let moment = Moment::of(&sample, model.newest());
                model.push(moment);
                replay.samples.push(sample);
                replay.begins.push(begin);
            }
        }
        let (Some(first), Some(last)) = (replay.samples.first(), replay.samples.last()) else {
            return Err(Failure::Usage(format!("{}: it has no sample that can be read", path.display())));
        };
        let ends = (first.day_ns, last.day_ns);
        if let Some(day_ns) = at_day_ns.filter(|day_ns| !model.seek(*day_ns)) {
            return Err(Failure::Usage(format!(
                "{}: nothing is recorded at {}; it has {} to {}",
                path.display(),
                day::text(day_ns),
                day::text(ends.0),
                day::text(ends.1)
            )));
        }
        Ok((replay, model))
    }

    /// The samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Judges what the screen needs: the second that is looked at, and those in which its verdict may come.
    pub fn judge(&self, model: &mut Model) {
        let at = model.at();
        for at in at..(at + VERDICT_S + 1).min(self.samples.len()) {
            if model.moments()[at].told.is_none() {
                model.tell(at, self.told(at));
            }
        }
    }

    /// What would have been said live.
    pub fn told(&self, at: usize) -> Told {
        let from_ns = self.samples[at].at_ns.saturating_sub(RESTS_ON_NS);
        let of_stretch = &self.samples[self.begins[at]..=at];
        let first = of_stretch.partition_point(|sample| sample.at_ns < from_ns);
        let mut recent = Recent::default();
        of_stretch[first..].iter().for_each(|sample| recent.push_with(|into| into.clone_from(sample)));
        verdict::told(&recent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{live, quiet, quota};
    use super::*;

    #[test]
    fn a_second_is_judged_as_it_would_have_been_live() {
        let samples: Vec<Sample> = (1..=30)
            .map(quiet)
            .chain((31..=60).map(|at| quota(at, at > 31)))
            .chain((61..=100).map(quiet))
            .collect();
        let live = live(samples.iter().cloned());
        let replay = Replay { begins: vec![0; samples.len()], samples };
        for (at, moment) in live.moments().iter().enumerate() {
            assert_eq!(Some(&replay.told(at)), moment.told.as_ref(), "second {at}");
        }
    }

    #[test]
    fn stretches_are_judged_apart() {
        let samples: Vec<Sample> = (1..=8).map(|at| quota(at, true)).collect();
        let replay = Replay { begins: vec![0, 0, 0, 0, 0, 5, 5, 5], samples };
        assert_eq!((replay.told(4).kind.name(), replay.told(7).kind.name()), ("known", "looking"));
    }
}
