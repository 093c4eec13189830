//! The host's view of a guest agrees with the guest's own, in the same run.

mod support;

use std::time::Duration;

use support::compare::{self, IdleTime};
use support::{Bench, STOP_LIMIT};

#[test]
fn memory_agrees_to_the_page() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    let reader = bench.reader(&booted);
    let compare = |booted: &mut _| {
        compare::buddy(booted, &reader).unwrap();
        compare::unusable_index(booted, &reader).unwrap();
        compare::footprint(booted, &reader).unwrap();
        compare::slab(booted, &reader).unwrap();
    };
    compare(&mut booted);
    // Other numbers, once memory has been in use.
    booted.link.start("postmark processes=2 files=400 transactions=400").unwrap();
    booted.link.wait_finished(STOP_LIMIT).unwrap();
    booted.link.stop(STOP_LIMIT).unwrap();
    compare(&mut booted);
}

#[test]
fn grace_periods_agree() {
    grace_periods_agree_with("");
}

/// vCPU 1 without a tick: the kthread's scan clears its bit instead of the vCPU itself.
#[test]
fn grace_periods_agree_under_nohz_full() {
    grace_periods_agree_with("nohz_full=1");
}

fn grace_periods_agree_with(append: &str) {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, append);
    // A pause, so that the workers leave time to the poll.
    booted.link.start("memory pause_us=200 poll_us=100").unwrap();
    let mut watch = || {
        let readers = [bench.reader(&booted), bench.reader(&booted)];
        let figures = compare::watch_grace_periods(&mut booted, readers, Duration::from_millis(1500));
        eprintln!("{figures:?}");
        figures.counts_agree().unwrap();
        figures
    };
    // The less the poll was descheduled, the better the durations can be compared.
    let undisturbed = (0..4).map(|_| watch()).find(|figures| figures.is_undisturbed());
    undisturbed.unwrap_or_else(watch).means_agree().unwrap();
}

#[test]
fn the_backlog_agrees() {
    the_backlog_agrees_with("");
}

/// Callbacks that threads invoke wait in other lists, of which the kernel keeps the same count.
#[test]
fn the_backlog_agrees_under_rcu_nocbs() {
    the_backlog_agrees_with("rcu_nocbs=all");
}

fn the_backlog_agrees_with(append: &str) {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, append);
    let reader = bench.reader(&booted);
    for burst in [3_000, 6_000] {
        booted.link.start(&compare::stalling(burst)).unwrap();
        let (host, guest) = compare::backlog(&mut booted, &reader).unwrap();
        booted.link.stop(STOP_LIMIT).unwrap();
        let drained = compare::drained_backlog(&reader).unwrap();
        eprintln!("backlog: host {host}, guest {guest}; drained {drained}");
    }
}

#[test]
fn cpu_time_agrees() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    let reader = bench.reader(&booted);
    compare::cpu_time(&mut booted, &reader).unwrap();
    let mut busy = || {
        booted.link.start("memory").unwrap();
        booted.link.let_work(Duration::from_millis(300)).unwrap();
        compare::cpu_time(&mut booted, &reader).unwrap();
        let idle = IdleTime::now(&mut booted, &reader);
        booted.link.stop(STOP_LIMIT).unwrap();
        idle
    };
    let first = busy();
    std::thread::sleep(Duration::from_secs(2));
    let (host_ns, guest_ns) = busy().since(&first);
    eprintln!("idle: host {host_ns} ns, guest {guest_ns} ns");
    // The kernel's two ways to count it: by ticks, and by the clock, which /proc/stat prefers.
    assert!(host_ns.abs_diff(guest_ns) * 20 < guest_ns, "host {host_ns}, guest {guest_ns}");
}
