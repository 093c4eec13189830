//! Derives an observation's metrics from the events of a run: one definition for all grounds.

use crate::observe::distribution::Distribution;
use crate::observe::grace_period::{GracePeriod, ReaderPreemptions, Span};
use crate::observe::metric;
use crate::observe::observation::{self, Observation};
use crate::observe::timeline::{Events, Timeline, Trace, Track};

/// Sets a metric. Its identifier must be one of [`metric::ALL`].
pub fn put(out: &mut Observation, metric: &str, value: f64) {
    debug_assert!(metric::find(metric).is_some(), "{metric}");
    out.metrics.insert(metric.into(), value);
}

/// Share of CPU given and achieved overcommit, from the vCPUs' times in the provenance.
pub fn cpu_given(out: &mut Observation) {
    let vcpus = &out.provenance.vcpus;
    let run_ns: u64 = vcpus.iter().map(|vcpu| vcpu.run_ns).sum();
    let whole_ns = out.provenance.window_ns * vcpus.len() as u64;
    // A vCPU that never ran has no ratio, and then there is no worst one.
    let ratios: Option<Vec<f64>> = vcpus.iter().map(|vcpu| vcpu.overcommit()).collect();
    if whole_ns > 0 {
        put(out, metric::CPU_SHARE, run_ns as f64 / whole_ns as f64);
    }
    if let Some(worst) = ratios.and_then(|ratios| ratios.into_iter().reduce(f64::max)) {
        put(out, metric::OVERCOMMIT, worst);
    }
}

/// Latencies of `synchronize_rcu()`, if there are any.
pub fn sync_latencies(out: &mut Observation, latencies_ns: &[u64]) {
    let mut latencies = Distribution::default();
    latencies.extend(latencies_ns.iter().copied());
    if let Some(mean) = latencies.mean_ns() {
        put(out, metric::SYNC_MEAN, mean);
        put(out, metric::SYNC_MAX, latencies.max_ns as f64);
        out.distributions.insert(observation::SYNC_LATENCIES.into(), latencies);
    }
}

/// Latencies of wake-ups or requests, if there are any.
pub fn latencies(out: &mut Observation, latencies: Distribution) {
    put(out, metric::LATENCY_COUNT, latencies.count() as f64);
    let Some(mean) = latencies.mean_ns() else { return };
    put(out, metric::LATENCY_MEAN, mean);
    for (id, quantile) in [
        (metric::LATENCY_P50, 0.5),
        (metric::LATENCY_P90, 0.9),
        (metric::LATENCY_P99, 0.99),
        (metric::LATENCY_P999, 0.999),
        (metric::LATENCY_P9999, 0.9999),
    ] {
        put(out, id, latencies.quantile_ns(quantile).unwrap_or(0) as f64);
    }
    put(out, metric::LATENCY_MAX, latencies.max_ns as f64);
    out.distributions.insert(observation::LATENCIES.into(), latencies);
}

/// The grace periods of a window.
pub struct GracePeriods<'a> {
    /// The grace periods that ended in the window, in order.
    pub ended: &'a [GracePeriod],
    /// Number of grace periods that began and ended between two samples.
    pub missed: u64,
    /// Age of the grace period that is open at the window's end.
    pub open_ns: Option<u64>,
    /// For each vCPU, when it was preempted or throttled.
    pub descheduled: &'a [Vec<Span>],
    /// When the window began.
    pub start_ns: u64,
}

impl GracePeriods<'_> {
    /// Durations, counts and the reader preemptions in them.
    pub fn observe(&self, out: &mut Observation) {
        let mut durations = Distribution::default();
        durations.extend(self.ended.iter().map(|gp| gp.span.length_ns()));
        put(out, metric::GP_COUNT, durations.count().saturating_add(self.missed) as f64);
        if let (Some(mean), Some(p50), Some(p99)) =
            (durations.mean_ns(), durations.quantile_ns(0.5), durations.quantile_ns(0.99))
        {
            put(out, metric::GP_MEAN, mean);
            put(out, metric::GP_P50, p50 as f64);
            put(out, metric::GP_P99, p99 as f64);
            // A grace period that has not ended lasts at least as long as its age.
            put(out, metric::GP_MAX, durations.max_ns.max(self.open_ns.unwrap_or(0)) as f64);
        }
        let preemptions = ReaderPreemptions::count(self.ended, self.descheduled);
        put(out, metric::READER_PREEMPTIONS, preemptions.any as f64);
        put(out, metric::READER_PREEMPTIONS_LAST, preemptions.last as f64);
        put(out, metric::READER_HELD, preemptions.held_ns as f64);
        let mut over_time = Timeline::default();
        for gp in self.ended {
            let t_ns = gp.span.end_ns.saturating_sub(self.start_ns);
            over_time.push(t_ns, gp.span.length_ns() as f64);
        }
        out.distributions.insert(observation::GP_DURATIONS.into(), durations);
        out.timelines.insert(observation::GP_OVER_TIME.into(), over_time);
    }
}

/// Keys of the timelines of a guest's memory, with the metrics that are made from each: its peak, and its mean if
/// that is one.
pub const MEMORY_SERIES: [(&str, &str, Option<&str>); 4] = [
    (observation::FOOTPRINT, metric::FOOTPRINT_PEAK, Some(metric::FOOTPRINT_MEAN)),
    (observation::UNUSABLE, metric::UNUSABLE_PEAK, Some(metric::UNUSABLE_MEAN)),
    (observation::BACKLOG, metric::BACKLOG_PEAK, Some(metric::BACKLOG_MEAN)),
    ("slab_bytes", metric::SLAB_PEAK, None),
];

/// A guest's memory over time, in the order of [`MEMORY_SERIES`]. Nothing if there are no samples.
pub fn memory(out: &mut Observation, series: [Timeline; 4]) {
    for ((name, peak, mean), series) in MEMORY_SERIES.into_iter().zip(series) {
        let Some(largest) = series.values.iter().copied().reduce(f64::max) else { continue };
        put(out, peak, largest);
        if let Some(mean) = mean {
            put(out, mean, series.values.iter().sum::<f64>() / series.values.len() as f64);
        }
        out.timelines.insert(name.into(), series);
    }
}

/// Descheduled spans that are no shorter than the time between two samples. A real guest's masks are not known more
/// finely, and shorter spans are only brief visits of other threads.
pub fn long_enough(descheduled: &[Vec<Span>], look_ns: u64) -> Vec<Vec<Span>> {
    let long = |spans: &Vec<Span>| spans.iter().copied().filter(|span| span.length_ns() >= look_ns).collect();
    descheduled.iter().map(long).collect()
}

/// How long vCPUs were kept from running at a time, and how long they ran undisturbed in between, however short.
pub fn descheduling(out: &mut Observation, descheduled: &[Vec<Span>]) {
    let (mut off, mut undisturbed) = (Distribution::default(), Distribution::default());
    for spans in descheduled {
        off.extend(spans.iter().map(|span| span.length_ns()));
        undisturbed.extend(spans.windows(2).map(|pair| pair[1].start_ns.saturating_sub(pair[0].end_ns)));
    }
    out.distributions.insert(observation::VCPU_OFF.into(), off);
    out.distributions.insert(observation::VCPU_UNDISTURBED.into(), undisturbed);
}

/// The events that a run's trace is made from.
pub struct TraceOf<'a> {
    /// When the window began.
    pub start_ns: u64,
    /// The grace periods, in order.
    pub grace_periods: &'a [GracePeriod],
    /// For each vCPU, when it was preempted or throttled.
    pub descheduled: &'a [Vec<Span>],
    /// For each vCPU, when it was on a pCPU; empty where that is not known.
    pub running: &'a [Vec<Span>],
}

impl TraceOf<'_> {
    /// The tracks: the vCPUs, the grace periods, their holdouts, and two counters taken from the observation.
    pub fn trace(&self, out: &Observation) -> Trace {
        let mut tracks: Vec<Track> = (0..self.descheduled.len()).map(|vcpu| self.vcpu(vcpu)).collect();
        let all = self.grace_periods.iter().map(|gp| (gp.span, format!("GP {}", gp.sequence)));
        tracks.push(self.slices("grace periods".into(), all.collect()));
        for vcpu in 0..self.descheduled.len() {
            let held = self
                .grace_periods
                .iter()
                .filter_map(|gp| Some((gp.holdout(vcpu)?, format!("holds GP {}", gp.sequence))));
            tracks.push(self.slices(format!("holdout vCPU {vcpu}"), held.collect()));
        }
        for (name, key) in
            [("callback backlog", observation::BACKLOG), ("footprint, bytes", observation::FOOTPRINT)]
        {
            if let Some(timeline) = out.timelines.get(key) {
                tracks.push(Track { name: name.into(), events: Events::Counter(timeline.clone()) });
            }
        }
        Trace { tracks }
    }

    fn vcpu(&self, vcpu: usize) -> Track {
        let named = |spans: &[Span], name: &str| -> Vec<(Span, String)> {
            spans.iter().map(|span| (*span, name.to_string())).collect()
        };
        let mut labelled = named(&self.descheduled[vcpu], "descheduled");
        if let Some(running) = self.running.get(vcpu) {
            labelled.extend(named(running, "running"));
        }
        self.slices(format!("vCPU {vcpu}"), labelled)
    }

    fn slices(&self, name: String, mut labelled: Vec<(Span, String)>) -> Track {
        let since = |t_ns: u64| t_ns.saturating_sub(self.start_ns);
        for (span, _) in &mut labelled {
            *span = Span::new(since(span.start_ns), since(span.end_ns));
        }
        labelled.sort_by_key(|(span, _)| span.start_ns);
        Track { name, events: Events::Slices(labelled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::Provenance;

    #[test]
    fn times_off_are_those_of_all_vcpus_and_times_undisturbed_lie_between_two() {
        let mut out = Observation::new("c", 0, Provenance::default());
        let span = |from_us: u64, to_us: u64| Span::new(from_us * 1000, to_us * 1000);
        descheduling(&mut out, &[vec![span(0, 10), span(50, 70), span(75, 80)], vec![span(30, 60)], vec![]]);
        let of = |key: &str| (out.distributions[key].count(), out.distributions[key].max_ns);
        assert_eq!(
            (of(observation::VCPU_OFF), of(observation::VCPU_UNDISTURBED)),
            ((4, 30_000), (2, 40_000))
        );
        let mut none = Observation::new("c", 0, Provenance::default());
        descheduling(&mut none, &[vec![], vec![]]);
        assert_eq!(none.distributions[observation::VCPU_OFF].count(), 0, "it is known that there were none");
    }
}
