//! Where and how a study was simulated.

use reprieve_study::scenario::NoiseTail;
use reprieve_study::{Study, units};

use super::{Fact, distinct, outcome, setting};

/// For captions: guest, host, seed, and the hash by which the result is known again.
pub fn short(study: &Study) -> String {
    let (guest, host) = (&study.scenario.guest, &study.scenario.host);
    let mut parts = vec![
        format!("{} vCPUs, {} MiB", guest.vcpus, guest.memory_mib),
        format!("{} pCPUs, {}", host.pcpus_for(guest.vcpus), host.scheduler.name()),
        format!("guest {} times as fast as those of the calibration", guest.speed),
        format!("seed {}", study.scenario.run.seed),
    ];
    parts.extend(study.result_hash().map(|hash| format!("result {hash}")));
    parts.join("; ")
}

/// The machines.
pub fn machine(study: &Study) -> Vec<Fact> {
    let (guest, host) = (&study.scenario.guest, &study.scenario.host);
    let time = |ns: u64| units::duration(ns as f64);
    let scheduler = host.scheduler_text();
    let rcu = match guest.rcu.command_line() {
        words if words.is_empty() => words,
        words => format!(", {words}"),
    };
    let tail = |tail: &NoiseTail| {
        let (every, for_) = (time(tail.every_us * 1000), time(tail.for_us * 1000));
        format!(", and every {every} for {for_}")
    };
    let timers = match guest.timer_thread_ns {
        0 => String::new(),
        ns => format!(", its timers served by a thread of the emulator, in {} each", time(ns)),
    };
    let kernel = if guest.kernel.is_empty() { String::new() } else { format!("Linux {}, ", guest.kernel) };
    let tails: String = host.noise_tail.iter().map(tail).collect();
    vec![
        setting("Ground", distinct(study, |run| run.provenance.ground.clone())),
        setting(
            "Guest",
            format!(
                "{kernel}{} vCPUs, {} MiB, HZ {}, {}, {} spinlocks{rcu}{timers}",
                guest.vcpus,
                guest.memory_mib,
                guest.hz,
                speed(guest.speed),
                guest.spinlocks
            ),
        ),
        setting(
            "Host",
            format!(
                "{} pCPUs, {scheduler}, HZ {}; a context switch takes {}, cold caches cost {}; its own threads run \
                 {} times a second and pCPU, for {}{tails}",
                host.pcpus_for(guest.vcpus),
                host.hz,
                time(host.switch_ns),
                time(host.cold_cache_ns),
                host.noise_per_s,
                time(host.noise_ns)
            ),
        ),
    ]
}

fn speed(times: f64) -> String {
    let times = if times == 1.0 { String::new() } else { format!("{times} times ") };
    format!("{times}as fast as the guests it was calibrated on")
}

/// What makes the result known again.
pub fn result(study: &Study) -> Vec<Fact> {
    let events: u64 = study.observations.iter().map(|run| run.provenance.events).sum();
    let hash = study.result_hash().map_or_else(String::new, |hash| {
        format!("{hash} (hash of all runs' results; the same scenario and seed give it again)")
    });
    let events =
        if events > 0 { format!("{} simulated", units::count(events as f64)) } else { String::new() };
    vec![outcome("Events", events), outcome("Result", hash)]
}
