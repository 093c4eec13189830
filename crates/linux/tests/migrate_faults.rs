//! Tests faults while tasks are moved: the daemon is killed at any moment, tasks end or change their masks meanwhile,
//! and the clock jumps. In every case the masks end up as their users have set them.
//!
//! This program also plays the daemon: it starts itself again with one test that binds tasks until it is killed.

#[path = "support/tasks.rs"]
mod tasks;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reprieve_linux::migrate::{
    Bound, Decider, Decision, Entry, Held, Lines, Mover, OffTimes, Saved, Shared, Sleeper, Table,
};
use reprieve_linux::threads;
use reprieve_policy::beat::Beat;
use reprieve_policy::cpus::CpuSet;
use reprieve_policy::place::{Policy, Settings, Target};
use reprieve_policy::signal::{Admission, Signal};
use rtrb::{Consumer, Producer, RingBuffer};
use tasks::{PATIENCE, Sleeping, bind, open, restore, saved, table, two_cpus};

const TASKS: usize = 8;
const FOLDER: &str = "REPRIEVE_TEST_FOLDER";
const TIDS: &str = "REPRIEVE_TEST_TIDS";

/// Not a test: the role of the daemon. Saves the masks of the given tasks, and binds them to one CPU after another
/// until it is killed.
#[test]
#[ignore = "started by the test that kills it"]
fn role_binds_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let tids: Vec<i32> = std::env::var(TIDS).unwrap().split(',').map(|tid| tid.parse().unwrap()).collect();
    let state = open(folder);
    // Restore what an earlier daemon left.
    restore(&state);
    drop(state);
    let mask = threads::affinity_set(tids[0]).unwrap();
    let table = table(open(folder), &tids, mask);
    std::fs::write(folder.join("ready"), "").unwrap();
    let cpus: Vec<usize> = mask.iter().collect();
    for round in 0usize.. {
        for (slot, tid) in tids.iter().enumerate() {
            let cpu = Some(cpus[(round + slot) % cpus.len()]).filter(|_| !(round + slot).is_multiple_of(5));
            assert!(matches!(bind(&table, slot, cpu), Bound::Done | Bound::Same));
            // Tasks also leave and are admitted again.
            if cpu.is_none() && round % 3 == 0 {
                assert!(table.clear(slot, false).unwrap());
                assert!(table.fill(slot, Held::new(saved(*tid, mask), mask, None)).unwrap());
            }
        }
    }
}

#[test]
fn masks_left_by_a_daemon_killed_at_any_moment_are_restored_by_the_next() {
    let Some(own) = two_cpus() else { return };
    let tasks: Vec<Sleeping> = (0..TASKS).map(|_| Sleeping::start()).collect();
    let tids: Vec<String> = tasks.iter().map(|task| task.tid().to_string()).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut bound = 0;
    for round in 0..8u64 {
        let ready = folder.path().join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut role = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role_binds_until_killed", "--ignored"])
            .env(FOLDER, folder.path())
            .env(TIDS, tids.join(","))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while !ready.exists() {
            assert!(
                since.elapsed() < PATIENCE && role.try_wait().unwrap().is_none(),
                "the role does not get ready"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        // Prime numbers, so that rounds are killed at different places.
        std::thread::sleep(Duration::from_micros(
            [3, 7_001, 13, 29_003, 101, 1_009, 53, 5_003][round as usize],
        ));
        role.kill().unwrap();
        role.wait().unwrap();
        bound += tasks.iter().filter(|task| task.mask() != own).count();
    }
    assert!(bound > 0, "nothing was bound when it was killed, so nothing was tested");
    let restored = restore(&open(folder.path()));
    // One task may have left and not been admitted again.
    assert!(restored.restored + restored.untouched + 1 >= TASKS && restored.failed == 0, "{restored:?}");
    assert!(tasks.iter().all(|task| task.mask() == own));
}

#[test]
fn tasks_that_end_or_change_their_mask_while_they_are_moved_are_left_alone() {
    let Some(own) = two_cpus() else { return };
    let (one, other) = (own.iter().next().unwrap(), own.iter().nth(1).unwrap());
    let (ends, changes) = (Sleeping::start(), Sleeping::start());
    let folder = tempfile::tempdir().unwrap();
    let table = table(open(folder.path()), &[ends.tid(), changes.tid()], own);
    for slot in 0..2 {
        assert_eq!(bind(&table, slot, Some(one)), Bound::Done);
    }
    drop(ends);
    threads::set_affinity_set(changes.tid(), &CpuSet::of(other)).unwrap();
    for (slot, bound) in [Bound::Gone, Bound::Foreign].into_iter().enumerate() {
        assert_eq!(bind(&table, slot, None), bound);
        assert!(table.take_odd(slot));
    }
    drop(table);
    let restored = restore(&open(folder.path()));
    assert_eq!((restored.gone, restored.untouched, restored.restored), (1, 1, 0));
    assert_eq!(changes.mask(), CpuSet::of(other), "its user's wish holds");
}

/// A decider whose rings the test fills and reads by hand.
struct Played {
    decider: Decider,
    beats: Vec<Producer<Signal>>,
    main_loop: Producer<Signal>,
    log: Consumer<Entry>,
    orders: Vec<Consumer<usize>>,
    table: Arc<Table>,
    shared: Arc<Shared>,
}

impl Played {
    fn new(policy: Policy) -> Played {
        let (main_loop, from_main_loop) = RingBuffer::new(64);
        let (to_log, log) = RingBuffer::new(1 << 16);
        let (beats, from_beats) = (0..2).map(|_| RingBuffer::new(64)).unzip();
        let (movers, orders) = (0..2)
            .map(|_| RingBuffer::new(64))
            .map(|(to, from)| (Mover::new(to, Arc::new(Sleeper::default())), from))
            .unzip();
        let shared = Arc::new(Shared::new(2, 1_000_000));
        let table = Arc::new(Table::new(4, None));
        let mask = CpuSet::first(2);
        let saved = Saved { pid: 4242, tid: 4242, start_ticks: 1, bound_ticks: 1, mask, whole: false };
        assert!(table.fill(0, Held::new(saved, mask, None)).unwrap());
        let lines = Lines {
            beats: from_beats,
            main_loop: from_main_loop,
            events: None,
            log: to_log,
            movers,
            steal: None,
            off_times: OffTimes::default(),
            records: true,
        };
        let settings = Settings::new(2, 4).with(policy);
        let decider = Decider::new(settings, lines, Arc::clone(&table), Arc::clone(&shared));
        Played { decider, beats, main_loop, log, orders, table, shared }
    }

    /// Plays `ms` milliseconds, from `begin` on, of two vCPUs that are off in turn for 25 of 60 ms.
    fn play(&mut self, begin: u64, ms: u64, shift_ns: u64) {
        for ms in begin..begin + ms {
            for vcpu in 0..2 {
                let phase = (ms + 60 - 30 * vcpu) % 60;
                let late = if phase == 25 && ms > begin { 25.min(ms - begin) } else { 0 };
                let (at_ns, due_ns) = (shift_ns + ms * 1_000_000, shift_ns + (ms - late) * 1_000_000);
                let beat = Beat {
                    vcpu: vcpu as usize,
                    due_ns,
                    at_ns,
                    period_ns: 1_000_000,
                    steal_ns: None,
                    run_delay_ns: None,
                };
                if phase >= 25 {
                    assert!(self.beats[vcpu as usize].push(Signal::Beat(beat)).is_ok());
                }
            }
            self.decider.step(shift_ns + ms * 1_000_000);
        }
    }

    fn admit_io(&mut self) {
        let admission = Admission::new(CpuSet::first(2), Some(0));
        assert!(self.main_loop.push(Signal::Admit { task: 0, admission, at_ns: 0 }).is_ok());
        assert!(self.main_loop.push(Signal::IoBegin { task: 0, at_ns: 0 }).is_ok());
    }

    fn decisions(&mut self) -> Vec<Decision> {
        let log = &mut self.log;
        let entries = std::iter::from_fn(|| log.pop().ok());
        entries
            .filter_map(|entry| if let Entry::Decision(decision) = entry { Some(decision) } else { None })
            .collect()
    }

    fn orders(&mut self) -> Vec<usize> {
        self.orders.iter_mut().flat_map(|orders| std::iter::from_fn(|| orders.pop().ok())).collect()
    }
}

#[test]
fn decisions_become_orders_for_the_task_of_the_slot() {
    let mut played = Played::new(Policy::Combined);
    played.admit_io();
    played.play(60, 1_500, 0);
    let (decisions, orders) = (played.decisions(), played.orders());
    assert!(decisions.len() > 20, "{}", decisions.len());
    // There is one order for all decisions on a slot in one run.
    assert!(orders.len() <= decisions.len() && orders.len() > 20, "{}", orders.len());
    assert!(orders.iter().all(|slot| *slot == 0));
    // The slot is behind with the last decision, since no mover carries it out.
    let last = decisions.last().unwrap();
    assert_eq!(played.table.is_behind(0), matches!(last.made.to, Target::Vcpu(_)), "{last:?}");
    // The decision names what remains of the slices, or has none.
    let known = decisions.iter().filter(|decision| decision.left_there_ns.is_some()).count();
    assert!(known > 10 && decisions.iter().all(|decision| !decision.reason().is_empty()));
}

#[test]
fn a_dismissed_task_s_mask_is_ordered_before_the_slot_is_marked() {
    for halt in [false, true] {
        let mut played = Played::new(Policy::Pull);
        played.admit_io();
        played.play(60, 300, 0);
        assert!(played.table.is_behind(0) && !played.table.is_dismissed(0), "it was moved");
        let at_ns = 360_000_000;
        let last = if halt { Signal::Halt { at_ns } } else { Signal::Dismiss { task: 0, at_ns } };
        assert!(played.main_loop.push(last).is_ok());
        played.orders();
        played.decider.step(at_ns);
        assert!(!played.table.is_behind(0), "its user's mask is wanted");
        assert_eq!((played.table.is_dismissed(0), played.orders()), (!halt, vec![0]));
    }
}

#[test]
fn beats_that_are_read_late_are_taken_in_the_order_of_time() {
    let decided = |late: bool| {
        let mut played = Played::new(Policy::Pull);
        played.admit_io();
        played.play(60, 300, 0);
        played.decisions();
        // Both vCPUs beat on time for 20 ms while the decider does not run.
        for ms in 360..380u64 {
            for vcpu in 0..2 {
                let at_ns = ms * 1_000_000;
                let (period_ns, steal_ns, run_delay_ns) = (1_000_000, None, None);
                let beat = Beat { vcpu, due_ns: at_ns, at_ns, period_ns, steal_ns, run_delay_ns };
                assert!(played.beats[vcpu].push(Signal::Beat(beat)).is_ok());
            }
            if !late {
                played.decider.step(ms * 1_000_000);
            }
        }
        played.decider.step(380_000_000);
        let signals = std::iter::from_fn(|| played.log.pop().ok());
        let beats = signals.filter_map(|entry| match entry {
            Entry::Signal(Signal::Beat(beat)) => Some((beat.at_ns, beat.vcpu)),
            _ => None,
        });
        beats.collect::<Vec<_>>()
    };
    assert_eq!(decided(true), decided(false));
}

#[test]
fn a_clock_that_jumps_neither_stops_nor_moves_anything() {
    let mut played = Played::new(Policy::Combined);
    played.admit_io();
    played.play(60, 1_500, 0);
    assert!(!played.decisions().is_empty());
    // The clock jumps ahead by a day, and then back.
    played.play(60, 2_400, 86_400_000_000_000);
    assert!(
        played
            .decisions()
            .iter()
            .all(|decision| matches!(decision.made.to, Target::Home | Target::Vcpu(0 | 1)))
    );
    played.play(5_000, 1_000, 0);
    let faults: u64 =
        (0..2).map(|vcpu| played.decider.placer().vcpu(vcpu).unwrap().verdicts().clock_faults).sum();
    assert!(faults >= 2, "{faults}");
}

#[test]
fn orders_that_do_not_fit_are_not_lost() {
    let mut played = Played::new(Policy::Pull);
    played.admit_io();
    for begin in 0..40 {
        played.play(60 + begin * 1_500, 1_500, 0);
        played.decisions();
    }
    assert_eq!(played.orders().len(), 128, "the rings are full, as nobody takes orders");
    assert!(played.main_loop.push(Signal::Halt { at_ns: 60_060_000_000 }).is_ok());
    played.decider.step(60_060_000_000);
    assert!(!played.table.is_behind(0), "what is wanted is in the slot");
}

#[test]
fn entries_lost_on_the_way_to_the_record_are_counted_in_their_place() {
    let mut played = Played::new(Policy::Combined);
    played.admit_io();
    // Send far more than fits, without reading any; then once more.
    for begin in 0..30 {
        played.play(60 + begin * 1_500, 1_500, 0);
    }
    let mut record = Vec::new();
    reprieve_linux::migrate::write_header(&mut record, &Settings::new(2, 4)).unwrap();
    let mut write = |played: &mut Played| {
        while let Ok(entry) = played.log.pop() {
            reprieve_linux::migrate::write_entry(&mut record, &entry).unwrap();
        }
    };
    write(&mut played);
    played.play(60 + 45_000, 600, 0);
    write(&mut played);
    let lost = played.shared.lost.load(std::sync::atomic::Ordering::Relaxed);
    let text = String::from_utf8(record).unwrap();
    let counted: u64 = text.lines().filter_map(|line| line.strip_prefix("lost ")?.parse::<u64>().ok()).sum();
    assert!(lost > 0 && counted == lost, "{counted} of {lost}");
    let replayed = reprieve_linux::migrate::replay(text.as_bytes(), |_| ()).unwrap();
    assert!(replayed.differs.is_none() && replayed.lost_at_line.is_some(), "{replayed:?}");
}

#[test]
fn the_decider_s_decisions_are_those_of_a_replay() {
    let mut played = Played::new(Policy::Combined);
    let mut record = Vec::new();
    reprieve_linux::migrate::write_header(&mut record, &Settings::new(2, 4)).unwrap();
    played.admit_io();
    for part in 0..4 {
        played.play(60 + part * 600, 600, 0);
        while let Ok(entry) = played.log.pop() {
            reprieve_linux::migrate::write_entry(&mut record, &entry).unwrap();
        }
    }
    let replayed = reprieve_linux::migrate::replay(record.as_slice(), |_| ()).unwrap();
    assert!(replayed.decisions > 20 && replayed.differs.is_none(), "{replayed:?}");
}
