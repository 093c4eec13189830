use super::*;
use crate::migrate::testing::{Shell, Turn, saved, two_cpus};
use crate::proc::ProcRoot;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

fn table(slots: usize, folder: &Path) -> Table {
    Table::new(slots, Some(StateFile::open(&folder.join("state"), &ProcRoot::default()).unwrap()))
}

/// Orders a CPU, carries that out, and returns the outcomes.
fn carry_out(table: &Table, slot: usize, cpu: Option<usize>) -> Vec<Bound> {
    let mut told = Vec::new();
    table.want(slot, cpu);
    table.carry_out(slot, |bound| told.push(bound));
    told
}

#[test]
fn a_task_is_bound_and_restored_and_its_user_s_change_is_not_overwritten() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(2, folder.path()), shell.mask());
    assert!(table.fill(1, shell.held()).unwrap());
    assert_eq!((table.tid(1), table.slot_of(shell.pid()), table.slot_of(0)), (shell.pid(), Some(1), None));
    assert_eq!(carry_out(&table, 1, Some(one)), [Bound::Done]);
    assert_eq!((shell.mask(), table.is_as_expected(1, &mask)), (CpuSet::of(one), true));
    assert!(!table.is_as_expected(1, &CpuSet::of(one)), "an offline CPU is not usable");
    assert_eq!(table.state().unwrap().records().unwrap()[0].binding, Binding { from: None, to: Some(one) });
    assert_eq!(carry_out(&table, 1, Some(one)), [Bound::Same]);
    assert!(!table.clear(1, false).unwrap(), "it does not have its mask yet");
    assert_eq!(carry_out(&table, 1, None), [Bound::Done]);
    assert_eq!(shell.mask(), mask);
    // Its user narrows the mask meanwhile.
    shell.bind(&CpuSet::of(other));
    assert_eq!(carry_out(&table, 1, Some(one)), [Bound::Foreign]);
    assert!(table.take_odd(1) && !table.take_odd(1) && table.is_behind(1));
    assert_eq!(shell.mask(), CpuSet::of(other));
    assert!(table.clear(1, false).unwrap());
    assert!(table.state().unwrap().records().unwrap().is_empty() && table.tid(1) == 0);
    assert_eq!(carry_out(&table, 1, Some(one)), [Bound::Same], "the slot is empty");
}

#[test]
fn a_cpu_unavailable_to_the_task_is_refused() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(1, folder.path());
    table.fill(0, Held::new(shell.saved(), shell.mask(), None)).unwrap();
    assert_eq!(carry_out(&table, 0, Some(reprieve_policy::cpus::MAX_CPUS - 1)), [Bound::Refused]);
    assert!(table.take_odd(0));
    // The CPU is in its user's mask, but offline or outside of its cpuset.
    assert!(table.remask(0, None, &shell.saved(), CpuSet::of(one), None).unwrap());
    shell.bind(&CpuSet::of(one));
    assert_eq!(carry_out(&table, 0, Some(other)), [Bound::Refused]);
}

#[test]
fn another_task_that_got_the_id_is_left_as_found() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let mut former = Shell::start();
    let alive = File::open(format!("/proc/{0}/task/{0}/comm", former.pid())).unwrap();
    former.end();
    let (table, mask) = (table(1, folder.path()), shell.mask());
    // As if the shell had got the id of a task that has ended.
    table.fill(0, Held::new(saved(shell.pid(), mask), mask, Some(alive))).unwrap();
    assert_eq!(carry_out(&table, 0, Some(one)), [Bound::Gone]);
    assert_eq!((shell.mask(), table.take_odd(0)), (mask, true));
}

#[test]
fn a_task_that_is_not_saved_is_not_bound() {
    let Some((one, _)) = two_cpus() else { return };
    let (shell, table) = (Shell::start(), Table::new(1, None));
    table.fill(0, shell.held()).unwrap();
    let mask = shell.mask();
    assert_eq!(carry_out(&table, 0, Some(one)), [Bound::Same]);
    assert_eq!(shell.mask(), mask);
}

#[test]
fn the_last_wish_holds() {
    let _turn = Turn::of_a_flood();
    let Some((one, other)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = Arc::new(table(1, folder.path()));
    table.fill(0, shell.held()).unwrap();
    const ROUNDS: usize = 20_000;
    let (asked, done) =
        (Arc::new([const { AtomicUsize::new(0) }; 2]), Arc::new([const { AtomicUsize::new(0) }; 2]));
    // Two movers, each with one order for each wanted CPU, as from the decider.
    let movers: Vec<_> = (0..2)
        .map(|mover| {
            let (table, asked, done) = (Arc::clone(&table), Arc::clone(&asked), Arc::clone(&done));
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    wait_for(&asked[mover], round);
                    table.carry_out(0, |_| ());
                    done[mover].store(round, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        for (mover, cpu) in [one, other].into_iter().enumerate() {
            table.want(0, Some(cpu));
            asked[mover].store(round, Ordering::SeqCst);
        }
        done.iter().for_each(|done| wait_for(done, round));
        // One of the two has carried it out by the time both are done.
        assert_eq!(
            table.slots[0].held.try_lock().unwrap().as_ref().unwrap().bound_to(),
            Some(other),
            "{round}"
        );
    }
    movers.into_iter().for_each(|mover| mover.join().unwrap());
    assert_eq!(shell.mask(), CpuSet::of(other));
}

fn wait_for(count: &AtomicUsize, round: usize) {
    while count.load(Ordering::SeqCst) < round {
        std::thread::yield_now();
    }
}

#[test]
fn an_order_that_comes_during_another_is_carried_out_after_it() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(1, folder.path());
    table.fill(0, shell.held()).unwrap();
    let mut told = Vec::new();
    table.want(0, Some(one));
    table.carry_out(0, |bound| {
        // The mover came while the slot was locked, and has left the order to the holder.
        if told.is_empty() {
            table.want(0, Some(other));
        }
        told.push(bound);
    });
    assert_eq!((told, shell.mask()), (vec![Bound::Done, Bound::Done], CpuSet::of(other)));
}

#[test]
fn a_thread_that_only_looks_carries_out_a_missed_order() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(1, folder.path());
    table.fill(0, shell.held()).unwrap();
    let mut left = Vec::new();
    table.look(0, |_| {
        table.want(0, Some(one));
        table.carry_out(0, |bound| left.push(bound));
    });
    assert_eq!((left, shell.mask()), (vec![Bound::Overtaken], CpuSet::of(one)));
}
