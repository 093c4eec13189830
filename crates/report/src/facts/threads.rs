//! Where and how a study was measured on real threads.

use reprieve_study::scenario::DeleteFree;
use reprieve_study::{Study, units};

use super::{Fact, distinct, setting};

/// For captions: the machine, and what its threads did.
pub fn short(study: &Study) -> String {
    let host = distinct(study, |run| run.provenance.host_kernel.clone());
    let cpus = distinct(study, |run| run.provenance.host_pcpus.to_string());
    format!("real threads on {cpus} CPUs, Linux {host}; {}", super::workload(&study.scenario.workload))
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
pub fn workload(asked: &DeleteFree) -> String {
    let time = |ns: u64| units::duration(ns as f64);
    let mut text = format!(
        "{} reader{} on {} and a writer on {}, hash table of {} elements, {} deletes/s",
        asked.readers,
        if asked.readers == 1 { "" } else { "s" },
        cpus(&asked.reader_cpus),
        cpus(&asked.writer_cpus),
        asked.entries,
        asked.deletes_per_s
    );
    if asked.think_ns > 0 {
        text += &format!(", {} of computing between two look-ups", time(asked.think_ns));
    }
    if asked.section_ns > 0 {
        text += &format!(", {} of computing within a section", time(asked.section_ns));
    }
    if asked.stall_ms > 0 {
        text += &format!(", one reader stalled once for {}", time(asked.stall_ms * units::MILLISECOND_NS));
    }
    if asked.quiescent_every > 1 {
        text += &format!(
            ", a quiescent state every {} look-ups where readers report them",
            asked.quiescent_every
        );
    }
    text
}

fn cpus(cpus: &[usize]) -> String {
    let list = cpus.iter().map(usize::to_string).collect::<Vec<_>>();
    format!("CPU{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}
