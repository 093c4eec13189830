//! Which seconds of a record to judge.

use reprieve_hindsight::{Record, Stretch};
use reprieve_policy::SECOND_NS;
use reprieve_policy::canary::{self, CLOSE_BEAT_NS};
use reprieve_policy::explain::ENOUGH_NS;
use reprieve_policy::sample::Sample;

/// The length of a window, ns.
const WINDOW_NS: u64 = 10 * SECOND_NS;
/// A wait of any task counts as a tenth of a vCPU's time off: one of many tasks is enough for it.
const TASK_WAIT_PART: u64 = 10;

/// How a window was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Most time was lost in it.
    Worst,
    /// A time of the day.
    Around,
    /// The end of the record.
    Last,
}

impl Choice {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Worst => "worst",
            Choice::Around => "around",
            Choice::Last => "last",
        }
    }
}

/// Some samples of a stretch, one after another; at least one.
#[derive(Debug)]
pub struct Window<'a> {
    /// The stretch.
    pub stretch: &'a Stretch,
    /// The first sample.
    pub first: usize,
    /// The sample after the last.
    pub end: usize,
    /// How it was chosen.
    pub choice: Choice,
}

impl<'a> Window<'a> {
    fn samples(&self) -> &'a [Sample] {
        &self.stretch.samples[self.first..self.end]
    }

    /// The samples to judge: those with close looks, if they are enough for a verdict; else all.
    pub fn judged(&self) -> impl Iterator<Item = &'a Sample> {
        let is_close = self.is_close();
        self.samples().iter().filter(move |sample| !is_close || is_close_look(sample))
    }

    /// Whether there are close looks enough for a verdict.
    pub fn is_close(&self) -> bool {
        let close = self.samples().iter().filter(|sample| is_close_look(sample));
        close.fold(0, |sum: u64, sample| sum.saturating_add(sample.span_ns)) >= ENOUGH_NS
    }

    /// Its length, ns.
    pub fn span_ns(&self) -> u64 {
        self.samples().iter().fold(0, |sum, sample| sum.saturating_add(sample.span_ns))
    }

    /// Its beginning by the clock of the day, ns.
    pub fn begin_day_ns(&self) -> u64 {
        self.samples().first().map_or(0, |sample| sample.day_ns.saturating_sub(sample.span_ns))
    }

    /// Its end by the clock of the day, ns.
    pub fn end_day_ns(&self) -> u64 {
        self.samples().last().map_or(0, |sample| sample.day_ns)
    }
}

/// Whether a sample shows single times off.
pub fn is_close_look(sample: &Sample) -> bool {
    sample.beat_ns <= CLOSE_BEAT_NS
}

/// What a sample's time cost, ns: that of the vCPU that lost most, or of tasks that waited.
pub fn cost_ns(sample: &Sample) -> u64 {
    let vcpu =
        |vcpu| canary::off_ns(sample, vcpu).saturating_add(vcpu.kept_ns).max(vcpu.steal_ns.unwrap_or(0));
    let host_ns = sample.vcpus.iter().map(vcpu).max().unwrap_or(0);
    let own = [sample.throttled_ns, sample.memory_wait_ns, sample.kthread_wait_ns];
    let own_ns = own.into_iter().flatten().max().unwrap_or(0);
    let tasks_ns = sample.cpu_wait_ns.unwrap_or(0) / TASK_WAIT_PART;
    let longest_ns =
        sample.grace_periods_ns.iter().copied().max().unwrap_or(0).max(sample.open_grace_period_ns);
    // An alarming sample counts more than any that is not.
    let alarming_ns = if canary::is_alarming(sample) { SECOND_NS } else { 0 };
    let lost_ns =
        host_ns.max(own_ns).max(sample.stepped_ns.unsigned_abs().min(SECOND_NS)).max(sample.suspended_ns);
    lost_ns.saturating_add(tasks_ns).saturating_add(longest_ns / TASK_WAIT_PART).saturating_add(alarming_ns)
}

/// The ten seconds that cost most; the latest of several that cost as much.
pub fn worst(record: &Record) -> Option<Window<'_>> {
    let mut worst: Option<(u128, Window<'_>)> = None;
    for stretch in &record.stretches {
        let (mut first, mut cost, mut span_ns) = (0, 0u128, 0u64);
        for (at, sample) in stretch.samples.iter().enumerate() {
            cost += u128::from(cost_ns(sample));
            span_ns = span_ns.saturating_add(sample.span_ns);
            while first < at
                && (span_ns > WINDOW_NS || begin_ns(&stretch.samples[first]) + WINDOW_NS < begin_ns(sample))
            {
                cost -= u128::from(cost_ns(&stretch.samples[first]));
                span_ns = span_ns.saturating_sub(stretch.samples[first].span_ns);
                first += 1;
            }
            if worst.as_ref().is_none_or(|(most, _)| cost >= *most) {
                worst = Some((cost, Window { stretch, first, end: at + 1, choice: Choice::Worst }));
            }
        }
    }
    worst.map(|(_, window)| window)
}

fn begin_ns(sample: &Sample) -> u64 {
    sample.at_ns.saturating_sub(sample.span_ns)
}

/// The last so much time of the record.
pub fn last(record: &Record, span_ns: u64) -> Option<Window<'_>> {
    let stretch = record.stretches.last()?;
    let last_ns = stretch.samples.last()?.at_ns;
    let is_before = |sample: &Sample| begin_ns(sample) < last_ns.saturating_sub(span_ns);
    // The very last sample counts in any case.
    let first = stretch.samples.iter().position(|sample| !is_before(sample));
    let end = stretch.samples.len();
    Some(Window { stretch, first: first.unwrap_or(end - 1), end, choice: Choice::Last })
}

/// The ten seconds around a time of the day; `None` if nothing is recorded there.
pub fn around(record: &Record, day_ns: u64) -> Option<Window<'_>> {
    let (from_ns, to_ns) = (day_ns.saturating_sub(WINDOW_NS / 2), day_ns.saturating_add(WINDOW_NS / 2));
    let is_in =
        |sample: &Sample| sample.day_ns > from_ns && sample.day_ns.saturating_sub(sample.span_ns) < to_ns;
    record.stretches.iter().find_map(|stretch| {
        let first = stretch.samples.iter().position(is_in)?;
        let count = stretch.samples[first..].iter().take_while(|sample| is_in(sample)).count();
        Some(Window { stretch, first, end: first + count, choice: Choice::Around })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(waits_ms: &[u64]) -> Record {
        let sample = |(at, wait_ms): (usize, &u64)| Sample {
            at_ns: (at as u64 + 1) * SECOND_NS,
            day_ns: (at as u64 + 1001) * SECOND_NS,
            span_ns: SECOND_NS,
            beat_ns: if *wait_ms > 0 { 1_000_000 } else { 50_000_000 },
            memory_wait_ns: Some(wait_ms * 1_000_000),
            ..Sample::default()
        };
        let samples = waits_ms.iter().enumerate().map(sample).collect();
        Record { stretches: vec![Stretch { samples, ..Stretch::default() }], ..Record::default() }
    }

    #[test]
    fn the_worst_ten_seconds_are_found() {
        let mut waits_ms = vec![0; 60];
        waits_ms[20..24].fill(300);
        waits_ms[40..48].fill(200);
        let record = record(&waits_ms);
        let window = worst(&record).unwrap();
        assert_eq!((window.first, window.end, window.span_ns()), (40, 50, WINDOW_NS));
        assert!(window.is_close() && window.judged().count() == 8);
        assert_eq!(window.begin_day_ns(), 1040 * SECOND_NS);
    }

    #[test]
    fn a_quiet_record_is_judged_by_its_end() {
        let record = record(&[0; 30]);
        let window = worst(&record).unwrap();
        assert_eq!(
            (window.first, window.end, window.is_close(), window.judged().count()),
            (20, 30, false, 10)
        );
        assert!(worst(&Record::default()).is_none());
    }

    #[test]
    fn a_time_and_the_end_are_found() {
        let record = record(&[0; 30]);
        let at = around(&record, 1010 * SECOND_NS).unwrap();
        assert_eq!((at.first, at.end), (5, 15));
        assert!(around(&record, 2000 * SECOND_NS).is_none());
        let end = last(&record, 3 * SECOND_NS).unwrap();
        assert_eq!((end.first, end.end), (27, 30));
        assert_eq!(last(&record, 1).unwrap().span_ns(), SECOND_NS);
    }

    #[test]
    fn time_that_is_missing_does_not_count() {
        let mut record = record(&[100; 30]);
        for sample in &mut record.stretches[0].samples[15..] {
            sample.at_ns += 3600 * SECOND_NS;
        }
        let window = worst(&record).unwrap();
        assert_eq!((window.first, window.end), (20, 30));
    }
}
