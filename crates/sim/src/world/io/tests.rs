//! What the host does for guests that do I/O, and what is counted as inactive, in worlds of one or two pCPUs.

use reprieve_study::units::MILLISECOND_NS as MS;
use reprieve_study::{Scenario, overrides};

use super::*;
use crate::build::build;
use crate::cpu_share::CpuShare;

const SCENARIO: &str = "
    name = 't'
    title = 't'
    run = { repeat = 1, warmup_ms = 100, window_ms = 1000 }
    observe = { sample_hz = 100, sync_every_ms = 0 }
    guest = { vcpus = 2, memory_mib = 256, speed = 16.0 }
    host = { pcpus = 2, scheduler = 'cfs', noise_per_s = 0 }
    [workload]
    kind = 'io'
    application = 'computes'
    computing = 2
    computing_weight = 3
    [workload.applications.computes]
    tasks = [{ steps = [{ do = 'compute', us = 100_000 }] }]
    [workload.applications.reads]
    tasks = [{ steps = [{ do = 'read', access = 'random', kib = 4 }, { do = 'compute', us = 20 }] }]
    [conditions.shared]
    neighbours = 3
";

/// A world that has run for that long, and watches when its vCPUs are off.
fn ran(assignments: &[&str], for_ms: u64) -> World {
    let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
    let scenario: Scenario = overrides::read(SCENARIO, None, &assignments).unwrap();
    let condition = &scenario.conditions["shared"];
    let mut world = build(&scenario, condition, 7, CpuShare::ALL).unwrap().world;
    world.record_descheduling();
    world.start();
    assert!(world.run_until(for_ms * MS, u64::MAX));
    world
}

/// Time for which vCPU 0 of the guest was paused.
fn paused_ns(world: &World) -> u64 {
    world.guest(0).vcpus()[0].times_at(world.now_ns).paused_ns
}

#[test]
fn a_vcpu_that_would_only_compute_pauses_though_no_io_is_under_way() {
    assert_eq!(paused_ns(&ran(&[], 2_000)), 0);
    let world = ran(&["workload.system=xballoon"], 2_000);
    assert!(paused_ns(&world) > 200 * MS, "{}", paused_ns(&world));
    let (run_ns, _) = world.vcpu_times(0)[0];
    assert!(run_ns > 200 * MS, "the accounting ends pauses, so that it computes, too: {run_ns}");
}

#[test]
fn a_vm_that_pauses_gets_no_more_than_its_share_and_others_get_theirs() {
    let world = ran(&["workload.system=xballoon", "workload.application=reads"], 10_000);
    assert!(paused_ns(&world) > 100 * MS);
    let own_ns: u64 = world.vcpu_times(0).iter().map(|(run_ns, _)| run_ns).sum();
    // Of two pCPUs for 10 s a quarter, and what it keeps at most of an accounting period.
    assert!(own_ns <= 5_000 * MS + 2 * 30 * MS, "{own_ns}");
    let threads = world.hosts[0].threads.len() as u32;
    let busy =
        |entity: &u32| matches!(world.hosts[0].threads[*entity as usize].body, crate::host::Body::Busy);
    let others: Vec<u64> =
        (0..threads).filter(busy).map(|entity| world.thread_run_ns(0, Entity(entity))).collect();
    let (least, most) = (others.iter().min().unwrap(), others.iter().max().unwrap());
    assert!(most - least < most / 10, "a pause unbalances nothing: {others:?}");
}

#[test]
fn saved_share_is_what_unpaused_vcpus_run_by_at_once() {
    // The reader takes far less than a quarter: whenever its request is done it has a right to CPU time.
    let off_ns = |system: &str| {
        let world = ran(&["workload.application=reads", system], 4_000);
        world.guest(0).io().unwrap().inactive_ns(world.now_ns)
    };
    let (plain, paused) = (off_ns("workload.system=plain"), off_ns("workload.system=xballoon"));
    assert!(plain > 2_500 * MS, "{plain}");
    assert!(paused < plain / 2, "{paused} of {plain}");
}

/// Stretches of at least half a millisecond during which vCPU 0 was off after a second, sorted.
fn off_ns(system: &str) -> Vec<u64> {
    let mut world = ran(&[system, "workload.computing_weight=1024"], 5_000);
    let mut off: Vec<u64> = world.descheduled()[0]
        .iter()
        .filter(|span| span.start_ns > 1_000 * MS)
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    off.retain(|ns| *ns > MS / 2);
    off.sort_unstable();
    off
}

#[test]
fn micro_slices_are_so_many_a_round() {
    // With two pCPUs slices are 4 ms: four of them are a round.
    let plain = off_ns("workload.system=plain");
    let cut = off_ns("workload.system=vslicer");
    let median = |off: &[u64]| off[off.len() / 2];
    assert!((10 * MS..14 * MS).contains(&median(&plain)), "{}", median(&plain));
    assert!((2 * MS..4 * MS).contains(&median(&cut)), "{}", median(&cut));
    assert!(cut.len() > 3 * plain.len(), "{} and {}", cut.len(), plain.len());
}

#[test]
fn who_could_go_on_is_inactive_while_its_vcpu_is_off() {
    // One task that never waits for a disk: all the time that its vCPU is off, and no other.
    let world = ran(&["guest.vcpus=1", "host.pcpus=1", "workload.computing=1"], 3_000);
    let (run_ns, off_ns) = world.vcpu_times(0)[0];
    let io = world.guest(0).io().unwrap();
    assert!(off_ns > 1_000 * MS && run_ns > 500 * MS);
    assert_eq!(io.inactive_ns(world.now_ns), off_ns);
    assert_eq!(io.whole_inactive_ns(world.now_ns), off_ns);
}

#[test]
fn who_waits_for_the_disk_is_not_inactive_until_its_interrupt_waits() {
    let one = ["guest.vcpus=1", "host.pcpus=1", "workload.computing=1", "workload.application=reads"];
    // A disk that takes longer than the run, and one that takes 60 us.
    let slow = ran(&[&one[..], &["workload.disk.access_us=1_000_000"]].concat(), 900);
    assert!(slow.vcpu_times(0)[0].1 > 300 * MS);
    let inactive_ns = slow.guest(0).io().unwrap().inactive_ns(slow.now_ns);
    assert!(inactive_ns < 50 * MS, "until it has submitted: {inactive_ns}");
    let fast = ran(&one, 3_000);
    let (_, off_ns) = fast.vcpu_times(0)[0];
    let inactive_ns = fast.guest(0).io().unwrap().inactive_ns(fast.now_ns);
    assert!(inactive_ns <= off_ns && inactive_ns > off_ns / 10 * 9, "{inactive_ns} of {off_ns}");
}

#[test]
fn two_tasks_are_inactive_twice_as_long_as_their_vm() {
    let one = ["guest.vcpus=1", "host.pcpus=1", "workload.computing=1", "workload.clients=2"];
    let world = ran(&one, 3_000);
    let io = world.guest(0).io().unwrap();
    assert_eq!(io.inactive_ns(world.now_ns), 2 * io.whole_inactive_ns(world.now_ns));
}
