//! That the checks after a run can fail: faults are planted in a world that ran. And that the order of what happens at
//! the same time is part of the result.

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Scenario, overrides};

use super::*;
use crate::build::build;
use crate::cpu_share::CpuShare;
use crate::guest::rcu::Effects;
use crate::guest::vcpu::Presence;

const SCENARIO: &str = "
    name = 't'
    title = 't'
    guest.memory_mib = 256
    workload = { kind = 'memory', burst = 10 }
    [conditions.over]
    overcommit = 2
    neighbours = 1
";

/// A world of two VMs whose vCPUs compete, after a tenth of a second.
fn world(reversed: bool) -> World {
    let scenario: Scenario = overrides::read(SCENARIO, None, &[]).unwrap();
    let mut world = build(&scenario, &scenario.conditions["over"], 7, CpuShare::ALL).unwrap().world;
    world.queue.ties_reversed = reversed;
    world.start();
    assert!(world.run_until(100 * MILLISECOND_NS, u64::MAX));
    world
}

fn broken(plant: impl FnOnce(&mut World)) -> String {
    let mut world = world(false);
    assert_eq!(world.check(), Ok(()));
    plant(&mut world);
    world.check().expect_err("a fault was planted")
}

#[test]
fn a_lost_callback_is_seen() {
    let message = broken(|world| {
        // A batch is begun and ended like any other, but nobody runs what it took.
        let ready =
            |world: &mut World| (0..2).find(|v| world.guests[0].rcu.state.begin_batch(0, *v).is_some());
        let cpu = loop {
            match ready(world) {
                Some(cpu) => break cpu,
                None => assert!(world.run_until(world.now_ns + 100_000, 1_000_000), "none is ever ready"),
            }
        };
        let rcu = &mut world.guests[0].rcu.state;
        rcu.next_callback(cpu).expect("the batch has one");
        assert_eq!(rcu.end_batch(cpu, &mut Effects::default()), 1);
    });
    assert!(message.contains("callbacks were queued"), "{message}");
}

#[test]
fn a_callback_invoked_twice_is_seen_though_more_were_invoked_than_queued() {
    let message = broken(|world| {
        let rcu = &mut world.guests[0].rcu;
        rcu.invoked = rcu.queued + 1;
    });
    assert!(message.contains("callbacks were queued"), "{message}");
}

#[test]
fn a_lost_frame_is_seen() {
    let message = broken(|world| world.guests[0].memory.lose_a_frame());
    assert!(message.contains("is in no block"), "{message}");
}

#[test]
fn time_that_a_pcpu_gave_twice_is_seen() {
    let message = broken(|world| world.hosts[0].pcpus[1].busy_ns += 1);
    assert!(message.starts_with("pCPUs gave"), "{message}");
}

#[test]
fn time_that_a_thread_got_twice_is_seen() {
    let message = broken(|world| world.hosts[0].threads[0].run_ns += 1);
    assert!(message.starts_with("pCPUs gave"), "{message}");
}

#[test]
fn time_that_a_guest_forgot_is_seen() {
    let message = broken(|world| world.guests[0].vcpu_mut(1).times.user_ns += 1);
    assert!(message.starts_with("vCPU 1 used"), "{message}");
}

#[test]
fn another_order_of_what_happens_at_the_same_time_is_another_run() {
    let digest = |reversed: bool| world(reversed).digest;
    assert_eq!(digest(false), digest(false));
    assert_eq!(digest(true), digest(true));
    assert_ne!(digest(false), digest(true), "the digest must tell who came first");
}

/// A guest whose tasks contend for a spinlock while neighbours contend for its pCPUs.
const CONTENDED: &str = "
    name = 't'
    title = 't'
    guest = { vcpus = 4, memory_mib = 256, speed = 0.1, spinlocks = 'paravirtual' }
    workload = { kind = 'postmark', processes = 8, files = 80, transactions = 10_000 }
    [conditions.real]
    overcommit = 2
    [conditions.spared]
    overcommit = 2
    without = ['lock-holder-preemption']
";

/// What 20,000 looks at the vCPUs see of the lock.
#[derive(Default)]
struct Seen {
    /// Holders whose vCPU is descheduled.
    descheduled_holders: u32,
    /// Waiters.
    waiters: u32,
    /// Waiters that are taken for holders.
    mistaken: u32,
}

fn looks_at_the_lock(condition: &str) -> Seen {
    let scenario: Scenario = overrides::read(CONTENDED, None, &[]).unwrap();
    let built = build(&scenario, &scenario.conditions[condition], 7, CpuShare::ALL).unwrap();
    let mut world = built.world;
    world.start();
    let mut seen = Seen::default();
    for look in 1..=20_000 {
        assert!(world.run_until(look * 100_000, u64::MAX));
        let guest = &world.guests[0];
        for (v, vcpu) in guest.vcpus().iter().enumerate() {
            let (holds, waits) = (guest.holds_lock(v), vcpu.spins_for.is_some());
            seen.descheduled_holders += u32::from(holds && vcpu.presence == Presence::Descheduled);
            seen.waiters += u32::from(waits);
            seen.mistaken += u32::from(waits && holds);
        }
    }
    seen
}

#[test]
fn who_holds_a_lock_is_not_descheduled_in_the_counterfactual_and_who_waits_is_no_holder() {
    let (real, spared) = (looks_at_the_lock("real"), looks_at_the_lock("spared"));
    assert!(real.descheduled_holders > 0 && real.waiters > 0, "there is something to spare");
    assert_eq!(spared.descheduled_holders, 0);
    assert_eq!((real.mistaken, spared.mistaken), (0, 0));
}

/// A vCPU that sleeps nearly always shares its pCPU with two busy threads, and waits for them whenever it is kicked: for
/// its guest it is idle meanwhile, so that hardly any time is missing from the guest's accounts.
#[test]
fn waiting_out_of_idleness_is_idle_time() {
    const SLEEPER: &str = "
        name = 't'
        title = 't'
        guest = { memory_mib = 256, vcpus = 1 }
        workload = { kind = 'memory', burst = 1, pause_us = 5_000 }
        [conditions.c]
        hogs = 2
    ";
    let scenario: Scenario = overrides::read(SLEEPER, None, &[]).unwrap();
    let mut world = build(&scenario, &scenario.conditions["c"], 7, CpuShare::ALL).unwrap().world;
    world.start();
    assert!(world.run_until(SECOND_NS, u64::MAX));
    let times = world.guests[0].vcpus()[0].times_at(world.now_ns);
    let accounted_ns = times.user_ns + times.system_ns + times.irq_ns + times.softirq_ns + times.idle_ns;
    let delay_ns = world.vcpu_times(0)[0].1;
    assert!(delay_ns > 100 * MILLISECOND_NS, "it waits: {delay_ns} ns");
    assert!(accounted_ns > 980 * MILLISECOND_NS, "{times:?}");
}

/// Ticks of a guest with two busy vCPUs, each as the time that its timer was set for and the time that it came.
fn ticks(assignments: &[&str]) -> Vec<(u64, u64)> {
    const BUSY: &str = "
        name = 't'
        title = 't'
        guest = { memory_mib = 256, vcpus = 2 }
        host = { pcpus = 3, noise_per_s = 0 }
        workload = { kind = 'memory' }
        [conditions.c]
    ";
    let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
    let scenario: Scenario = overrides::read(BUSY, None, &assignments).unwrap();
    let mut world = build(&scenario, &scenario.conditions["c"], 7, CpuShare::ALL).unwrap().world;
    world.start();
    let mut ticks = Vec::new();
    let due = |world: &World| [0, 1].map(|v| world.guests[0].vcpus()[v].next_tick_ns);
    let mut before = due(&world);
    for now_us in 1..200_000 {
        assert!(world.run_until(now_us * 1_000, u64::MAX));
        let after = due(&world);
        for v in [0, 1] {
            // The first ones fall while the guest boots.
            if after[v] != before[v] && now_us > 20_000 {
                ticks.push((before[v], world.now_ns));
            }
        }
        before = after;
    }
    ticks
}

#[test]
fn timers_that_a_thread_of_the_emulator_serves_come_late_and_one_after_the_other() {
    let late_ns = |ticks: &[(u64, u64)]| -> Vec<u64> { ticks.iter().map(|(due, came)| came - due).collect() };
    let at_once = late_ns(&ticks(&[]));
    assert!(at_once.len() > 80 && at_once.iter().all(|ns| *ns <= 1_000), "{at_once:?}");

    // Both are served before either comes, and the lock goes from one to the other.
    let served = ticks(&["guest.timer_thread_ns=40000"]);
    assert!(late_ns(&served).iter().all(|ns| (80_000..600_000).contains(ns)), "{served:?}");
    let apart: Vec<u64> = served.chunks_exact(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let mean_ns = apart.iter().sum::<u64>() / apart.len() as u64;
    assert!((15_000..40_000).contains(&mean_ns), "{apart:?}");

    // On a pCPU that others keep busy the thread waits, and so do the vCPUs that have one of their own.
    let waits = ticks(&["guest.timer_thread_ns=40000", "host.pcpus=2", "conditions.c.hogs=3"]);
    assert!(late_ns(&waits).iter().any(|ns| *ns > MILLISECOND_NS), "{waits:?}");
}

/// The guest's kernel is part of the result: nothing that a scenario says is without effect in silence.
#[test]
fn a_guest_of_another_kernel_runs_otherwise() {
    let digest = |kernel: &str| {
        let scenario: Scenario =
            overrides::read(SCENARIO, None, &[format!("guest.kernel={kernel}")]).unwrap();
        let mut world = build(&scenario, &scenario.conditions["over"], 7, CpuShare::ALL).unwrap().world;
        world.start();
        assert!(world.run_until(100 * MILLISECOND_NS, u64::MAX));
        world.digest
    };
    assert_eq!(digest("6.1"), digest(""));
    assert_ne!(digest("6.1"), digest("6.12"));
}
