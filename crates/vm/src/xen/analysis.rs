//! From what one run left (a domU's samples, xentrace's records) to its observation. Pure: everything is handed in.

use std::collections::BTreeMap;

use reprieve_study::derive::{self, put};
use reprieve_study::observation::VcpuTime;
use reprieve_study::timeline::{Events, Track};
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Distribution, Observation, Provenance, Span, Trace, metric, stalls, units};

use super::report::{Report, Sample};
use super::trace::{Records, VcpuId, VcpuSpans, causes, decisions, intervals};

/// A wake-up later than this is a stall, as the metric's definition says.
const STALL_NS: u64 = MILLISECOND_NS;
/// Events that a trace shows at most on one track; it is for looking at.
const EVENTS_MAX: usize = 100_000;

/// What one run left: a segment of a boot. The VMs beside the guest are domains 1 to `spinners`, the guest is the next; there are
/// `records` if the scheduler's events were recorded.
#[allow(missing_docs, reason = "the text above and the names say what the fields are")]
pub struct RunLeft<'a> {
    pub condition: &'a str,
    pub repetition: u32,
    pub spinners: u32,
    pub report: Report,
    pub records: Option<&'a Records>,
    pub provenance: Provenance,
}

/// The observation of a run.
pub fn observe(left: RunLeft) -> Observation {
    let provenance = Provenance { window_ns: left.report.window_ns(), ..left.provenance };
    let mut out = Observation::new(left.condition, left.repetition, provenance);
    latencies(&mut out, &left.report);
    let stalls = late(&left.report.samples);
    let mut tracks = Vec::new();
    if let Some(records) = left.records {
        let seen = Seen::of(records, &left.report);
        scheduling(&mut out, &seen, left.spinners);
        if records.lost > 0 {
            out.provenance.notes.push(format!("{} scheduling events were lost", records.lost));
        }
        tracks = seen.tracks(left.spinners);
        let ns = |tsc: u64| left.report.is_within(tsc).then(|| left.report.ns(tsc));
        out.stalls = stalls::select(
            &unexplained(&stalls),
            &causes::decisions(&records.events, ns, guest(left.spinners)),
        );
    }
    let stalls = Track { name: "stalls".into(), events: Events::Slices(stalls) };
    tracks.insert(tracks.len().min(1), stalls);
    out.trace = Some(Trace { tracks });
    out
}

fn latencies(out: &mut Observation, report: &Report) {
    let mut all = Distribution::default();
    all.extend(report.samples.iter().map(|sample| sample.late_ns));
    derive::latencies(out, all);
    let late = report.samples.iter().filter(|sample| sample.late_ns > STALL_NS).count();
    put(out, metric::LATE, late as f64);
    if report.window_ns() > 0 {
        let per_s = report.samples.len() as f64 * SECOND_NS as f64 / report.window_ns() as f64;
        put(out, metric::THROUGHPUT, per_s);
    }
}

/// From the time asked for to the wake-up, of those that were late.
fn late(samples: &[Sample]) -> Vec<(Span, String)> {
    let late = samples.iter().filter(|sample| sample.late_ns > STALL_NS).take(EVENTS_MAX);
    late.map(|sample| {
        let span = Span::new(sample.woken_ns.saturating_sub(sample.late_ns), sample.woken_ns);
        (span, format!("late by {}", units::duration(sample.late_ns as f64)))
    })
    .collect()
}

/// The same without a reason: real Xen gives none.
fn unexplained(stalls: &[(Span, String)]) -> Vec<(Span, String)> {
    stalls.iter().map(|(span, _)| (*span, String::new())).collect()
}

/// What the scheduler did in the window; times are ns from its start.
struct Seen {
    vcpus: BTreeMap<VcpuId, VcpuSpans>,
    /// For each pCPU, its decisions.
    decisions: BTreeMap<u32, Vec<(Span, String)>>,
}

impl Seen {
    fn of(records: &Records, report: &Report) -> Seen {
        let ([from, to], ns) = (report.tsc, |tsc| report.ns(tsc));
        let in_ns = |spans: Vec<Span>| -> Vec<Span> {
            spans.into_iter().map(|span| Span::new(ns(span.start_ns), ns(span.end_ns))).collect()
        };
        let vcpus = intervals::spans(&records.events, Span::new(from, to)).into_iter().map(|(id, spans)| {
            (id, VcpuSpans { running: in_ns(spans.running), waiting: in_ns(spans.waiting) })
        });
        let mut seen = Seen { vcpus: vcpus.collect(), decisions: BTreeMap::new() };
        for decision in decisions::decisions(&records.events, from, to) {
            let of_pcpu = seen.decisions.entry(decision.pcpu).or_default();
            if of_pcpu.len() < EVENTS_MAX {
                let t_ns = ns(decision.tsc);
                of_pcpu.push((Span::new(t_ns, t_ns), decision.text));
            }
        }
        seen
    }

    /// The guest's vCPU first, then the others, then the scheduler.
    fn tracks(&self, spinners: u32) -> Vec<Track> {
        let slices = |name: String, mut slices: Vec<(Span, String)>| {
            slices.sort_by_key(|(span, _)| span.start_ns);
            slices.truncate(EVENTS_MAX);
            Track { name, events: Events::Slices(slices) }
        };
        let named = |spans: &[Span], name: &str| -> Vec<(Span, String)> {
            spans.iter().map(|span| (*span, name.to_string())).collect()
        };
        let mut vcpus: Vec<_> = self.vcpus.iter().collect();
        vcpus.sort_by_key(|(id, _)| (u32::from(id.domain) != guest(spinners), **id));
        let vcpus = vcpus.into_iter().map(|(id, spans)| {
            let both = [named(&spans.running, "running"), named(&spans.waiting, "descheduled")].concat();
            slices(vcpu_name(*id, spinners), both)
        });
        let pcpus = self.decisions.iter();
        let pcpus = pcpus.map(|(pcpu, events)| slices(format!("scheduler of pCPU {pcpu}"), events.clone()));
        vcpus.chain(pcpus).collect()
    }
}

/// The guest's number among the domains: the last one that dom0 starts.
fn guest(spinners: u32) -> u32 {
    spinners + 1
}

fn vcpu_name(id: VcpuId, spinners: u32) -> String {
    match u32::from(id.domain) {
        0 => format!("dom0 vCPU {}", id.vcpu),
        domain if domain == guest(spinners) => format!("vCPU {}", id.vcpu),
        domain => format!("spinner {domain}"),
    }
}

/// CPU time of the guest and of the spinners.
fn scheduling(out: &mut Observation, seen: &Seen, spinners: u32) {
    let length = |spans: &[Span]| spans.iter().map(|span| span.length_ns()).sum::<u64>();
    let of = |domain: u32| {
        let spans = seen.vcpus.iter().find(|(id, _)| u32::from(id.domain) == domain).map(|(_, spans)| spans);
        spans.map_or(VcpuTime::default(), |spans| VcpuTime {
            run_ns: length(&spans.running),
            delay_ns: length(&spans.waiting),
        })
    };
    out.provenance.scheduling_source = "xentrace".into();
    out.provenance.vcpus = vec![of(guest(spinners))];
    derive::cpu_given(out);
    let whole_ns = out.provenance.window_ns * u64::from(spinners);
    if whole_ns > 0 {
        let ran_ns: u64 = (1..=spinners).map(|domain| of(domain).run_ns).sum();
        put(out, metric::SPINNER_CPU, ran_ns as f64 / whole_ns as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Record;
    use super::*;

    /// A window of 10 ms with three wake-ups, one of them late by 2 ms; the counter runs twice as fast as the clock.
    fn report() -> Report {
        let sample =
            |woken_us: u64, late_us: u64| Sample { woken_ns: woken_us * 1000, late_ns: late_us * 1000 };
        Report {
            mono_ns: [5_000_000, 15_000_000],
            tsc: [100_000_000, 120_000_000],
            samples: vec![sample(1_000, 100), sample(6_000, 2_000), sample(9_000, 1_000)],
        }
    }

    fn observed(records: Option<Records>) -> Observation {
        observe(RunLeft {
            condition: "c",
            repetition: 1,
            spinners: 1,
            report: report(),
            records: records.as_ref(),
            provenance: Provenance::default(),
        })
    }

    fn slices<'a>(out: &'a Observation, name: &str) -> &'a [(Span, String)] {
        let tracks = &out.trace.as_ref().unwrap().tracks;
        let track = tracks.iter().find(|track| track.name == name).unwrap();
        let Events::Slices(slices) = &track.events else { panic!() };
        slices
    }

    #[test]
    fn latencies_are_of_all_samples_and_a_stall_is_more_than_a_millisecond() {
        let out = observed(None);
        assert_eq!((out.metrics[metric::LATENCY_COUNT], out.metrics[metric::LATE]), (3.0, 1.0));
        assert_eq!(out.metrics[metric::LATENCY_MAX], 2_000_000.0);
        assert_eq!((out.metrics[metric::THROUGHPUT], out.provenance.window_ns), (300.0, 10_000_000));
        assert_eq!(slices(&out, "stalls")[0].0, Span::new(4_000_000, 6_000_000));
        assert!(!out.metrics.contains_key(metric::SPINNER_CPU));
    }

    #[test]
    fn a_trace_gives_cpu_time_and_tracks_in_the_window_s_time() {
        // The spinner (domain 1) runs until the counter's 108,000,000, which is 4 ms; then the guest, to the end.
        let at = |tsc, event, domain: u32| Record::of(tsc, 1, event, &[domain << 16]);
        let events = vec![
            at(104_000_000, 0x21211, 2),
            Record::of(104_000_000, 1, 0x28004, &[2, 0]),
            at(108_000_000, 0x21011, 1),
            at(108_000_000, 0x21101, 2),
        ];
        let out = observed(Some(Records { events, lost: 2 }));
        assert_eq!(out.metrics[metric::SPINNER_CPU], 0.4);
        assert_eq!(out.metrics[metric::CPU_SHARE], 0.6);
        assert_eq!(out.provenance.vcpus, [VcpuTime { run_ns: 6_000_000, delay_ns: 2_000_000 }]);
        assert_eq!(out.provenance.notes, ["2 scheduling events were lost"]);
        let names: Vec<&str> =
            out.trace.as_ref().unwrap().tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(names, ["vCPU 0", "stalls", "spinner 1", "scheduler of pCPU 1"]);
        assert_eq!(
            slices(&out, "scheduler of pCPU 1"),
            [(Span::new(2_000_000, 2_000_000), "wakes: d2v0".into())]
        );
        let vcpu: Vec<Span> = slices(&out, "vCPU 0").iter().map(|(span, _)| *span).collect();
        assert_eq!(vcpu, [Span::new(2_000_000, 4_000_000), Span::new(4_000_000, 10_000_000)]);
    }
}
