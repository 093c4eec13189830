//! From what one run left (a recording, the workload's own counters, the host's books) to its observation.
//! Pure: everything is handed in.

use reprieve_linux::boost::Given;
use reprieve_study::derive::{self, put};
use reprieve_study::scenario::VcpuQuota;
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Observation, Provenance, Span, Tape, Timeline, Workload, metric, observation, units};

use crate::boosting;
use crate::link::{Fields, Outcome};
use crate::watch::{MemorySample, Recording};

/// Looks should come at 1 kHz or better: a run in which they do not gets a note.
const COARSE_NS: u64 = MILLISECOND_NS;

/// What one run left. There is no recording when nobody watched. `marks` are the workload's counters at the start and at the end of
/// the window, `boosts` is what boosts had given then, `look_ns` is the time between two looks that was aimed at, and the host's books of the vCPUs are in `provenance`.
#[allow(missing_docs, reason = "the text above and the names say what the fields are")]
pub struct RunLeft<'a> {
    pub condition: &'a str,
    pub repetition: u32,
    pub workload: &'a Workload,
    pub quotas: &'a [VcpuQuota],
    pub boosts: Option<(Given, Given)>,
    pub recording: Option<Recording>,
    pub marks: (Fields, Fields),
    pub outcome: Outcome,
    pub look_ns: u64,
    pub provenance: Provenance,
}

/// The observation of a run.
pub fn observe(left: RunLeft) -> Observation {
    let mut out = Observation::new(left.condition, left.repetition, left.provenance);
    throughput(&mut out, left.workload, &left.marks, &left.outcome);
    derive::cpu_given(&mut out);
    sync_latency(&mut out, &left.outcome);
    if let Some(boosts) = left.boosts {
        boosting::observe(&mut out, boosts);
    }
    if let Some(recording) = left.recording {
        boosting::fairness(&mut out, left.quotas, &recording);
        // Where only sums are booked nobody knows how long each time was.
        if !recording.scheduling.running.is_empty() {
            derive::descheduling(&mut out, &recording.scheduling.descheduled);
            out.tape = Some(Tape::new(recording.window, &recording.scheduling.descheduled));
        }
        let descheduled = derive::long_enough(&recording.scheduling.descheduled, left.look_ns);
        grace_periods(&mut out, &recording, &descheduled);
        memory(&mut out, &recording);
        guest_cpu(&mut out, &recording);
        gp_compute(&mut out, &recording, &descheduled);
        out.provenance.samples = recording.looks;
        out.provenance.missed_gps = recording.missed_gps;
        out.provenance.scheduling_source = recording.scheduling.source.into();
        out.provenance.notes.extend(recording.notes.iter().cloned());
        if let Some(gap_ns) = recording.gaps.quantile_ns(0.99).filter(|gap_ns| *gap_ns > COARSE_NS) {
            let note = format!("1 % of the looks came {} or more apart", units::duration(gap_ns as f64));
            out.provenance.notes.push(note);
        }
        if recording.scheduling.lost > 0 {
            let note = format!("{} scheduling events were lost", recording.scheduling.lost);
            out.provenance.notes.push(note);
        }
        let traced = derive::TraceOf {
            start_ns: recording.window.start_ns,
            grace_periods: &recording.grace_periods,
            descheduled: &descheduled,
            running: &recording.scheduling.running,
        };
        out.trace = Some(traced.trace(&out));
        out.distributions.insert(observation::SAMPLE_GAPS.into(), recording.gaps);
    }
    out
}

fn delta(marks: &(Fields, Fields), key: &str) -> Option<u64> {
    marks.1.get(key)?.checked_sub(*marks.0.get(key)?)
}

/// Operations over the guest's own time between the two marks. Postmark counts nothing on its way: there it
/// is all transactions, from the first one of any process to the last one of any process.
fn throughput(out: &mut Observation, workload: &Workload, marks: &(Fields, Fields), outcome: &Outcome) {
    let per_s = match workload {
        Workload::Postmark { .. } => transactions_per_s(&outcome.postmark),
        _ => rate(delta(marks, "ops"), delta(marks, "t_ns")),
    };
    if let Some(per_s) = per_s {
        put(out, metric::THROUGHPUT, per_s);
    }
    if let Some(stalls) = delta(marks, "stalls") {
        put(out, metric::STALLS, stalls as f64);
    }
}

/// `None` when a process did not finish: the rest would not be the whole.
fn transactions_per_s(processes: &[Fields]) -> Option<f64> {
    let all =
        |key: &str| processes.iter().map(|process| process.get(key).copied()).collect::<Option<Vec<u64>>>();
    let begin_ns = all("transactions_begin_ns")?.into_iter().min()?;
    let end_ns = all("transactions_end_ns")?.into_iter().max()?;
    let transactions = all("transactions")?.into_iter().fold(0, u64::saturating_add);
    rate(Some(transactions), end_ns.checked_sub(begin_ns))
}

fn rate(ops: Option<u64>, elapsed_ns: Option<u64>) -> Option<f64> {
    let elapsed_ns = elapsed_ns.filter(|elapsed_ns| *elapsed_ns > 0)?;
    Some(ops? as f64 * SECOND_NS as f64 / elapsed_ns as f64)
}

fn sync_latency(out: &mut Observation, outcome: &Outcome) {
    if let Some(note) = &outcome.sync_note {
        out.provenance.notes.push(format!("synchronize_rcu latency not measured: {note}"));
    }
    derive::sync_latencies(out, &outcome.sync_ns);
}

fn grace_periods(out: &mut Observation, recording: &Recording, descheduled: &[Vec<Span>]) {
    derive::GracePeriods {
        ended: &recording.grace_periods,
        missed: recording.missed_gps,
        open_ns: recording.open_gp_ns,
        descheduled,
        start_ns: recording.window.start_ns,
    }
    .observe(out);
}

fn since_start(recording: &Recording, t_ns: u64) -> u64 {
    t_ns.saturating_sub(recording.window.start_ns)
}

/// Takes one number out of a memory sample.
type Value = fn(&MemorySample) -> f64;

fn memory(out: &mut Observation, recording: &Recording) {
    const VALUES: [Value; 4] = [
        |sample| sample.memory.used_bytes as f64,
        |sample| sample.memory.unusable_index,
        |sample| sample.backlog as f64,
        |sample| sample.memory.slab_bytes as f64,
    ];
    derive::memory(out, VALUES.map(|value| counter(recording, value)));
}

fn counter(recording: &Recording, value: Value) -> Timeline {
    let mut series = Timeline::default();
    recording
        .memory
        .iter()
        .for_each(|sample| series.push(since_start(recording, sample.t_ns), value(sample)));
    series
}

fn guest_cpu(out: &mut Observation, recording: &Recording) {
    let (first, last) = recording.cpu;
    let spent = |of: fn(&crate::introspect::CpuState) -> u64| of(&last).saturating_sub(of(&first)) as f64;
    let (kernel, idle, user) = (spent(|c| c.kernel_ns), spent(|c| c.idle_ns), spent(|c| c.user_ns));
    let total = kernel + idle + user;
    if total > 0.0 {
        put(out, metric::KERNEL_CPU, kernel / total);
        put(out, metric::IDLE_CPU, idle / total);
    }
    let window_ns = recording.window.length_ns();
    if window_ns > 0 {
        put(out, metric::OBSERVER_CPU, recording.observer_cpu_ns as f64 / window_ns as f64);
    }
}

/// CPU time to compute one grace period, from the share of looks that found it being computed on a vCPU that
/// was on its pCPU. The guest's own clock would count the time that a vCPU is descheduled as well.
fn gp_compute(out: &mut Observation, recording: &Recording, descheduled: &[Vec<Span>]) {
    let ended = (recording.grace_periods.len() as u64).saturating_add(recording.missed_gps);
    if ended == 0 || recording.looks == 0 {
        return;
    }
    let on_pcpu = |vcpu: usize, t_ns: u64| {
        let Some(spans) = descheduled.get(vcpu) else { return true };
        let next = spans.partition_point(|span| span.end_ns <= t_ns);
        spans.get(next).is_none_or(|span| span.start_ns > t_ns)
    };
    let (mut kthread, mut softirq) = (0, 0);
    for sample in &recording.work {
        kthread += sample.work.gp_kthread_on.is_some_and(|vcpu| on_pcpu(vcpu, sample.t_ns)) as u64;
        let serving = (0..64).filter(|vcpu| sample.work.in_softirq >> vcpu & 1 == 1);
        softirq += serving.filter(|vcpu| on_pcpu(*vcpu, sample.t_ns)).count() as u64;
    }
    let look_ns = recording.window.length_ns() as f64 / recording.looks as f64;
    put(out, metric::GP_COMPUTE, (kthread + softirq) as f64 * look_ns / ended as f64);
    put(out, metric::GP_KTHREAD, kthread as f64 * look_ns / ended as f64);
}

#[cfg(test)]
mod tests {
    use reprieve_study::scenario::{Memory, Postmark};
    use reprieve_study::{Distribution, GracePeriod};

    use super::*;
    use crate::introspect::RcuWork;
    use crate::link::fields;
    use crate::watch::{Scheduling, WorkSample};

    /// Ten looks, 1 ms apart, one grace period, vCPU 1 descheduled from 2 to 8 ms.
    fn recording() -> Recording {
        let ms = |from: u64, to: u64| Span::new(from * 1_000_000, to * 1_000_000);
        let work = |t_ms: u64, gp_kthread_on, in_softirq| WorkSample {
            t_ns: t_ms * 1_000_000,
            work: RcuWork { gp_kthread_on, in_softirq },
        };
        Recording {
            window: ms(0, 10),
            grace_periods: vec![GracePeriod {
                sequence: 1,
                span: ms(1, 9),
                cleared_ns: vec![Some(2_000_000), Some(9_000_000)],
            }],
            missed_gps: 0,
            open_gp_ns: Some(20_000_000),
            memory: Vec::new(),
            // On vCPU 0; on vCPU 1 while it is descheduled; on vCPU 1 afterwards, with a softirq on vCPU 0.
            work: vec![work(1, Some(0), 0), work(3, Some(1), 0b10), work(9, Some(1), 0b01)],
            looks: 10,
            gaps: Distribution::default(),
            cpu: Default::default(),
            scheduling: Scheduling {
                descheduled: vec![vec![], vec![ms(2, 8), Span::new(8_100_000, 8_200_000)]],
                ..Scheduling::default()
            },
            observer_cpu_ns: 0,
            notes: Vec::new(),
        }
    }

    fn observed(workload: Workload, marks: (Fields, Fields), outcome: Outcome) -> Observation {
        observe(RunLeft {
            condition: "c",
            repetition: 0,
            workload: &workload,
            quotas: &[],
            boosts: None,
            recording: Some(recording()),
            marks,
            outcome,
            look_ns: 1_000_000,
            provenance: Provenance { window_ns: 10_000_000, ..Provenance::default() },
        })
    }

    fn memory() -> Workload {
        Workload::Memory(Memory::default())
    }

    #[test]
    fn what_a_descheduled_vcpu_seems_to_compute_does_not_count() {
        let out = observed(memory(), Default::default(), Outcome::default());
        // The kthread at 1 and 9 ms and the softirq at 9 ms, of 1 ms each, over one grace period.
        assert_eq!(out.metrics[metric::GP_COMPUTE], 3_000_000.0);
        assert_eq!(out.metrics[metric::GP_KTHREAD], 2_000_000.0);
    }

    #[test]
    fn a_grace_period_that_does_not_end_is_not_forgotten() {
        let out = observed(memory(), Default::default(), Outcome::default());
        assert_eq!((out.metrics[metric::GP_MEAN], out.metrics[metric::GP_MAX]), (8_000_000.0, 20_000_000.0));
    }

    #[test]
    fn a_preemption_shorter_than_a_look_does_not_count() {
        let out = observed(memory(), Default::default(), Outcome::default());
        assert_eq!(out.metrics[metric::READER_PREEMPTIONS], 1.0);
        assert_eq!(out.metrics[metric::READER_PREEMPTIONS_LAST], 1.0);
        assert_eq!(out.metrics[metric::READER_HELD], 6_000_000.0);
    }

    #[test]
    fn throughput_is_of_the_guest_s_own_clock() {
        let marks = (fields("ops=100 t_ns=1000"), fields("ops=400 t_ns=1000001000"));
        let out = observed(memory(), marks, Outcome { sync_ns: vec![5_000, 7_000], ..Outcome::default() });
        assert!((out.metrics[metric::THROUGHPUT] - 300.0).abs() < 1e-3);
        assert_eq!((out.metrics[metric::SYNC_MEAN], out.metrics[metric::SYNC_MAX]), (6_000.0, 7_000.0));
    }

    #[test]
    fn postmark_without_every_process_s_figures_has_no_throughput() {
        let workload = || Workload::Postmark(Postmark::default());
        let from = |begin: u64, end: u64| {
            fields(&format!(
                "transactions=50 transactions_begin_ns={begin}000000 transactions_end_ns={end}000000"
            ))
        };
        let done = from(0, 400);
        let of =
            |postmark| observed(workload(), Default::default(), Outcome { postmark, ..Outcome::default() });
        assert_eq!(of(vec![done.clone(), from(100, 500)]).metrics[metric::THROUGHPUT], 200.0);
        assert!(!of(vec![done, Fields::new()]).metrics.contains_key(metric::THROUGHPUT));
        assert!(!of(vec![]).metrics.contains_key(metric::THROUGHPUT));
    }

    #[test]
    fn an_unobserved_run_has_no_figures_of_grace_periods() {
        let out = observe(RunLeft {
            condition: "c",
            repetition: 0,
            workload: &memory(),
            quotas: &[],
            boosts: None,
            recording: None,
            marks: Default::default(),
            outcome: Outcome::default(),
            look_ns: 1,
            provenance: Provenance::default(),
        });
        assert!(out.metrics.is_empty() && out.trace.is_none());
    }
}
