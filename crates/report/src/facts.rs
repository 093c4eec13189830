//! Where and how a study was measured, as named lines. Every output shows the same ones; a figure's caption is
//! their short form.

mod cpu_time;
mod disturbance;
mod io;
mod latency;
mod sim;
mod threads;

use reprieve_study::observation::{Observation, Standing};
use reprieve_study::scenario::{Case, Clones, Memory, Postmark};
use reprieve_study::units::{self, significant};
use reprieve_study::{Condition, GroundKind, Study, Workload, statistics};

use crate::holdouts;
pub use disturbance::{described, disturbance};

/// Files that the published Postmark runs started with: "128K" (Prasad, Gopinath, McKenney, ATC 2017).
const PUBLISHED_POSTMARK_FILES: u64 = 128_000;

/// More notes than this are shown with all facts alone.
const FEW_NOTES: usize = 3;

/// One named line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it tells.
    pub name: String,
    /// The text.
    pub value: String,
    /// Whether it was chosen or given before the runs; two records with other settings are not alike.
    pub is_setting: bool,
}

fn setting(name: &str, value: String) -> Fact {
    Fact { name: name.into(), value, is_setting: true }
}

fn outcome(name: &str, value: String) -> Fact {
    Fact { name: name.into(), value, is_setting: false }
}

/// All lines of a study. Lines without content are left out.
pub fn of(study: &Study) -> Vec<Fact> {
    let simulated = study.is_simulated();
    let mut facts = match study.scenario.ground {
        _ if simulated => sim::machine(study),
        GroundKind::Threads => threads::machine(study),
        GroundKind::Sim | GroundKind::Vm | GroundKind::Xen => machine(study),
    };
    facts.extend(plan(study));
    facts.extend(cases(study));
    for name in study.scenario.conditions.keys() {
        facts.extend(condition(study, name));
    }
    facts.push(setting("Causes left out", left_out(study)));
    facts.push(outcome("Last holdouts", holdouts::most_often(study)));
    facts.extend(if simulated { sim::result(study) } else { quality(study) });
    facts.extend(notes(study).into_iter().map(|note| outcome("Note", note)));
    facts.extend(study.ended_early.iter().map(|why| outcome("Ended early", why.clone())));
    facts.retain(|fact| !fact.value.trim().is_empty());
    facts
}

/// What went otherwise than planned, if it fits in a few lines.
pub fn warnings(study: &Study) -> Vec<String> {
    let ended = study.ended_early.iter().map(|why| format!("ended early: {why}"));
    let notes = notes(study);
    let few = notes.len() <= FEW_NOTES;
    ended.chain(notes.into_iter().filter(|_| few)).collect()
}

/// The short form for captions: how the figures came about, and where.
pub fn source(study: &Study) -> String {
    let how = if study.is_simulated() { "Simulated" } else { "Measured" };
    format!("{how}: {}", short(study))
}

/// Ground, accelerator, guest; or the machines that were simulated.
pub fn short(study: &Study) -> String {
    if study.is_simulated() {
        return sim::short(study);
    }
    if study.scenario.ground == GroundKind::Threads {
        return threads::short(study);
    }
    let guest = &study.scenario.guest;
    let parts = [
        distinct(study, |run| run.provenance.ground.clone()),
        distinct(study, |run| run.provenance.accelerator.clone()),
        format!("guest kernel {}", distinct(study, |run| run.provenance.kernel.clone())),
        format!("{} vCPUs, {} MiB", guest.vcpus, guest.memory_mib),
    ];
    let said: Vec<String> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
    said.join("; ")
}

fn machine(study: &Study) -> Vec<Fact> {
    let guest = &study.scenario.guest;
    let reason = distinct(study, |run| run.provenance.accelerator_reason.clone());
    let mut accelerator = distinct(study, |run| run.provenance.accelerator.clone());
    if !reason.is_empty() {
        accelerator += &format!(" ({reason})");
    }
    let kernel = distinct(study, |run| run.provenance.kernel.clone());
    let host = distinct(study, |run| run.provenance.host_kernel.clone());
    let pcpus = distinct(study, |run| run.provenance.host_pcpus.to_string());
    vec![
        setting("Ground", distinct(study, |run| run.provenance.ground.clone())),
        setting("Accelerator", accelerator),
        setting("Guest", format!("Linux {kernel}, {} vCPUs, {} MiB", guest.vcpus, guest.memory_mib)),
        setting("Host", format!("Linux {host}, {pcpus} pCPUs for this process")),
    ]
}

fn plan(study: &Study) -> Vec<Fact> {
    let run = &study.scenario.run;
    let milliseconds = |ms: u64| units::duration((ms * units::MILLISECOND_NS) as f64);
    let window = match study.scenario.workload {
        Workload::Postmark { .. } if study.is_simulated() => {
            "the transactions, from when all processes have created their files until the first has done its own; \
             throughput until the last has"
                .into()
        }
        Workload::Postmark { .. } => "the whole workload, from its start until its last process ends".into(),
        Workload::DeleteFree { .. } if study.scenario.ground == GroundKind::Vm => format!(
            "{} by the guest's clock, after {} of warm-up; the host's figures are of the whole program",
            milliseconds(run.window_ms),
            milliseconds(run.warmup_ms)
        ),
        _ => {
            let window = milliseconds(run.window_ms);
            let window = match study.scenario.workload.latencies() {
                Some(many) => format!("{many} {}, at most {window}", study.scenario.workload.operation()),
                None => window,
            };
            format!("{window}, after {} of warm-up", milliseconds(run.warmup_ms))
        }
    };
    vec![
        setting("Workload", workload(&study.scenario.workload)),
        setting("Reduced", reduced(study).unwrap_or_default()),
        setting("Window", window),
        outcome("Window was", measured_window(study)),
        setting(
            "Repetitions",
            match study.is_simulated() {
                true => format!("{} of each condition, seed {}", run.repeat, run.seed),
                false => format!("{} of each condition, in random order, seed {}", run.repeat, run.seed),
            },
        ),
        setting("Observed", observed(study)),
    ]
}

/// How guests are watched; programs report themselves.
fn observed(study: &Study) -> String {
    let observe = &study.scenario.observe;
    match observe.sync_every_ms {
        _ if matches!(study.scenario.workload, Workload::DeleteFree { .. } | Workload::Fio(_))
            || study.scenario.workload.is_latency() =>
        {
            String::new()
        }
        0 => format!("{} samples/s", observe.sample_hz),
        every => format!("{} samples/s; one synchronize_rcu() timed every {every} ms", observe.sample_hz),
    }
}

/// The shortest and the longest window, if that is not what was planned.
fn measured_window(study: &Study) -> String {
    let whole = matches!(study.scenario.workload, Workload::DeleteFree { .. });
    if whole && study.scenario.ground == GroundKind::Vm {
        return String::new();
    }
    let windows = study.observations.iter().filter(|run| run.standing.counts());
    let (short_ns, long_ns) = extremes(windows.map(|run| run.provenance.window_ns as f64));
    let planned = units::duration((study.scenario.run.window_ms * units::MILLISECOND_NS) as f64);
    match (units::duration(short_ns), units::duration(long_ns)) {
        (short, long) if long_ns == 0.0 || (short == planned && long == planned) => String::new(),
        (short, long) if short == long => short,
        (short, long) => format!("{short} to {long}"),
    }
}

/// What the workload does, in a line.
pub fn workload(workload: &Workload) -> String {
    match workload {
        Workload::DeleteFree(asked) => threads::workload(asked),
        Workload::Wakeup(wakeup) => latency::wakeup(wakeup),
        Workload::Requests(requests) => latency::requests(requests),
        Workload::Tasks(tasks) => latency::tasks(tasks),
        Workload::Io(io) => self::io::workload(io),
        Workload::Fio(fio) => self::io::fio(fio),
        Workload::Memory(Memory { object_bytes, burst, pause_us, kernel_us, user_us, computing, .. }) => {
            let other = match (kernel_us, user_us) {
                (0, 0) => String::new(),
                (kernel, user) => {
                    format!(", other work for {kernel} us in the kernel and {user} us in user mode")
                }
            };
            format!(
                "memory: objects of {object_bytes} bytes, freed through call_rcu(), a context switch every {burst}{other}, \
                 {pause_us} us pause{}",
                beside(*computing)
            )
        }
        Workload::Clone(Clones { namespaces, computing, .. }) => {
            format!("clone: into new namespaces ({}){}", namespaces.join(", "), beside(*computing))
        }
        Workload::Postmark(Postmark { processes, files, transactions, think_us, .. }) => {
            let think = match think_us {
                0 => String::new(),
                us => format!(", {us} us of user time between two"),
            };
            format!(
                "postmark: {processes} processes, {files} files, {transactions} transactions{think}, on tmpfs"
            )
        }
    }
}

/// The processes that only compute, if there are any.
fn beside(computing: u32) -> String {
    match computing {
        0 => String::new(),
        1 => ", beside a process that computes".into(),
        many => format!(", beside {many} processes that compute"),
    }
}

/// What a workload smaller than the published one means for its figures.
fn reduced(study: &Study) -> Option<String> {
    let Workload::Postmark(Postmark { files, .. }) = study.scenario.workload else {
        return None;
    };
    (files < PUBLISHED_POSTMARK_FILES && !study.scenario.published.ratios.is_empty()).then(|| {
        format!(
            "{files} files at the start, published were 128K: fewer inodes and dentries can wait for a grace \
             period at once, so compare ratios, not absolute sizes"
        )
    })
}

/// What a condition is, and how much CPU the host really gave each vCPU under it (median over its runs).
fn condition(study: &Study, name: &str) -> Vec<Fact> {
    let runs: Vec<&Observation> = study.runs_of(name).collect();
    if runs.is_empty() || study.is_part(name) {
        return Vec::new();
    }
    let condition = &study.scenario.conditions[name];
    vec![
        setting(name, described(condition)),
        outcome(&format!("{name} got"), cpu_time::got(&runs, condition.overcommit)),
    ]
}

/// The cases of a study that has some, and the conditions of each.
fn cases(study: &Study) -> Vec<Fact> {
    let scenario = &study.scenario;
    if scenario.cases.is_empty() {
        return Vec::new();
    }
    let host = |case: &Case| {
        let condition =
            Condition { label: case.label.clone(), quota: case.quota.clone(), ..Condition::default() };
        if case.quota.is_empty() { case.label.clone() } else { described(&condition) }
    };
    let cases = scenario.cases.iter().map(|(name, case)| setting(name, host(case)));
    let conditions = scenario.chosen().flat_map(|(name, condition)| {
        let runs: Vec<&Observation> =
            study.observations.iter().filter(|run| run.condition == *name).collect();
        let shown = distinct_of(&runs, |run| run.provenance.settings.join("; "));
        [setting(name, described(condition)), outcome(&format!("{name} had"), shown)]
    });
    cases.chain(conditions).collect()
}

/// The causes that were left out of each condition to attribute its loss.
fn left_out(study: &Study) -> String {
    let said = |attribution: reprieve_study::Attribution| {
        let causes = |part: &reprieve_study::attribution::Part| {
            part.causes.iter().map(|cause| cause.label()).collect::<Vec<_>>().join(" and ")
        };
        let parts: Vec<String> = attribution.parts.iter().map(causes).collect();
        format!("{}, in turn: {}", attribution.condition, parts.join("; "))
    };
    study.attributions().into_iter().map(said).collect::<Vec<_>>().join("; ")
}

fn quality(study: &Study) -> Vec<Fact> {
    let foreign: Vec<f64> = study.observations.iter().map(|run| run.provenance.foreign_cpu_percent).collect();
    let (_, most) = extremes(foreign.iter().copied());
    let limit = study.scenario.run.foreign_cpu_limit_percent;
    let foreign = statistics::median(&foreign).map_or_else(String::new, |median| {
        format!(
            "{} % of the machine (median; at most {} %, limit {limit} %); disturbed runs: {} done again, {} kept",
            significant(median),
            significant(most),
            study.count(Standing::Redone),
            study.count(Standing::Kept)
        )
    });
    // A guest's numbers, or a record's: any.
    let missed =
        study.observations.iter().fold(0, |sum: u64, run| sum.saturating_add(run.provenance.missed_gps));
    let missed = match missed {
        0 => String::new(),
        missed => {
            format!("{missed} grace periods began and ended between two samples: counted, without a duration")
        }
    };
    vec![
        outcome("Foreign CPU", foreign),
        outcome("Scheduling", distinct(study, |run| run.provenance.scheduling_source.clone())),
        outcome("Missed GPs", missed),
    ]
}

/// The runs' notes, each once, with the conditions that it is about unless it is about all of them.
fn notes(study: &Study) -> Vec<String> {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for run in &study.observations {
        for note in &run.provenance.notes {
            let index = seen.iter().position(|(text, _)| text == note).unwrap_or_else(|| {
                seen.push((note, Vec::new()));
                seen.len() - 1
            });
            if !seen[index].1.contains(&run.condition.as_str()) {
                seen[index].1.push(&run.condition);
            }
        }
    }
    let present =
        study.scenario.conditions.keys().filter(|name| study.runs_of(name).next().is_some()).count();
    let said = |(note, conditions): (&str, Vec<&str>)| {
        if conditions.len() >= present {
            return note.to_string();
        }
        format!("{} only: {note}", conditions.join(", "))
    };
    seen.into_iter().map(said).collect()
}

/// The different values among all runs, in order of appearance.
fn distinct(study: &Study, value: impl Fn(&Observation) -> String) -> String {
    distinct_of(&study.observations.iter().collect::<Vec<_>>(), value)
}

fn distinct_of(runs: &[&Observation], value: impl Fn(&Observation) -> String) -> String {
    let mut seen: Vec<String> = Vec::new();
    for run in runs {
        let here = value(run);
        if !here.is_empty() && !seen.contains(&here) {
            seen.push(here);
        }
    }
    seen.join(" and ")
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if ends.0 > ends.1 { (0.0, 0.0) } else { ends }
}
