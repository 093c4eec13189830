//! Programs of the host's run in a real guest, and what they say becomes an observation. They are this workspace's own,
//! which `cargo test --workspace` builds; where they are not built a test says so and passes, unless
//! REPRIEVE_TEST_REQUIRE_PEERS is set.

mod support;

use std::time::Duration;

use reprieve_study::observation::Observation;
use reprieve_study::scenario::{GroundKind, Scenario};
use reprieve_study::{metric, overrides};
use reprieve_vm::{ground, program};
use support::{BOOT_LIMIT, Bench, PATIENCE, STOP_LIMIT, programs};

fn scenario(scheme: &str, condition: &str) -> Scenario {
    let text = format!(
        "name = 't'\ntitle = 't'\n[run]\nwarmup_ms = 500\nwindow_ms = 2000\n[guest]\naccelerator = 'tcg'\n\
         memory_mib = 256\nboot_limit_ms = {}\n[workload]\nkind = 'delete-free'\nscheme = '{scheme}'\n\
         entries = 4096\nreaders = 1\ndeletes_per_s = 500\n[conditions.c]\n{condition}",
        BOOT_LIMIT.as_millis()
    );
    overrides::read(&text, Some(GroundKind::Vm), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// A lab whose guests can run that scheme's program.
fn bench(scheme: &str) -> Option<Bench> {
    match program::needed(&scenario(scheme, ""), &programs()) {
        Ok(paths) => Bench::open_with(paths),
        Err(error) => {
            assert!(std::env::var_os("REPRIEVE_TEST_REQUIRE_PEERS").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn run(bench: &Bench, scheme: &str, condition: &str) -> Observation {
    let planned = scenario(scheme, condition).plan().unwrap().remove(0);
    let observed = bench.lab.run(&planned, &mut |stage| eprintln!("{stage}"));
    let observed = observed.unwrap_or_else(|error| panic!("{error}"));
    eprintln!("{:#?}\n{:?}", observed.metrics, observed.provenance);
    observed
}

/// The program itself ends with an error unless all that it retired was freed, and no reader met freed memory.
#[test]
fn a_scheme_frees_all_that_it_retired() {
    let Some(bench) = bench("reprieve-restartable") else { return };
    let observed = run(&bench, "reprieve-restartable", "");
    let value = |id: &str| *observed.metrics.get(id).unwrap_or_else(|| panic!("no {id}"));
    for id in [metric::DELIVERED, metric::DELAY_P50, metric::WRITER_COST, metric::THROUGHPUT] {
        assert!(value(id) > 0.0, "{id}");
    }
    // Each delete costs a call, those of the warm-up too.
    assert!(value(metric::MEMBARRIERS) >= value(metric::DELIVERED));
    assert_eq!(value(metric::SWITCHES), 0.0, "of a domain that never switches");
    assert!(value(metric::DELAY_MAX) >= value(metric::DELAY_P99));
    let notes = &observed.provenance.notes;
    assert!(
        notes.iter().all(|note| !note.contains("freed while") && !note.contains("nothing was")),
        "{notes:?}"
    );
    assert_eq!((observed.provenance.vcpus.len(), observed.provenance.accelerator.as_str()), (2, "tcg"));
    assert!(value(metric::CPU_SHARE) > 0.0 && observed.provenance.window_ns > 2_500_000_000);
}

/// Its vCPU away for 80 ms at a time, each membarrier of that time is slow, though most calls are quick.
#[test]
fn an_adaptive_domain_leaves_membarrier_while_a_vcpu_is_throttled() {
    let Some(bench) = bench("reprieve-adaptive") else { return };
    if let Err(error) = ground::try_quota(&bench.lab.host) {
        eprintln!("skipped: {error}");
        return;
    }
    let observed = run(&bench, "reprieve-adaptive", "quota = [{ vcpu = 0, percent = 20, period_ms = 100 }]");
    assert!(observed.metrics[metric::SWITCHES] >= 1.0);
    assert!(observed.metrics[metric::DELIVERED] > 0.0);
}

#[test]
fn a_program_that_fails_or_is_not_there_is_an_error() {
    let Some(bench) = bench("reprieve-restartable") else { return };
    let mut booted = bench.boot(1, 256, "");
    for command in ["program", "program name=other", "program name=../lib/ld.so", "program name=reprieve=1"] {
        eprintln!("{}", booted.link.start(command).unwrap_err());
    }
    booted.link.start("program name=reprieve-restartable argument=--nonsense").unwrap();
    let error = booted.link.wait_finished(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("the program exited with 2"), "{error}");
    booted.link.stop(STOP_LIMIT).unwrap();
    // And goes on; a program that is stopped is ended.
    booted.link.start("program name=reprieve-restartable argument=--describe").unwrap();
    booted.link.wait_finished(PATIENCE).unwrap();
    booted.link.stop(STOP_LIMIT).unwrap();
    let said = String::from_utf8(booted.link.read_file("/tmp/program.out").unwrap()).unwrap();
    assert!(said.contains("\"scheme\":\"reprieve-restartable\""), "{said}");
    let long = "argument=--writer-cpus=0 argument=--entries=64 argument=--duration-ms=600000";
    booted.link.start(&format!("program name=reprieve-restartable {long}")).unwrap();
    booted.link.let_work(Duration::from_millis(500)).unwrap();
    booted.link.stop(STOP_LIMIT).unwrap();
}
