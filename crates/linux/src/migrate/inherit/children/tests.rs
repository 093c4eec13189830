use super::*;
use crate::migrate::masks::{Binding, Doubtful, Held, StateRecord};
use crate::migrate::testing::{Shell, Turn, two_cpus};
use crate::proc::{ProcRoot, SysCpus};
use crate::threads;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::{Duration, Instant};

const S: u64 = SECOND_NS;

fn table(folder: &Path) -> Table {
    let state = StateFile::open(&folder.join("state"), &ProcRoot::default()).unwrap();
    Table::new(4, Some(state))
}

/// A watch for children, during which no test floods its records.
struct Watched(Children, #[expect(dead_code, reason = "held")] Turn);

impl Deref for Watched {
    type Target = Children;

    fn deref(&self) -> &Children {
        &self.0
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Children {
        &mut self.0
    }
}

fn children(table: &Table, watches: bool) -> Option<Watched> {
    with(table, watches, watches)
}

/// Watches with the kernel's records of forks, or of calls, or both, if permitted.
fn with(table: &Table, forks: bool, calls: bool) -> Option<Watched> {
    let turn = Turn::of_a_call_watch();
    let sys = SysCpus::default();
    let forks = forks.then(|| Forks::open(&sys.online())).transpose();
    let call_watch = match calls {
        true => CallWatch::open(sys.path(), &sys.online(), clock::now_ns()),
        false => Ok(CallWatch::blind()),
    };
    // A fork's child may have copied its parent's mask up to this long before; calls must be recorded from then on.
    if calls {
        std::thread::sleep(Duration::from_nanos(FORK_TAKES_NS));
    }
    match (forks, call_watch) {
        (Ok(forks), Ok(call_watch)) => {
            let children = Children::new(&Roots::default(), forks, call_watch, 4, table.state()).unwrap();
            Some(Watched(children, turn))
        }
        (Err(e), _) | (_, Err(e)) => {
            eprintln!("skipped: {e}");
            None
        }
    }
}

/// Runs a round after all children have started.
fn settle(children: &mut Children, table: &Table) {
    children.round(table, clock::now_ns() + 3 * S).unwrap();
}

/// A record of a task that was bound to a CPU.
fn record(saved: Saved, cpu: usize) -> StateRecord {
    StateRecord { slot: 0, saved, binding: Binding { from: None, to: Some(cpu) }, in_doubt: false }
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
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let (child, grandchild) = (shell.fork(), shell.fork_twice());
    assert_eq!((mask_of(child), mask_of(grandchild)), (CpuSet::of(one), CpuSet::of(one)), "they inherit");
    // The parent has left by the time its children are judged.
    bind(&table, 0, None);
    children.remember(
        table.look(0, |held| Ancestor::of(held, clock::now_ns())).flatten().unwrap(),
        clock::now_ns(),
    );
    assert!(table.clear(0, false).unwrap());
    children.round(&table, clock::now_ns()).unwrap();
    assert_eq!(mask_of(child), CpuSet::of(one), "it is still starting");
    settle(&mut children, &table);
    assert_eq!((mask_of(child), mask_of(grandchild)), (mask, mask));
    assert!(children.judge.restored >= 2 && children.judge.unrestored.count() == 0);
    assert!(
        std::fs::read_to_string(folder.path().join("state"))
            .unwrap()
            .contains(&children.handled_ticks.to_string())
    );
}

#[test]
fn a_grandchild_whose_parent_has_ended_and_was_waited_for_is_freed() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let grandchild = shell.fork_twice();
    // The shell reaps the child between before it does anything else.
    assert_eq!(shell.tell("echo 2"), 2);
    settle(&mut children, &table);
    assert_eq!(mask_of(grandchild), mask);
    assert!(
        table.state().unwrap().records().unwrap().iter().all(|record| !record.in_doubt),
        "it no longer waits"
    );
}

/// If the daemon is killed then, only the file leads to the child.
#[test]
fn a_child_that_is_still_starting_is_in_the_file() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let grandchild = shell.fork_twice();
    assert_eq!(shell.tell("echo 2"), 2);
    children.round(&table, clock::now_ns()).unwrap();
    shell.end();
    let state = table.state().unwrap();
    let restore = |doubtful| state.restore(&children.judge.roots, doubtful).unwrap();
    assert_eq!((restore(Doubtful::Leave).in_doubt, mask_of(grandchild)), (1, CpuSet::of(one)));
    assert_eq!((restore(Doubtful::Restore).restored, mask_of(grandchild)), (1, mask));
}

/// Even if that is the CPU it had inherited, so that only the call shows it.
#[test]
fn a_child_that_its_user_has_bound_keeps_that() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let (same, elsewhere, by_other) = (shell.fork_pinned(one), shell.fork_pinned(other), shell.fork());
    shell.pin(by_other, &CpuSet::of(one));
    let inherits = shell.fork();
    settle(&mut children, &table);
    let masks = [same, elsewhere, by_other, inherits].map(mask_of);
    assert_eq!(masks, [CpuSet::of(one), CpuSet::of(other), CpuSet::of(one), mask]);
    // The process that bound `by_other` has ended, so it is unknown which task it named.
    assert_eq!(
        (children.judge.unrestored.in_doubt(), children.judge.unrestored.count(), children.judge.overtaken),
        (1, 0, 0)
    );
}

#[test]
fn children_of_a_task_that_was_never_bound_are_left_alone() {
    let Some((one, other)) = two_cpus() else { return };
    for watches in [true, false] {
        let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
        let table = table(folder.path());
        let Some(mut children) = children(&table, watches) else { return };
        table.fill(0, shell.held()).unwrap();
        let forked = [shell.fork_pinned(one), shell.fork_pinned(other)];
        settle(&mut children, &table);
        assert_eq!(forked.map(mask_of), [CpuSet::of(one), CpuSet::of(other)]);
        assert_eq!((children.judge.unrestored.in_doubt(), children.judge.barred.len()), (0, 0));
    }
}

/// Children also inherit a mask that the parent's user has set.
#[test]
fn a_child_of_a_task_that_its_user_has_bound_meanwhile_is_in_doubt() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(folder.path());
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    shell.pin(shell.pid(), &CpuSet::of(other));
    let (child, grandchild) = (shell.fork(), shell.fork_twice());
    settle(&mut children, &table);
    assert_eq!((mask_of(child), mask_of(grandchild)), (CpuSet::of(other), CpuSet::of(other)));
    assert!(
        children.judge.unrestored.in_doubt() >= 2 && children.judge.barred.is_empty(),
        "and the child between, if it has not ended yet"
    );
}

#[test]
fn threads_of_a_bound_thread_are_freed() {
    let Some((one, _)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let Some(mut children) = children(&table, true) else { return };
    let body = move || {
        let tid = threads::own_tid();
        let mask = mask_of(tid);
        let pid = std::process::id() as i32;
        let reader = TaskStatReader::open(&ProcRoot::default(), pid, tid).unwrap();
        let (start_ticks, bound_ticks) = (reader.read().unwrap().start_ticks, clock::boot_ticks());
        let saved = Saved { pid, tid, start_ticks, bound_ticks, mask, whole: false };
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
        settle(&mut children, &table);
        assert_eq!(mask_of(child), mask);
        drop(freed);
        thread.join().unwrap();
    };
    std::thread::spawn(body).join().unwrap();
}

#[test]
fn without_records_of_forks_children_are_found_by_a_search() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = with(&table, false, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let (child, pinned) = (shell.fork(), shell.fork_pinned(one));
    settle(&mut children, &table);
    assert_eq!((mask_of(child), mask_of(pinned)), (mask, CpuSet::of(one)));
    assert_eq!(shell.mask(), CpuSet::of(one), "the managed task stays bound");
}

#[test]
fn without_records_of_forks_children_of_a_task_that_has_left_are_found_too() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = with(&table, false, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let child = shell.fork();
    bind(&table, 0, None);
    let now_ns = clock::now_ns();
    children.remember(table.look(0, |held| Ancestor::of(held, now_ns)).flatten().unwrap(), now_ns);
    assert!(table.clear(0, false).unwrap());
    settle(&mut children, &table);
    assert_eq!(mask_of(child), mask);
}

#[test]
fn without_records_of_calls_children_are_left_alone_and_their_parent_is_let_go() {
    let Some((one, other)) = two_cpus() else { return };
    for forks in [true, false] {
        let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
        let table = table(folder.path());
        let Some(mut children) = with(&table, forks, false) else { return };
        table.fill(0, shell.held()).unwrap();
        bind(&table, 0, Some(one));
        let forked = [shell.fork(), shell.fork_pinned(one), shell.fork_pinned(other)];
        let saved = shell.saved();
        for _ in 0..2 {
            settle(&mut children, &table);
            children.searched_ns = 0;
            assert_eq!(forked.map(mask_of), [one, one, other].map(CpuSet::of));
            assert_eq!(children.judge.unrestored.in_doubt(), 3);
        }
        assert!(children.judge.is_barred((saved.tid, saved.start_ticks)));
        let record = table.state().unwrap().records().unwrap();
        assert_eq!(record.iter().filter(|record| record.in_doubt).count(), 3, "the next daemon knows");
        shell.kill(forked[0]);
        shell.pin(forked[1], &[one, other].into_iter().collect());
        children.searched_ns = 0;
        settle(&mut children, &table);
        assert_eq!(
            children.judge.unrestored.in_doubt(),
            1,
            "a task that has ended or is not bound any more is no longer in doubt"
        );
    }
}

#[test]
fn a_mask_is_restored_as_soon_as_possible_and_stays_in_the_file_until_then() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
    let saved = Saved { mask: nowhere, whole: false, ..shell.saved() };
    let state = table.state().unwrap();
    // An earlier daemon has left it in a slot of a managed task.
    state.put_record(&StateRecord { slot: 1, ..record(saved.clone(), one) }).unwrap();
    shell.bind(&CpuSet::of(one));
    let mut children = children(&table, false).unwrap();
    for second in 1..4 {
        children.round(&table, second * S).unwrap();
        let left = state.records().unwrap();
        assert_eq!((left.len(), left[0].slot, children.judge.unrestored.count()), (1, 4, 1));
    }
    children.judge.unrestored.waiting[0].record.saved = Saved { mask, whole: true, ..saved };
    children.round(&table, 4 * S).unwrap();
    assert_eq!(
        (children.judge.unrestored.count(), state.records().unwrap().len(), shell.mask()),
        (0, 0, mask)
    );
}

#[test]
fn a_child_whose_mask_cannot_be_restored_is_kept() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let table = table(folder.path());
    let mut children = children(&table, false).unwrap();
    shell.bind(&CpuSet::of(one));
    // The kernel refuses a mask without any CPU of this machine.
    let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
    let saved = Saved { mask: nowhere, whole: false, ..shell.saved() };
    let child = record(saved, one);
    children.judge.restore(table.state().unwrap(), child.clone()).unwrap();
    assert_eq!(table.state().unwrap().records().unwrap(), [StateRecord { slot: 4, ..child }]);
    assert_eq!((children.judge.unrestored.count(), children.judge.restored), (1, 0));
}

#[test]
fn a_storm_of_forks_frees_all() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, mut shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (table, mask) = (table(folder.path()), shell.mask());
    let Some(mut children) = children(&table, true) else { return };
    table.fill(0, shell.held()).unwrap();
    bind(&table, 0, Some(one));
    let forked: Vec<i32> = (0..100).map(|_| shell.fork()).collect();
    let since = Instant::now();
    while forked.iter().any(|child| mask_of(*child) != mask) {
        assert!(since.elapsed() < Duration::from_secs(60), "some stay bound");
        settle(&mut children, &table);
    }
    assert_eq!(shell.mask(), CpuSet::of(one));
}
