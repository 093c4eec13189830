use super::*;
use crate::migrate::find::Scan;
use crate::migrate::masks::StateFile;
use crate::migrate::testing::{Shell, two_cpus};
use crate::migrate::watch::CallWatch;
use crate::proc::fake::FakeProc;
use crate::proc::{ProcRoot, SysCpus};
use std::path::Path;

const S: u64 = SECOND_NS;

fn put(proc: &FakeProc, tid: i32, state: char, cpu: usize, comm: &str, mask: &str) {
    let line = format!(
        "{tid} ({comm}) {state} 1 1 1 0 -1 0 9 0 0 0 1 2 0 0 20 0 1 0 777 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 \
         17 {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    proc.put(&format!("{tid}/task/{tid}/stat"), &line);
    proc.put(&format!("{tid}/task/{tid}/status"), &format!("Uid:\t0\t0\nCpus_allowed_list:\t{mask}\n"));
    proc.put(&format!("{tid}/task/{tid}/comm"), &format!("{comm}\n"));
}

fn fake_roots(proc: &FakeProc) -> Roots {
    proc.put("sys/devices/system/cpu/online", "0-3\n").put("sys/devices/system/cpu/possible", "0-7\n");
    Roots { proc: proc.root.clone(), sys: SysCpus::new(proc.root.path().join("sys")) }
}

fn roster(roots: &Roots, slots: usize, conditions: &[&str], state: Option<StateFile>) -> Roster {
    let conditions: Vec<_> = conditions.iter().map(|text| text.parse().unwrap()).collect();
    let filter = Filter::new(&conditions, "").unwrap();
    let table = Arc::new(Table::new(slots, state));
    let children = Children::new(roots, None, CallWatch::blind(), slots, table.state()).unwrap();
    Roster::new(roots.clone(), Source::States, filter, 4, table, children, Arc::default())
}

/// All managed tasks with their users' masks.
fn saved(roster: &Roster) -> Vec<Saved> {
    let saved = |slot| roster.table.look(slot, |held| held.saved.clone());
    (0..roster.table.slots()).filter_map(saved).collect()
}

fn found(root: &ProcRoot) -> Vec<Found> {
    let mut found = Scan::new(root, Source::States, 0).advance(|| true);
    found.sort_unstable_by_key(|found| found.tid);
    found
}

#[test]
fn a_task_that_waits_passes_the_filter_and_can_be_moved_is_admitted_once() {
    let proc = FakeProc::new();
    put(&proc, 5, 'D', 1, "fio", "0-2");
    put(&proc, 6, 'D', 1, "other", "0-3");
    put(&proc, 7, 'D', 1, "fio", "2");
    // A task with two CPUs, one of them offline; and PID 1.
    put(&proc, 8, 'D', 1, "fio", "3-4");
    put(&proc, 1, 'D', 1, "fio", "0-3");
    let roots = fake_roots(&proc);
    let mut roster = roster(&roots, 4, &["comm=fio"], None);
    let signals = roster.admit(&found(&proc.root), S).unwrap();
    let admission = Admission::new(CpuSet::first(3), Some(1));
    assert_eq!(signals, [Signal::Admit { task: 0, admission, at_ns: S }]);
    assert!(roster.admit(&found(&proc.root), 2 * S).unwrap().is_empty());
    assert_eq!((roster.count(), roster.task(0)), (1, Some((5, 5, "fio"))));
    let saved = &saved(&roster)[0];
    assert_eq!((saved.pid, saved.start_ticks, saved.mask, saved.whole), (5, 777, CpuSet::first(3), false));
}

#[test]
fn a_whole_cpuset_is_saved_as_such_and_with_offline_cpus() {
    let proc = FakeProc::new();
    put(&proc, 5, 'D', 1, "fio", "0-7");
    put(&proc, 6, 'D', 1, "fio", "1-2");
    proc.put("6/task/6/cpuset", "/a\n").put("sys/fs/cgroup/a/cpuset.cpus.effective", "1-2\n");
    let mut roster = roster(&fake_roots(&proc), 4, &[], None);
    let signals = roster.admit(&found(&proc.root), S).unwrap();
    let usable = |signal: &Signal| match signal {
        Signal::Admit { admission, .. } => admission.mask.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(signals.iter().map(usable).collect::<Vec<_>>(), ["0-3", "1-2"]);
    let saved = saved(&roster);
    let told: Vec<_> = saved.iter().map(|saved| (saved.mask.to_string(), saved.whole)).collect();
    assert_eq!(told, [("0-7".into(), true), ("1-2".into(), true)]);
}

#[test]
fn another_task_with_the_same_id_is_not_admitted() {
    let proc = FakeProc::new();
    put(&proc, 5, 'D', 1, "fio", "0-3");
    let found = found(&proc.root);
    let stat = std::fs::read_to_string(proc.root.path().join("5/task/5/stat")).unwrap();
    proc.put("5/task/5/stat", &stat.replace(" 777 ", " 778 "));
    assert!(roster(&fake_roots(&proc), 4, &[], None).admit(&found, 0).unwrap().is_empty());
}

#[test]
fn ended_and_idle_tasks_leave_and_free_the_slot_once_the_decider_has_forgotten_them() {
    let proc = FakeProc::new();
    (5..=7).for_each(|tid| put(&proc, tid, 'D', 1, "fio", "0-3"));
    let mut roster = roster(&fake_roots(&proc), 3, &[], None);
    assert_eq!(roster.admit(&found(&proc.root), 0).unwrap().len(), 3);
    put(&proc, 5, 'S', 2, "fio", "0-3");
    let signals = roster.look(S).unwrap();
    assert!(signals.contains(&Signal::Seen { task: 0, on: 2, at_ns: S }), "{signals:?}");
    // The file stays open, and a truncated one is malformed. A zombie has ended.
    proc.put("6/task/6/stat", "");
    put(&proc, 7, 'Z', 1, "fio", "0-3");
    let later_ns = IDLE_NS + 2 * S;
    let signals = roster.look(later_ns).unwrap();
    for task in 0..3 {
        assert!(signals.contains(&Signal::Dismiss { task, at_ns: later_ns }), "{signals:?}");
    }
    for look in 1..10 {
        assert!(roster.look(later_ns + look * S).unwrap().is_empty());
        assert_eq!(roster.count(), 3, "the decider may still give orders for them");
    }
    (0..3).for_each(|slot| roster.table.dismiss(slot));
    (10..12).for_each(|look| assert!(roster.look(later_ns + look * S).unwrap().is_empty()));
    assert_eq!((roster.count(), roster.table.tid(0)), (0, 0));
}

#[test]
fn no_more_tasks_are_admitted_than_there_are_slots() {
    let proc = FakeProc::new();
    (2..=11).for_each(|tid| put(&proc, tid, 'D', 0, "fio", "0-3"));
    let mut roster = roster(&fake_roots(&proc), 3, &[], None);
    assert_eq!(roster.admit(&found(&proc.root), 0).unwrap().len(), 3);
    assert_eq!((roster.count(), roster.turned_away), (3, 7));
}

#[test]
fn of_ten_thousand_tasks_the_first_are_managed_and_the_rest_counted() {
    let proc = FakeProc::new();
    put(&proc, 5, 'D', 0, "fio", "0-3");
    let one = found(&proc.root)[0];
    let mut roster = roster(&fake_roots(&proc), 256, &[], None);
    // Nothing is read of tasks for which there is no room.
    (2..258).for_each(|tid| put(&proc, tid, 'D', 0, "fio", "0-3"));
    let many: Vec<Found> = (2..10_002).map(|tid| Found { pid: tid, tid, ..one }).collect();
    assert_eq!(roster.admit(&many, 0).unwrap().len(), 256);
    assert_eq!((roster.count(), roster.turned_away), (256, 10_000 - 256));
    assert_eq!(roster.look(S).unwrap().len(), 256, "a sample of each");
}

/// `tests/recorded` is of Linux 6.18 with two CPUs and cgroups of version 1: `dd oflag=dsync` as it waits for its
/// device, and two kernel threads.
#[test]
fn on_a_recorded_machine_the_one_waiting_task_is_admitted_and_no_kernel_thread() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let roots = Roots { proc: ProcRoot::new(recorded.join("proc")), sys: SysCpus::new(recorded.join("sys")) };
    assert_eq!(roots.proc.process_ids().unwrap(), [2, 4, 27281]);
    let mut roster = roster(&roots, 4, &["comm=dd", "user=0", "cgroup=/"], None);
    let signals = roster.admit(&found(&roots.proc), 0).unwrap();
    let admission = Admission::new(CpuSet::first(2), Some(1));
    assert_eq!(signals, [Signal::Admit { task: 0, admission, at_ns: 0 }]);
    let saved = &saved(&roster)[0];
    assert_eq!((saved.tid, saved.start_ticks, saved.whole), (27281, 6_161_564, true));
    // It waits at every look, so all time between looks is I/O.
    let sampled = |outstanding_ns, at_ns| Signal::IoSampled { task: 0, at_ns, outstanding_ns };
    assert_eq!(roster.look(S).unwrap(), [sampled(0, S)]);
    assert_eq!(roster.look(2 * S).unwrap(), [sampled(S, 2 * S)]);
    let disks = roots.proc.disk_totals(roots.sys.path()).unwrap();
    assert_eq!(disks.completed, 806_597 + 1_445_094, "of vda alone");
    assert!(roots.proc.pressure_ns("io").unwrap() > 0);
    let mut steal = crate::proc::StealReader::open(&roots.proc, 2).unwrap();
    steal.read(0).unwrap();
    assert_eq!((steal.steal_ns(0), steal.steal_ns(1), steal.steal_ns(2)), (Some(0), Some(0), None));
}

fn open(folder: &Path) -> StateFile {
    StateFile::open(&folder.join("state"), &ProcRoot::default()).unwrap()
}

fn live_roots() -> Roots {
    Roots { proc: ProcRoot::default(), sys: SysCpus::default() }
}

fn found_shell(shell: &Shell) -> Found {
    let stat = TaskStatReader::open(&ProcRoot::default(), shell.pid(), shell.pid()).unwrap().read().unwrap();
    Found { pid: shell.pid(), tid: shell.pid(), stat }
}

fn bind(roster: &Roster, slot: usize, cpu: Option<usize>) {
    roster.table.want(slot, cpu);
    roster.table.carry_out(slot, |_| ());
}

#[test]
fn a_leaving_task_has_its_mask_again_before_its_slot_is_free() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let (mut roster, mask) = (roster(&live_roots(), 2, &[], Some(open(folder.path()))), shell.mask());
    assert_eq!(roster.admit(&[found_shell(&shell)], 0).unwrap().len(), 1);
    bind(&roster, 0, Some(one));
    assert_eq!(roster.look(IDLE_NS + S).unwrap(), [Signal::Dismiss { task: 0, at_ns: IDLE_NS + S }]);
    // The decider has forgotten it, and its order was lost.
    roster.table.want(0, None);
    roster.table.dismiss(0);
    roster.look(IDLE_NS + 2 * S).unwrap();
    assert_eq!((shell.mask(), roster.count()), (mask, 1));
    roster.look(IDLE_NS + 3 * S).unwrap();
    assert_eq!((roster.count(), roster.table.state().unwrap().records().unwrap().len()), (0, 0));
}

#[test]
fn a_leaving_task_whose_mask_cannot_be_restored_is_kept() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let mut roster = roster(&live_roots(), 2, &[], Some(open(folder.path())));
    roster.admit(&[found_shell(&shell)], 0).unwrap();
    bind(&roster, 0, Some(one));
    // The kernel refuses a mask without any CPU of this machine.
    let saved = Saved { mask: CpuSet::of(1000), whole: false, ..saved(&roster)[0].clone() };
    assert!(roster.table.remask(0, Some(one), &saved, CpuSet::of(one), None).unwrap());
    roster.look(IDLE_NS + S).unwrap();
    roster.table.want(0, None);
    roster.table.dismiss(0);
    for second in 2..10 {
        roster.look(IDLE_NS + second * S).unwrap();
        let record = roster.table.state().unwrap().records().unwrap();
        assert_eq!((record.len(), &record[0].saved), (1, &saved), "{second}");
    }
    assert_eq!((roster.count(), roster.children.judge.unrestored.count()), (0, 1));
    assert_eq!(shell.mask(), CpuSet::of(one));
}

#[test]
fn an_order_that_was_lost_is_carried_out_at_the_next_look_at_the_mask() {
    let Some((one, _)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let mut roster = roster(&live_roots(), 1, &[], Some(open(folder.path())));
    roster.admit(&[found_shell(&shell)], 0).unwrap();
    roster.table.want(0, Some(one));
    roster.look(MASK_NS).unwrap();
    assert_eq!(shell.mask(), CpuSet::of(one));
}

#[test]
fn a_user_s_change_is_followed_and_a_task_that_cannot_be_moved_is_let_go() {
    let Some((one, other)) = two_cpus() else { return };
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    let mut roster = roster(&live_roots(), 1, &[], Some(open(folder.path())));
    roster.admit(&[found_shell(&shell)], 0).unwrap();
    bind(&roster, 0, Some(one));
    shell.bind(&CpuSet::of(other));
    let signals = roster.look(MASK_NS).unwrap();
    let mask = CpuSet::of(other);
    assert!(signals.contains(&Signal::Mask { task: 0, mask, at_ns: MASK_NS }), "{signals:?}");
    assert_eq!((saved(&roster)[0].mask, shell.mask()), (mask, mask));
    // A refusal although nothing has changed has no reason that will go away.
    bind(&roster, 0, Some(one));
    let signals = roster.look(2 * MASK_NS).unwrap();
    assert!(signals.contains(&Signal::Dismiss { task: 0, at_ns: 2 * MASK_NS }), "{signals:?}");
}

#[test]
fn a_bound_task_gets_a_cpu_back_that_was_offline() {
    let (folder, shell, sys) = (tempfile::tempdir().unwrap(), Shell::start(), FakeProc::new());
    if two_cpus() != Some((0, 1)) {
        return;
    }
    let online = |list: &str| {
        sys.put("sys/devices/system/cpu/online", list);
    };
    online("0-1");
    let roots = Roots { sys: SysCpus::new(sys.root.path().join("sys")), ..live_roots() };
    let mut roster = roster(&roots, 1, &[], Some(open(folder.path())));
    assert_eq!(roster.admit(&[found_shell(&shell)], 0).unwrap().len(), 1);
    bind(&roster, 0, Some(0));
    for (look, list) in ["0", "0-1"].into_iter().enumerate() {
        online(list);
        let at_ns = (look as u64 + 1) * MASK_NS;
        let signals = roster.look(at_ns).unwrap();
        let mask = list.parse().unwrap();
        assert!(signals.contains(&Signal::Mask { task: 0, mask, at_ns }), "{list}: {signals:?}");
        assert_eq!(shell.mask(), CpuSet::of(0), "it stays bound");
    }
}

#[test]
fn a_task_whose_mask_cannot_be_saved_is_not_admitted() {
    let (folder, shell) = (tempfile::tempdir().unwrap(), Shell::start());
    if two_cpus().is_none() {
        return;
    }
    let mut roster = roster(&live_roots(), 3, &[], Some(open(folder.path())));
    roster.table = Arc::new(Table::new(3, Some(StateFile::unwritable())));
    assert!(roster.admit(&[found_shell(&shell)], 0).is_err());
    assert!(roster.count() == 0 && roster.table.tid(0) == 0);
}
