//! Where and how a study was measured on real threads.

use reprieve_study::units;
use reprieve_study::{Study, Workload};

use super::{Fact, distinct, setting};

/// For captions: the machine, and what its threads did.
pub fn short(study: &Study) -> String {
    let host = distinct(study, |run| run.provenance.host_kernel.clone());
    let cpus = distinct(study, |run| run.provenance.host_pcpus.to_string());
    format!("real threads on {cpus} CPUs, Linux {host}; {}", workload(&study.scenario.workload))
}

/// The machine.
pub fn machine(study: &Study) -> Vec<Fact> {
    let host = distinct(study, |run| run.provenance.host_kernel.clone());
    let cpus = distinct(study, |run| run.provenance.host_pcpus.to_string());
    vec![
        setting("Ground", distinct(study, |run| run.provenance.ground.clone())),
        setting("Host", format!("Linux {host}, {cpus} CPUs for this process")),
    ]
}

/// What the threads do, in a line; the scheme is a condition's.
pub fn workload(workload: &Workload) -> String {
    let Workload::DeleteFree {
        entries,
        readers,
        reader_cpus,
        writer_cpus,
        deletes_per_s,
        think_ns,
        section_ns,
        stall_ms,
        quiescent_every,
        ..
    } = workload
    else {
        return String::new();
    };
    let time = |ns: u64| units::duration(ns as f64);
    let mut text = format!(
        "{readers} reader{} on {} and a writer on {}, hash table of {entries} elements, {deletes_per_s} deletes/s",
        if *readers == 1 { "" } else { "s" },
        cpus(reader_cpus),
        cpus(writer_cpus)
    );
    if *think_ns > 0 {
        text += &format!(", {} of computing between two look-ups", time(*think_ns));
    }
    if *section_ns > 0 {
        text += &format!(", {} of computing within a section", time(*section_ns));
    }
    if *stall_ms > 0 {
        text += &format!(", one reader stalled once for {}", time(stall_ms * units::MILLISECOND_NS));
    }
    if *quiescent_every > 1 {
        text += &format!(", a quiescent state every {quiescent_every} look-ups where readers report them");
    }
    text
}

fn cpus(cpus: &[usize]) -> String {
    let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>();
    format!("CPU{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}
