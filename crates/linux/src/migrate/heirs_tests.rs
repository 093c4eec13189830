use super::super::table::Held;
use super::super::testing::{Shell, two_cpus};
use super::*;
use crate::threads;
use std::path::Path;
use std::time::{Duration, Instant};

const S: u64 = 1_000_000_000;

fn table(folder: &Path) -> Table {
    let state = StateFile::open(&folder.join("state"), &ProcRoot::default()).unwrap();
    Table::new(4, Some(state))
}

fn heirs(table: &Table, watches: bool) -> Option<Heirs> {
    let sys = SysCpus::default();
    let forks = watches.then(|| Forks::open(&sys.online()));
    match forks.transpose() {
        Ok(forks) => Some(Heirs::new(&ProcRoot::default(), &sys, forks, 4, table.state()).unwrap()),
        Err(e) => {
            eprintln!("skipped: {e}");
            None
        }
    }
}

fn bind(table: &Table, slot: usize, cpu: Option<usize>) {
    table.want(slot, cpu);
    table.carry_out(slot, |_| ());
}

fn mask_of(tid: i32) -> CpuSet {
    threads::affinity_set(tid).unwrap()
}

#[test]
fn children_of_a_bound_task_and_theirs_are_freed_by_the_kernel_s_records() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut heirs) = heirs(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let (child, grandchild) = (shell.fork(), shell.fork_twice());
    assert_eq!((mask_of(child), mask_of(grandchild)), (CpuSet::of(one), CpuSet::of(one)), "they inherit");
    // It has left by the time that its children are seen to.
    bind(&table, 0, None);
    heirs.remember(shell.saved(), S);
    assert!(table.clear(0, false).unwrap());
    heirs.round(&table, S).unwrap();
    assert_eq!((mask_of(child), mask_of(grandchild)), (mask, mask));
    assert!(heirs.given_back() >= 2 && heirs.owed() == 0);
    assert!(
        std::fs::read_to_string(folder.path().join("state")).unwrap().contains(&heirs.seen_ticks.to_string())
    );
}

#[test]
fn a_grandchild_whose_parent_has_ended_and_was_waited_for_is_freed() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut heirs) = heirs(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let grandchild = shell.fork_twice();
    // The shell has waited for what is between by the time that it does anything else.
    assert_eq!(shell.tell("echo 2"), 2);
    heirs.round(&table, S).unwrap();
    assert_eq!(mask_of(grandchild), mask);
}

#[test]
fn a_child_that_its_user_has_bound_elsewhere_keeps_that() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(folder.path());
    let Some(mut heirs) = heirs(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let child = shell.fork();
    threads::set_affinity_set(child, &CpuSet::of(other)).unwrap();
    heirs.round(&table, S).unwrap();
    assert_eq!(mask_of(child), CpuSet::of(other));
}

#[test]
fn threads_of_a_bound_thread_are_freed() {
    let Some((one, _)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let Some(mut heirs) = heirs(&table, true) else { return };
    let body = move || {
        let tid = threads::own_tid();
        let mask = mask_of(tid);
        let pid = std::process::id() as i32;
        let reader = TaskStatReader::open(&ProcRoot::default(), pid, tid).unwrap();
        let (start_ticks, taken_ticks) = (reader.read().unwrap().start_ticks, clock::boot_ticks());
        let saved = Saved { pid, tid, start_ticks, taken_ticks, mask, whole: false };
        table.fill(0, Held::new(saved, mask, None)).unwrap();
        bind(&table, 0, Some(one));
        let (freed, wait) = std::sync::mpsc::channel::<()>();
        let (told, child) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            told.send(threads::own_tid()).unwrap();
            let _ = wait.recv();
        });
        let child = child.recv().unwrap();
        assert_eq!(mask_of(child), CpuSet::of(one));
        heirs.round(&table, S).unwrap();
        assert_eq!(mask_of(child), mask);
        drop(freed);
        thread.join().unwrap();
    };
    std::thread::spawn(body).join().unwrap();
}

#[test]
fn without_records_children_are_found_by_a_search() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let mut heirs = heirs(&table, false).unwrap();
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let child = shell.fork();
    heirs.round(&table, S).unwrap();
    assert_eq!(mask_of(child), mask);
    assert_eq!(shell.mask(), CpuSet::of(one), "the one looked after stays");
}

#[test]
fn what_is_owed_is_paid_as_soon_as_it_can_be_and_stays_in_the_file_until_then() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
    let saved = Saved { mask: nowhere, whole: false, ..shell.saved() };
    let binding = Binding { from: None, to: Some(one) };
    let state = table.state().unwrap();
    // A former daemon has left it in a slot of a task looked after.
    state.put_owed(&Owed { slot: 1, saved: saved.clone(), binding }).unwrap();
    shell.bind(&CpuSet::of(one));
    let mut heirs = heirs(&table, false).unwrap();
    for second in 1..4 {
        heirs.round(&table, second * S).unwrap();
        let owed = state.owed().unwrap();
        assert_eq!((owed.len(), owed[0].slot, heirs.owed()), (1, 4, 1));
    }
    heirs.debts[0].saved = Saved { mask, whole: true, ..saved };
    heirs.round(&table, 4 * S).unwrap();
    assert_eq!((heirs.owed(), state.owed().unwrap().len(), shell.mask()), (0, 0, mask));
}

#[test]
fn an_heir_that_cannot_be_freed_is_owed_its_mask() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(folder.path());
    let mut heirs = heirs(&table, false).unwrap();
    shell.bind(&CpuSet::of(one));
    // A mask that no CPU of this machine is in: the kernel refuses it.
    let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
    let saved = Saved { mask: nowhere, whole: false, ..shell.saved() };
    let heir = Owed { slot: 0, saved, binding: Binding { from: None, to: Some(one) } };
    heirs.repay(table.state().unwrap(), heir.clone()).unwrap();
    assert_eq!(table.state().unwrap().owed().unwrap(), [Owed { slot: 4, ..heir }]);
    assert_eq!((heirs.owed(), heirs.given_back()), (1, 0));
}

#[test]
fn a_storm_of_forks_frees_all() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut heirs) = heirs(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let children: Vec<i32> = (0..100).map(|_| shell.fork()).collect();
    let since = Instant::now();
    let mut now_ns = S;
    while children.iter().any(|child| mask_of(*child) != mask) {
        assert!(since.elapsed() < Duration::from_secs(60), "some stay bound");
        heirs.round(&table, now_ns).unwrap();
        now_ns += S;
    }
    assert_eq!(shell.mask(), CpuSet::of(one));
}
