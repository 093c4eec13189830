use super::*;
use crate::clock;
use crate::migrate::testing::{Shell, two_cpus};
use crate::threads;
use reprieve_policy::cpus::CpuSet;

fn try_open(path: &Path) -> Result<StateFile> {
    StateFile::open(path, &ProcRoot::default())
}

/// Opens the file, waiting for its lock: a child that another test has forked holds released locks until its exec.
fn open(path: &Path) -> Result<StateFile> {
    let since = std::time::Instant::now();
    loop {
        match try_open(path) {
            Err(Error::Invalid { .. }) if since.elapsed().as_secs() < 60 => std::thread::yield_now(),
            other => return other,
        }
    }
}

fn binding(from: Option<usize>, to: Option<usize>) -> Binding {
    Binding { from, to }
}

#[test]
fn records_are_read_by_the_next_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deeper/state");
    let every_other: CpuSet = (0..reprieve_policy::cpus::MAX_CPUS).step_by(2).collect();
    let mask = |text: &str| text.parse().unwrap();
    let saved =
        |tid, mask, whole| Saved { pid: 4, tid, start_ticks: 77, bound_ticks: NEVER_TICKS, mask, whole };
    let first = open(&path).unwrap();
    assert!(first.records().unwrap().is_empty());
    first.put(0, &saved(i32::MAX, every_other, false)).unwrap();
    first.put(3, &saved(6, mask("1"), false)).unwrap();
    let doubtful = StateRecord {
        slot: 2,
        saved: saved(5, mask("0-3"), true),
        binding: binding(None, None),
        in_doubt: true,
    };
    first.put_record(&doubtful).unwrap();
    first.bind(2, binding(Some(1023), Some(0)), NEVER_TICKS - 1).unwrap();
    first.clear(3).unwrap();
    first.save_handled(123).unwrap();
    drop(first);
    let next = open(&path).unwrap();
    let expected = [
        StateRecord {
            slot: 0,
            saved: saved(i32::MAX, every_other, false),
            binding: binding(None, None),
            in_doubt: false,
        },
        StateRecord {
            slot: 2,
            saved: Saved { bound_ticks: NEVER_TICKS - 1, ..saved(5, mask("0-3"), true) },
            binding: binding(Some(1023), Some(0)),
            in_doubt: true,
        },
    ];
    assert_eq!((next.records().unwrap().as_slice(), next.handled_ticks()), (&expected[..], 123));
}

#[test]
fn bindings_of_any_length_fit() {
    for (from, to, bound_ticks, text) in [
        (None, None, NEVER_TICKS, "    -     -                    - "),
        (Some(0), Some(10), 0, "    0    10                    0 "),
        (Some(1023), None, 4711, " 1023     -                 4711 "),
        (Some(usize::MAX), Some(999), NEVER_TICKS - 1, " 1024   999 18446744073709551614 "),
    ] {
        assert_eq!(std::str::from_utf8(&binding_text(binding(from, to), bound_ticks)).unwrap(), text);
    }
}

#[test]
fn masks_left_by_a_killed_daemon_are_restored_by_the_next() {
    let Some((one, other)) = two_cpus() else { return };
    let (roots, folder, shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let (path, mask) = (folder.path().join("state"), shell.mask());
    // The daemon was killed before or after the change that the file names.
    for bound in [one, other] {
        let first = open(&path).unwrap();
        first.put(7, &shell.saved()).unwrap();
        first.bind(7, binding(Some(one), Some(other)), 1).unwrap();
        shell.bind(&CpuSet::of(bound));
        drop(first);
        let next = open(&path).unwrap();
        assert_eq!(
            next.restore(&roots, Doubtful::Leave).unwrap(),
            Restored { restored: 1, ..Restored::default() }
        );
        assert_eq!((shell.mask(), path.exists()), (mask, true), "the file stays in use");
        assert_eq!(
            next.finish(&roots, Doubtful::Leave).unwrap(),
            Restored::default(),
            "there is nothing more to do"
        );
        assert!(!path.exists());
    }
}

#[test]
fn a_mask_that_its_user_changed_stays_and_another_task_with_the_id_is_not_touched() {
    let Some((one, other)) = two_cpus() else { return };
    let (roots, folder, shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let state = open(&folder.path().join("state")).unwrap();
    let saved = shell.saved();
    // It is bound to a CPU that the daemon has not bound it to.
    shell.bind(&CpuSet::of(other));
    state.put(0, &saved).unwrap();
    state.bind(0, binding(None, Some(one)), 1).unwrap();
    // Another task has the id now.
    let reused = Saved { start_ticks: 1, ..saved.clone() };
    let ended = Saved { pid: i32::MAX, tid: i32::MAX, ..saved };
    for (slot, saved) in [reused, ended].iter().enumerate() {
        state.put(slot + 1, saved).unwrap();
        state.bind(slot + 1, binding(None, Some(other)), 1).unwrap();
    }
    let restored = state.restore(&roots, Doubtful::Leave).unwrap();
    assert_eq!(restored, Restored { untouched: 1, gone: 2, ..Restored::default() });
    assert_eq!(shell.mask(), CpuSet::of(other));
}

#[test]
fn a_task_that_was_never_bound_is_left_alone_though_it_is_on_one_cpu() {
    let Some((one, _)) = two_cpus() else { return };
    let (roots, folder, shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let state = open(&folder.path().join("state")).unwrap();
    state.put(0, &shell.saved()).unwrap();
    shell.bind(&CpuSet::of(one));
    assert_eq!(
        state.restore(&roots, Doubtful::Leave).unwrap(),
        Restored { untouched: 1, ..Restored::default() }
    );
    assert_eq!(shell.mask(), CpuSet::of(one));
}

#[test]
fn a_mask_that_cannot_be_restored_stays_in_the_file() {
    let Some((one, other)) = two_cpus() else { return };
    let (roots, folder, shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let path = folder.path().join("state");
    let state = open(&path).unwrap();
    // The kernel refuses a mask without any CPU of this machine.
    let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
    let saved = Saved { mask: nowhere, whole: false, ..shell.saved() };
    state.put(3, &saved).unwrap();
    state.bind(3, binding(Some(other), Some(one)), 1).unwrap();
    shell.bind(&CpuSet::of(one));
    assert_eq!(state.finish(&roots, Doubtful::Leave).unwrap(), Restored { failed: 1, ..Restored::default() });
    drop(state);
    let next = open(&path).unwrap();
    assert_eq!(next.records().unwrap().len(), 1);
    shell.bind(&CpuSet::of(other));
    next.bind(3, binding(None, Some(one)), 1).unwrap();
    assert_eq!(
        next.finish(&roots, Doubtful::Leave).unwrap().untouched,
        1,
        "until its user has decided otherwise"
    );
    assert!(!path.exists());
}

/// Nobody recorded whether a child has inherited its binding or was bound by its user.
#[test]
fn a_child_of_a_bound_task_is_in_doubt_and_restored_only_on_request() {
    let Some((one, _)) = two_cpus() else { return };
    let (roots, folder, mut shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let (path, mask) = (folder.path().join("state"), shell.mask());
    let mask_of = |tid| threads::affinity_set(tid).unwrap();
    let before = shell.fork();
    threads::set_affinity_set(before, &CpuSet::of(one)).unwrap();
    // Start times are in ticks: wait, so that earlier children have an earlier one.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let state = open(&path).unwrap();
    state.put(0, &shell.saved()).unwrap();
    state.bind(0, binding(None, Some(one)), clock::boot_ticks()).unwrap();
    shell.bind(&CpuSet::of(one));
    let (child, pinned, ends) = (shell.fork(), shell.fork_pinned(one), shell.fork());
    assert_eq!(mask_of(child), CpuSet::of(one), "it inherits, through exec(2)");
    drop(state);
    let state = open(&path).unwrap();
    let restored = state.finish(&roots, Doubtful::Leave).unwrap();
    assert_eq!(restored, Restored { restored: 1, in_doubt: 3, ..Restored::default() });
    assert_eq!((shell.mask(), mask_of(child), mask_of(pinned)), (mask, CpuSet::of(one), CpuSet::of(one)));
    drop(state);
    // It stays in the file until its user has decided, or it has ended.
    shell.pin(pinned, &mask);
    shell.kill(ends);
    let state = open(&path).unwrap();
    let restored = state.restore(&roots, Doubtful::Leave).unwrap();
    assert_eq!(restored, Restored { untouched: 1, gone: 1, in_doubt: 1, ..Restored::default() });
    let restored = state.finish(&roots, Doubtful::Restore).unwrap();
    assert_eq!(restored, Restored { restored: 1, ..Restored::default() });
    assert_eq!((mask_of(child), path.exists()), (mask, false));
    assert_eq!(mask_of(before), CpuSet::of(one), "its user has bound the earlier child");
}

/// The daemon was killed after it restored a task's mask, and before it judged the task's child.
#[test]
fn a_child_of_a_task_no_longer_bound_is_in_doubt_and_one_of_a_task_never_bound_is_not() {
    let Some((one, _)) = two_cpus() else { return };
    let (roots, folder) = (Roots::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("state");
    for (bound_ticks, in_doubt) in [(clock::boot_ticks(), 1), (NEVER_TICKS, 0)] {
        let mut shell = Shell::start();
        let mask = shell.mask();
        let state = open(&path).unwrap();
        state.put(0, &Saved { bound_ticks, ..shell.saved() }).unwrap();
        shell.bind(&CpuSet::of(one));
        shell.fork();
        shell.bind(&mask);
        let restored = state.finish(&roots, Doubtful::Leave).unwrap();
        assert_eq!(restored, Restored { untouched: 1, in_doubt, ..Restored::default() });
        assert_eq!(state.finish(&roots, Doubtful::Restore).unwrap().restored, in_doubt);
    }
}

/// Two threads of one process: a child that started before one of them was bound may have inherited from the other.
#[test]
fn a_child_is_compared_with_each_bound_thread_of_its_parent() {
    let Some((one, _)) = two_cpus() else { return };
    let (root, mut shell) = (ProcRoot::default(), Shell::start());
    let saved = shell.saved();
    shell.bind(&CpuSet::of(one));
    let child = shell.fork();
    let later = Saved { tid: i32::MAX, bound_ticks: clock::boot_ticks() + 1000, ..saved.clone() };
    let found =
        |of: &[Saved]| find_children(&root, of, 0).iter().map(|child| child.saved.tid).collect::<Vec<_>>();
    assert_eq!(found(&[later.clone(), saved.clone()]), [child]);
    assert_eq!(found(&[saved.clone(), later, saved]), [child], "it is found once");
}

/// A bound thread has executed a program: the process goes on under the id of its first thread.
#[test]
fn a_process_whose_bound_thread_executed_a_program_is_in_doubt() {
    let Some((one, _)) = two_cpus() else { return };
    let (roots, folder, shell) = (Roots::default(), tempfile::tempdir().unwrap(), Shell::start());
    let (path, mask) = (folder.path().join("state"), shell.mask());
    let state = open(&path).unwrap();
    let thread = Saved { tid: i32::MAX, ..shell.saved() };
    state.put(0, &thread).unwrap();
    state.bind(0, binding(None, Some(one)), clock::boot_ticks() + 1).unwrap();
    assert!(successor(&roots.proc, &thread).is_none(), "it is not bound");
    shell.bind(&CpuSet::of(one));
    assert!(successor(&roots.proc, &shell.saved()).is_none(), "it is the first thread itself");
    let restored = state.finish(&roots, Doubtful::Leave).unwrap();
    assert_eq!(restored, Restored { gone: 1, in_doubt: 1, ..Restored::default() });
    assert_eq!(state.finish(&roots, Doubtful::Restore).unwrap().restored, 1);
    assert_eq!(shell.mask(), mask);
}

#[test]
fn another_version_s_file_is_refused_unless_it_is_from_another_boot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let boot_id = ProcRoot::default().boot_id().unwrap();
    fs::write(&path, format!("reprieve-migrate-masks 1 {boot_id}\n")).unwrap();
    let refused = try_open(&path).unwrap_err();
    assert!(refused.to_string().contains("another version of reprieve"), "{refused}");
    fs::write(&path, "reprieve-migrate-masks 1 another-boot\n").unwrap();
    assert!(open(&path).unwrap().records().unwrap().is_empty());
}

#[test]
fn a_second_daemon_is_refused_and_another_boot_s_file_is_void() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let first = open(&path).unwrap();
    let refused = try_open(&path).unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    let mask = CpuSet::of(0);
    first.put(0, &Saved { pid: 5, tid: 5, start_ticks: 1, bound_ticks: 1, mask, whole: false }).unwrap();
    drop(first);
    assert_eq!(open(&path).unwrap().records().unwrap().len(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let boot_id = ProcRoot::default().boot_id().unwrap();
    fs::write(&path, text.replace(&boot_id, &boot_id.chars().rev().collect::<String>())).unwrap();
    assert!(open(&path).unwrap().records().unwrap().is_empty());
}

#[test]
fn any_other_file_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "precious\n").unwrap();
    assert!(matches!(open(&path), Err(Error::Malformed { .. })));
    fs::remove_file(&path).unwrap();
    let state = open(&path).unwrap();
    state.write_at(&padded("    -     - 1 2 x"), offset(1)).unwrap();
    drop(state);
    assert!(matches!(open(&path), Err(Error::Malformed { .. })));
    assert!(fs::read_to_string(&path).unwrap().contains("1 2 x"));
}
