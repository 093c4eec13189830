//! The incidents in a record: stretches of time in which something was alarming, each with its verdict.

use reprieve_hindsight::{Record, Stretch, day};
use reprieve_policy::canary::{self, CLOSE_NS};
use reprieve_policy::explain::{self, Evidence};
use reprieve_policy::sample::Sample;
use reprieve_study::{shown, units};
use serde_json::{Value, json};

use super::super::words;
use super::window::is_close_look;

/// Most incidents.
const MOST: usize = 10_000;
/// Most thresholds that are named with an incident.
const MOST_CROSSED: usize = 16;
/// A shorter incident is noise, unless a verdict names it: alarming samples.
const FEWEST: usize = 2;

/// Something was wrong.
#[derive(Debug)]
pub struct Incident {
    from_day_ns: u64,
    span_ns: u64,
    /// The most costly cause, in words.
    answer: Option<String>,
    /// The same for machines.
    finding: Option<Value>,
    /// Thresholds that were crossed.
    crossed: Vec<String>,
}

impl Incident {
    /// A line of text.
    pub fn words(&self) -> String {
        let cause = self.answer.as_deref().unwrap_or("no cause found");
        let crossed = self.crossed.iter().map(|crossed| format!("; {}", shown::line(crossed)));
        let crossed: String = crossed.collect();
        format!(
            "{}, for {}: {cause}{crossed}",
            day::text(self.from_day_ns),
            units::duration(self.span_ns as f64)
        )
    }

    /// For machines.
    pub fn json(&self) -> Value {
        json!({
            "from": day::text(self.from_day_ns),
            "span_ns": self.span_ns,
            "finding": self.finding,
            "crossed": self.crossed,
        })
    }
}

/// The incidents, in the order of time.
pub fn of(record: &Record) -> Vec<Incident> {
    record.stretches.iter().flat_map(in_stretch).take(MOST).collect()
}

/// Alarming samples with no more than ten quiet seconds between two of them are one incident.
fn in_stretch(stretch: &Stretch) -> impl Iterator<Item = Incident> {
    let samples = &stretch.samples;
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (at, sample) in samples.iter().enumerate().filter(|(_, sample)| canary::is_alarming(sample)) {
        match found.last_mut() {
            Some((_, last, count)) if sample.at_ns.saturating_sub(samples[*last].at_ns) <= CLOSE_NS => {
                (*last, *count) = (at, *count + 1);
            }
            _ => found.push((at, at, 1)),
        }
    }
    found.into_iter().filter_map(move |(first, last, count)| {
        let incident = incident(stretch, &samples[first..=last]);
        let is_one = count >= FEWEST || incident.finding.is_some() || !incident.crossed.is_empty();
        is_one.then_some(incident)
    })
}

fn incident(stretch: &Stretch, samples: &[Sample]) -> Incident {
    let close: Vec<&Sample> = samples.iter().filter(|sample| is_close_look(sample)).collect();
    // With one rate of beats.
    let seen = if close.is_empty() { Evidence::of(samples) } else { Evidence::of(close) };
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    let from_ns = first.at_ns.saturating_sub(first.span_ns);
    let is_in = |at_ns: u64| (from_ns..=last.at_ns.saturating_add(CLOSE_NS)).contains(&at_ns);
    let crossed = stretch.triggers.iter().filter(|trigger| is_in(trigger.at_ns)).take(MOST_CROSSED);
    let verdict = explain::judge(&seen);
    let finding = verdict.findings.first();
    Incident {
        from_day_ns: first.day_ns.saturating_sub(first.span_ns),
        span_ns: last.at_ns.saturating_sub(from_ns),
        answer: finding.map(|finding| words::answer(finding, &seen)),
        finding: finding.map(|finding| words::finding_json(finding, &seen)),
        crossed: crossed.map(|trigger| format!("{} ({})", trigger.threshold, trigger.value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_hindsight::line::Trigger;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn alarming_samples_that_are_near_each_other_are_one_incident() {
        let sample = |at: u64| Sample {
            at_ns: (at + 1) * SECOND_NS,
            span_ns: SECOND_NS,
            beat_ns: 1_000_000,
            memory_wait_ns: Some(if [10, 11, 18, 40, 60].contains(&at) { SECOND_NS / 2 } else { 0 }),
            open_grace_period_ns: if at == 80 { SECOND_NS } else { 0 },
            ..Sample::default()
        };
        let trigger =
            Trigger { at_ns: 42 * SECOND_NS, threshold: "memory_wait>1%".into(), value: "5 %".into() };
        let samples = (0..100).map(sample).collect();
        let stretch = Stretch { samples, triggers: vec![trigger], ..Stretch::default() };
        let found = of(&Record { stretches: vec![stretch], ..Record::default() });
        let told: Vec<(u64, usize)> =
            found.iter().map(|incident| (incident.span_ns / SECOND_NS, incident.crossed.len())).collect();
        // The last one is a long grace period.
        assert_eq!(told, [(9, 0), (1, 1), (1, 0), (1, 0)]);
        assert_eq!(found[0].finding.as_ref().unwrap()["cause"], "own-memory");
        assert_eq!(found[3].finding.as_ref().unwrap()["cause"], "long-reader");
        assert!(found[1].words().ends_with("; memory_wait>1% (5 %)"), "{}", found[1].words());
    }
}
