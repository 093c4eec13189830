//! A record for other tools: a trace for the Perfetto viewer, and a recording that the simulator replays.

use std::collections::BTreeMap;

use reprieve_hindsight::{Record, Stretch, day};
use reprieve_policy::canary;
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::Sample;
use reprieve_report::perfetto;
use reprieve_study::timeline::{Events, Track};
use reprieve_study::{Span, Tape, Timeline, Trace, shown};

use super::window::{Window, is_close_look};

/// Two samples follow each other if no more than this is between them, ns.
const FOLLOWS_NS: u64 = 1_000_000;

/// Most times off in a trace: about 700 bytes of memory are needed for each. A ring of the default size has fewer.
const MOST_SLICES: usize = 1_500_000;

/// The bytes of a trace: a process for each stretch.
///
/// # Errors
/// It would take too much memory.
pub fn perfetto(record: &Record) -> Result<Vec<u8>, String> {
    let samples = record.stretches.iter().flat_map(|stretch| &stretch.samples);
    let offs: usize = samples.flat_map(|sample| &sample.vcpus).map(|vcpu| vcpu.offs.len()).sum();
    if offs > MOST_SLICES {
        return Err(format!(
            "--perfetto: {offs} times off are more than {MOST_SLICES} for a trace; copy some of the record's segments into another folder, and name that"
        ));
    }
    let traces: Vec<(String, Trace)> =
        record.stretches.iter().map(|stretch| (title(stretch), trace(stretch))).collect();
    let named: Vec<(&str, &Trace)> = traces.iter().map(|(title, trace)| (title.as_str(), trace)).collect();
    Ok(perfetto::encode(&named))
}

fn title(stretch: &Stretch) -> String {
    let begin_ns = stretch.samples.first().map_or(0, |first| first.day_ns.saturating_sub(first.span_ns));
    format!("{}, from {}", stretch.header.host, day::text(begin_ns))
}

fn trace(stretch: &Stretch) -> Trace {
    let samples = &stretch.samples;
    let start_ns = start_ns(samples);
    let mut tracks = Vec::new();
    for (vcpu, offs) in offs(samples) {
        let offs = offs.iter().map(|off| {
            let at = |ns: u64| ns.saturating_sub(start_ns);
            (Span::new(at(off.since_ns), at(off.back_ns)), "off".to_string())
        });
        tracks.push(Track { name: format!("vCPU {vcpu}"), events: Events::Slices(offs.collect()) });
    }
    let percent = |ns: u64, sample: &Sample| 100.0 * ns as f64 / sample.span_ns.max(1) as f64;
    let mut counter = |name: &str, value: &dyn Fn(&Sample) -> Option<f64>| {
        let mut timeline = Timeline::default();
        for sample in samples {
            if let Some(value) = value(sample) {
                timeline.push(sample.at_ns.saturating_sub(start_ns), value);
            }
        }
        if !timeline.values.is_empty() {
            tracks.push(Track { name: name.into(), events: Events::Counter(timeline) });
        }
    };
    counter("longest wait for a grace period, ms", &|sample| {
        let open_ns = Some(sample.open_grace_period_ns).filter(|ns| *ns > 0);
        sample.grace_periods_ns.iter().copied().chain(open_ns).max().map(|ns| ns as f64 / 1e6)
    });
    counter("off most, %", &|sample| {
        sample.vcpus.iter().map(|vcpu| canary::off_ns(sample, vcpu)).max().map(|ns| percent(ns, sample))
    });
    counter("steal, % of a vCPU", &|sample| {
        let steal = sample.vcpus.iter().filter_map(|vcpu| vcpu.steal_ns);
        steal.reduce(u64::saturating_add).map(|ns| percent(ns, sample))
    });
    counter("run delay, % of a CPU", &|sample| {
        let delay = sample.vcpus.iter().filter_map(|vcpu| vcpu.run_delay_ns);
        delay.reduce(u64::saturating_add).map(|ns| percent(ns, sample))
    });
    type Wait = fn(&Sample) -> Option<u64>;
    let waits: [(&str, Wait); 5] = [
        ("some task waited for a CPU, %", |sample| sample.cpu_wait_ns),
        ("some task waited for memory, %", |sample| sample.memory_wait_ns),
        ("some task waited for I/O, %", |sample| sample.io_wait_ns),
        ("RCU's kthread waited for a CPU, %", |sample| sample.kthread_wait_ns),
        ("throttled, %", |sample| sample.throttled_ns),
    ];
    for (name, wait) in waits {
        counter(name, &|sample| wait(sample).map(|ns| percent(ns, sample)));
    }
    counter("slabs, MiB", &|sample| sample.memory.map(|memory| memory.slab_bytes as f64 / 1_048_576.0));
    counter("available, MiB", &|sample| {
        sample.memory.map(|memory| memory.available_bytes as f64 / 1_048_576.0)
    });
    Trace { tracks }
}

fn start_ns(samples: &[Sample]) -> u64 {
    samples.first().map_or(0, |first| first.at_ns.saturating_sub(first.span_ns))
}

/// When each vCPU was off, by its number.
fn offs(samples: &[Sample]) -> BTreeMap<usize, Vec<Off>> {
    let mut all: BTreeMap<usize, Vec<Off>> = BTreeMap::new();
    for vcpu in samples.iter().flat_map(|sample| &sample.vcpus) {
        all.entry(vcpu.vcpu).or_default().extend(&vcpu.offs);
    }
    all
}

/// A recording of the close looks at which the window is, as long as they follow each other.
///
/// # Errors
/// There are none in it, with the way out.
pub fn tape(record: &Record, window: &Window<'_>) -> Result<Tape, String> {
    let samples = &window.stretch.samples;
    let Some(at) = (window.first..window.end).find(|at| is_close_look(&samples[*at])) else {
        let any = record.stretches.iter().any(|stretch| stretch.samples.iter().any(is_close_look));
        let way_out = match any {
            true => "choose a time of an incident with --at",
            false => "there is none in this record: it looks closely for 10 s after something alarming",
        };
        return Err(format!(
            "--tape: there was no close look at that time, so it is not known when vCPUs were off; {way_out}"
        ));
    };
    let follows = |at: usize| {
        let (one, next) = (&samples[at], &samples[at + 1]);
        let between_ns = next.at_ns.saturating_sub(next.span_ns).saturating_sub(one.at_ns);
        is_close_look(one) && is_close_look(next) && between_ns <= FOLLOWS_NS
    };
    let first = (0..at).rev().take_while(|at| follows(*at)).last().unwrap_or(at);
    let end = (at..samples.len() - 1).take_while(|at| follows(*at)).last().map_or(at, |at| at + 1) + 1;
    let close = &samples[first..end];
    let whole = Span::new(start_ns(close), close[close.len() - 1].at_ns);
    let spans = |offs: Vec<Off>| offs.iter().map(|off| Span::new(off.since_ns, off.back_ns)).collect();
    let off: Vec<Vec<Span>> = offs(close).into_values().map(spans).collect();
    let header = &window.stretch.header;
    let source = format!(
        "{}, guest kernel {}, from inside the guest by beats every ms, from {}",
        shown::line(&header.host),
        shown::line(&header.kernel),
        day::text(close[0].day_ns.saturating_sub(close[0].span_ns))
    );
    let tape = Tape::new(whole, &off).described(&source, &BTreeMap::new());
    // What the simulator would refuse is not written.
    Tape::from_json(&tape.to_json())
        .map_err(|error| format!("--tape: no recording can be made of it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::window;
    use super::*;
    use reprieve_policy::sample::VcpuSample;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Close looks from the second 10 to the second 20, in which vCPU 3 is off once.
    fn record() -> Record {
        let sample = |at: u64| {
            let is_close = (10..20).contains(&at);
            let off = Off { since_ns: at * SECOND_NS + 5, back_ns: at * SECOND_NS + 300_000_005 };
            let vcpu = |vcpu, offs| VcpuSample { vcpu, beats: 1000, offs, ..VcpuSample::default() };
            Sample {
                at_ns: (at + 1) * SECOND_NS,
                span_ns: SECOND_NS,
                beat_ns: if is_close { 1_000_000 } else { 50_000_000 },
                vcpus: vec![vcpu(1, vec![]), vcpu(3, if is_close { vec![off] } else { vec![] })],
                grace_periods_ns: vec![at * 1_000_000],
                ..Sample::default()
            }
        };
        let samples = (0..30).map(sample).collect();
        Record { stretches: vec![Stretch { samples, ..Stretch::default() }], ..Record::default() }
    }

    #[test]
    fn the_close_looks_become_a_recording() {
        let record = record();
        let made = tape(&record, &window::worst(&record).unwrap()).unwrap();
        assert_eq!((made.length_ns, made.vcpus(), made.off(0).count()), (10 * SECOND_NS, 2, 0));
        let off: Vec<Span> = made.off(1).collect();
        assert_eq!((off.len(), off[2]), (10, Span::new(2 * SECOND_NS + 5, 2 * SECOND_NS + 300_000_005)));
        assert_eq!(Tape::from_json(&made.to_json()), Ok(made));
    }

    #[test]
    fn without_a_close_look_there_is_no_recording() {
        let record = record();
        let said = tape(&record, &window::last(&record, 5 * SECOND_NS).unwrap()).unwrap_err();
        assert!(said.ends_with("choose a time of an incident with --at"), "{said}");
    }

    #[test]
    fn a_trace_has_times_off_and_counters() {
        let record = record();
        let trace = trace(&record.stretches[0]);
        let names: Vec<&str> = trace.tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(names, ["vCPU 1", "vCPU 3", "longest wait for a grace period, ms", "off most, %"]);
        let Events::Slices(offs) = &trace.tracks[1].events else { panic!() };
        assert_eq!(offs[0].0, Span::new(10 * SECOND_NS + 5, 10 * SECOND_NS + 300_000_005));
        let Events::Counter(waits) = &trace.tracks[2].events else { panic!() };
        assert_eq!((waits.t_ns[4], waits.values[4]), (5 * SECOND_NS, 4.0));
        assert!(!perfetto(&record).unwrap().is_empty());
    }
}
