//! A vCPU under a CPU quota, and the two ways to learn what the host's scheduler did to it.

mod support;

use std::time::{Duration, Instant};

use reprieve_study::Condition;
use reprieve_study::grace_period::{Span, union_ns};
use reprieve_study::scenario::VcpuQuota;
use reprieve_vm::VmError;
use reprieve_vm::bursts::Timing;
use reprieve_vm::cpu_account::CpuAccount;
use reprieve_vm::stimulus::Stimulus;
use reprieve_vm::watch::{Recording, Sampler, Watcher};
use support::{Bench, STOP_LIMIT};

/// Descheduled time of a vCPU within a window.
fn descheduled_ns(recording: &Recording, vcpu: usize, window: Span) -> u64 {
    union_ns(recording.scheduling.descheduled[vcpu].iter().filter_map(|span| span.overlap(window)).collect())
}

#[test]
fn two_sources_agree_on_a_vcpu_under_quota() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    let (host, machine) = (&bench.lab.host, &booted.machine);
    let condition = Condition {
        quota: vec![VcpuQuota { vcpu: 1, percent: 20.0, period_ms: 100, burst_ms: 0 }],
        ..Condition::default()
    };
    let stimulus = match Stimulus::apply(&condition, machine, &bench.lab.pcpus, host, Timing::from_now(1)) {
        Ok(stimulus) => stimulus,
        Err(VmError::Host(
            error @ (reprieve_linux::Error::Missing { .. } | reprieve_linux::Error::NotPermitted { .. }),
        )) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    booted.link.start("memory").unwrap();
    booted.link.let_work(Duration::from_millis(500)).unwrap();

    let (pid, tids) = (booted.machine.pid(), booted.machine.vcpu_tids.clone());
    let (switches, refused) = Watcher::open(&host.proc_root, pid, &tids).unwrap();
    let delays = Watcher::delays(&host.proc_root, pid, &tids).unwrap();
    let account = CpuAccount::open(&host.proc_root, pid, &tids, &bench.lab.pcpus, &[]).unwrap();
    let started = Instant::now();
    let samplers =
        [switches, delays].map(|watcher| Sampler::start(bench.reader(&booted), watcher, 1000, 1).unwrap());
    booted.link.let_work(Duration::from_millis(3000)).unwrap();
    let [switches, delays] = samplers.map(Sampler::finish);
    let window_ns = started.elapsed().as_nanos() as u64;
    let vcpus = account.close(&host.proc_root).unwrap().vcpus;
    drop(stimulus);
    booted.link.stop(STOP_LIMIT).unwrap();

    let share = vcpus[1].run_ns as f64 / window_ns as f64;
    assert!(share < 0.3, "vCPU 1 got {share}");
    let window = switches.window.overlap(delays.window).unwrap();
    for recording in [&switches, &delays] {
        for spans in &recording.scheduling.descheduled {
            assert!(
                spans.iter().all(|span| span.overlap(recording.window) == Some(*span)),
                "outside the window"
            );
        }
    }
    let [by_switches, by_delays] = [&switches, &delays].map(|recording| descheduled_ns(recording, 1, window));
    eprintln!(
        "vCPU 1 got {share:.3}; descheduled of {} ns: {by_switches} by {}, {by_delays} by {}",
        window.length_ns(),
        switches.scheduling.source,
        delays.scheduling.source
    );
    // It is never idle, so it is off its pCPU only when it is descheduled.
    assert!(by_delays * 2 > window.length_ns());
    if let Some(why) = refused {
        return eprintln!("skipped: {why}");
    }
    assert_eq!(switches.scheduling.lost, 0);
    assert!(by_switches.abs_diff(by_delays) * 100 < 15 * by_delays, "{by_switches} and {by_delays}");
}
