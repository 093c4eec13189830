//! The same program on machines that offer less. The environment variable that switches things off simulates each, in
//! a process of its own.

mod common;

use reprieve_rcu::{Obstacle, RcuCell, capabilities};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads by all kinds while a writer replaces; run by the tests below.
#[test]
fn workload() {
    let domain = common::domain();
    let cell = RcuCell::in_domain(&domain, [1u64; 4]);
    assert_eq!(cell.get(), [1; 4]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let value = cell.get();
                assert!(value[0] == value[3] && value[0] != 0);
                let guard = domain.lock();
                assert!(cell.load(&guard)[0] != 0);
            }
        });
        (2..2_000u64).for_each(|v| cell.replace([v; 4]));
        stop.store(true, Ordering::Relaxed);
    });
    domain.barrier();
    let stats = domain.stats();
    assert_eq!(stats.garbage_objects, 0);
    match std::env::var("REPRIEVE_RCU").as_deref() {
        Ok("fence" | "off") => {
            assert_eq!(capabilities().restartable, Err(Obstacle::SwitchedOff));
            assert!(!capabilities().asymmetric && stats.fenced);
            assert_eq!(stats.membarrier.count(), 0);
        }
        Ok("no-rseq") => {
            assert_eq!(capabilities().restartable, Err(Obstacle::SwitchedOff));
            assert!(stats.fallbacks > 0 && stats.restarts == 0);
        }
        Ok("rseq") => assert_eq!(capabilities().restartable, Ok(())),
        _ => {}
    }
    if std::env::var_os("UNDER_VALGRIND").is_some() {
        assert_eq!(capabilities().restartable, Err(Obstacle::NoRseq));
    }
}

fn run_with(key: &str, value: &str) {
    run_with_all([(key, value)]);
}

fn run_with_all<const N: usize>(environment: [(&str, &str); N]) {
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program).args(["--exact", "workload"]).envs(environment).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
}

#[test]
fn without_rseq() {
    run_with("REPRIEVE_RCU", "no-rseq");
}

#[test]
fn without_membarrier() {
    run_with("REPRIEVE_RCU", "fence");
    run_with("REPRIEVE_RCU", "off");
}

#[test]
fn without_the_c_librarys_registration() {
    run_with("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
}

/// The library registers the threads itself, as it does with musl and an older glibc.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(reprieve_fallback)))]
fn with_a_registration_of_its_own() {
    if capabilities().restartable.is_ok() {
        run_with_all([("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), ("REPRIEVE_RCU", "rseq")]);
    }
}

/// valgrind offers no rseq, so this runs the fallback path, with every access checked.
#[test]
#[ignore = "needs valgrind; scripts/valgrind runs it where valgrind is installed"]
fn under_valgrind() {
    let program = std::env::current_exe().unwrap();
    let checks = ["--error-exitcode=1", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    // Fair, because a spinning thread would otherwise keep valgrind's only lock.
    let run = Command::new("valgrind")
        .args(checks)
        .arg("--fair-sched=yes")
        .arg(program)
        .args(["--exact", "workload", "--nocapture"])
        .env("UNDER_VALGRIND", "1")
        .output()
        .expect("valgrind");
    let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}{errors}");
    assert!(out.contains("1 passed") && errors.contains("ERROR SUMMARY: 0 errors"), "{out}{errors}");
}
