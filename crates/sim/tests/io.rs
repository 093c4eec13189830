//! Applications that do I/O: what must hold whatever the application and the system.

mod support;

use std::cell::Cell;
use std::rc::Rc;

use reprieve_sim::ground::{self, Tapes};
use reprieve_sim::guest::block::{Block, BlockSpec};
use reprieve_sim::guest::env::Env;
use reprieve_sim::guest::io::BlockIo;
use reprieve_sim::guest::task::{Op, Program};
use reprieve_study::ground::Progress;
use reprieve_study::units::{MIB, MILLISECOND_NS};
use reprieve_study::{Observation, Scenario, metric, overrides};

const SCENARIO: &str = "
    name = 't'
    title = 't'
    run = { repeat = 1, warmup_ms = 500, window_ms = 2000 }
    observe = { sample_hz = 100, sync_every_ms = 0 }
    guest = { vcpus = 4, memory_mib = 256, speed = 16.0 }
    host = { pcpus = 4, scheduler = 'cfs', noise_per_s = 20, noise_ns = 50_000 }
    [workload]
    kind = 'io'
    application = 'reader'
    computing = 4
    computing_weight = 3
    block = { page_kib = 64 }
    [workload.applications.reader]
    tasks = [{ file_mib = 4096, steps = [
        { do = 'read', access = 'sequential', kib = 128 }, { do = 'compute', us = 60 },
    ] }]
    [workload.applications.mixed]
    tasks = [{ threads = 3, file_mib = 512, working_set_kib = 256, steps = [
        { do = 'read', access = 'random', kib = 64 }, { do = 'compute', us = 700, spread_percent = 50 },
        { do = 'write', access = 'sequential', kib = 64 },
    ] }]
    [conditions.alone]
    [conditions.plain]
    neighbours = 3
    [conditions.vslicer]
    neighbours = 3
    set = { workload.system = 'vslicer' }
    [conditions.xballoon]
    neighbours = 3
    set = { workload.system = 'xballoon' }
    [conditions.vmigrater]
    neighbours = 3
    set = { workload.system = 'vmigrater' }
";

struct Silent;

impl Progress for Silent {
    fn preparing(&mut self, _: &str) {}
    fn running(&mut self, _: usize, _: usize, _: &str, _: &str) {}
    fn ended(&mut self, _: usize, _: usize, _: &Observation) {}
    fn warning(&mut self, _: &str) {}
}

fn scenario(assignments: &[&str]) -> Scenario {
    let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
    overrides::read(SCENARIO, None, &assignments).unwrap()
}

fn run(assignments: &[&str]) -> Vec<Observation> {
    let finished = ground::run(scenario(assignments), &Tapes::new(), 2, &|| false, &mut Silent);
    assert!(finished.error.is_none(), "{:?}", finished.error.map(|error| error.to_string()));
    finished.observations
}

fn of<'a>(runs: &'a [Observation], condition: &str) -> &'a Observation {
    runs.iter().find(|run| run.condition == condition).unwrap()
}

fn value(run: &Observation, id: &str) -> f64 {
    run.metrics[id]
}

#[test]
fn the_same_seed_gives_the_same_run_under_every_system() {
    let hashes = |seed: &str| -> Vec<String> {
        let runs = run(&[seed, "run.window_ms=500", "workload.application=mixed"]);
        ["alone", "plain", "vslicer", "xballoon", "vmigrater"]
            .map(|name| of(&runs, name).provenance.result_hash.clone())
            .into()
    };
    let (first, again, other) = (hashes("run.seed=1"), hashes("run.seed=1"), hashes("run.seed=2"));
    assert_eq!(first, again);
    assert!(first.iter().zip(&other).all(|(a, b)| a != b));
}

#[test]
fn inactivity_is_of_vms_that_share_and_never_more_than_time_off() {
    for application in ["reader", "mixed"] {
        let runs = run(&[&format!("workload.application={application}"), "host.noise_per_s=0"]);
        assert_eq!(value(of(&runs, "alone"), metric::IO_INACTIVE), 0.0, "nobody takes its pCPUs");
        for run in &runs {
            let tasks = if application == "reader" { 1.0 } else { 3.0 };
            let (share, window_ns) = (value(run, metric::IO_INACTIVE_SHARE), run.provenance.window_ns as f64);
            let whole = value(run, metric::IO_INACTIVE_VM) / window_ns;
            assert!((value(run, metric::IO_INACTIVE) - share * tasks * window_ns).abs() < 1.0);
            // The VM is inactive only if some task is, and then nothing is at the disk.
            assert!(whole <= share * tasks + 1e-9, "{}: {whole}, {share}", run.condition);
        }
        // No system makes up for all, and plain KVM for least.
        let share = |condition: &str| value(of(&runs, condition), metric::IO_INACTIVE_SHARE);
        assert!(share("plain") > 0.5 && share("plain") < 0.8, "{}", share("plain"));
        assert!(share("vmigrater") < share("plain") / 1.5, "{}", share("vmigrater"));
    }
}

#[test]
fn a_disk_that_is_busy_is_not_counted_as_inactive() {
    for run in run(&[]) {
        let inactive = value(&run, metric::IO_INACTIVE_VM) / run.provenance.window_ns as f64;
        let busy = value(&run, metric::DISK_BUSY);
        assert!(busy > 0.05 && (run.condition == "alone" || inactive > 0.05), "{busy} {inactive}");
        assert!(busy + inactive <= 1.0 + 1e-9, "{}: {busy} + {inactive}", run.condition);
    }
}

/// CPU share of the VM's vCPUs under each system, and of its neighbours.
fn shares(run: &Observation) -> (f64, f64) {
    (value(run, metric::CPU_SHARE), value(run, metric::NEIGHBOUR_CPU))
}

#[test]
fn micro_slices_leave_the_shares_as_they_are() {
    let runs = run(&["host.noise_per_s=0", "run.window_ms=8000"]);
    let (plain, sliced) = (shares(of(&runs, "plain")), shares(of(&runs, "vslicer")));
    assert!((plain.0 - sliced.0).abs() < 0.01, "{plain:?} {sliced:?}");
    assert!((plain.1 - sliced.1).abs() < 0.01, "{plain:?} {sliced:?}");
    assert!((sliced.0 - 0.25).abs() < 0.01, "one of four VMs");
}

#[test]
fn systems_that_move_nothing_move_nothing() {
    let runs = run(&[]);
    for condition in ["alone", "plain", "vslicer", "xballoon"] {
        assert_eq!(value(of(&runs, condition), metric::MOVES), 0.0);
        assert_eq!(value(of(&runs, condition), metric::BEATS_CPU), 0.0);
    }
    assert!(value(of(&runs, "vmigrater"), metric::MOVES) > 0.0);
    // 4 vCPUs that are on for a quarter of the time: a beat of 2 us each ms that one is on, with a switch to it and back.
    let cost = value(of(&runs, "vmigrater"), metric::BEATS_CPU);
    assert!((0.003..0.03).contains(&cost), "{cost}");
}

#[test]
fn the_window_ends_with_the_work() {
    for run in run(&["workload.work_mib=64", "run.conditions=['alone', 'plain']", "run.window_ms=60000"]) {
        let window_s = run.provenance.window_ns as f64 / 1e9;
        let bytes = value(&run, metric::IO_RATE) * window_s;
        let most = 64.0 + value(&run, metric::IO_RATE) / MIB as f64 / 100.0;
        let mib = bytes / MIB as f64;
        assert!((64.0..most + 1.0).contains(&mib), "{}: {mib} MiB", run.condition);
    }
}

#[test]
fn what_is_written_is_no_part_of_the_work() {
    let runs = run(&[
        "workload.application=mixed",
        "workload.work_mib=64",
        "run.conditions=['alone']",
        "run.window_ms=60000",
    ]);
    let mib = value(&runs[0], metric::IO_RATE) * runs[0].provenance.window_ns as f64 / 1e9 / MIB as f64;
    assert!((126.0..135.0).contains(&mib), "as much was written as was read: {mib}");
}

#[test]
fn vms_have_parts_of_the_disk_by_their_weights() {
    let two = [
        "workload.rivals=1",
        "run.conditions=['alone']",
        "host.pcpus=8",
        "workload.clients=16",
        "workload.disk.mb_per_s=100",
        "workload.disk.queue_depth=2",
    ];
    for (weights, expected) in [("[100, 100]", 1.0), ("[100, 300]", 3.0)] {
        let weights = format!("workload.disk.weights={weights}");
        let runs = run(&[&two[..], &[&weights]].concat());
        let ratio = value(&runs[0], metric::RIVAL_RATE) / value(&runs[0], metric::IO_RATE);
        assert!((ratio / expected - 1.0).abs() < 0.1, "{ratio} for {weights}");
        assert!(value(&runs[0], metric::DISK_BUSY) > 0.99, "the disk is what they share");
    }
}

/// Notes the vCPU on which it runs each time, and once asks to be moved twice.
struct Moved(Rc<Cell<usize>>, bool);

impl Program for Moved {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        self.0.set(env.vcpu);
        if !std::mem::replace(&mut self.1, true) {
            env.set_mask(env.task, 0b010);
            env.set_mask(env.task, 0b100);
        }
        Op::Sleep { ns: MILLISECOND_NS }
    }
}

#[test]
fn of_two_moves_at_once_the_later_holds() {
    let seen = Rc::new(Cell::new(0));
    let mut world = support::world_of(3, 250, |guest| {
        let spec = BlockSpec {
            page_bytes: 4096,
            cache_pages: 16,
            read_ahead_pages: 0,
            request_pages: 1,
            ring: 1,
            submit_ns: 1,
            complete_ns: 1,
            traced: false,
            trace_ns: 0,
        };
        guest.set_io(BlockIo::new(Block::new(spec, 3)));
        guest.add_program(Box::new(Moved(seen.clone(), false)), None);
    });
    assert!(world.run_until(20 * MILLISECOND_NS, u64::MAX));
    assert_eq!(seen.get(), 2);
}
