//! Tests with a live task, and with a `/proc` and `/sys` that show what the kernel would show in each case.

use super::*;
use crate::migrate::masks::{Held, StateFile};
use crate::migrate::testing::{Shell, two_cpus};
use crate::proc::fake::FakeProc;
use crate::proc::{ProcRoot, SysCpus};

struct Case {
    tree: FakeProc,
    roots: Roots,
    table: Table,
    shell: Shell,
    _folder: tempfile::TempDir,
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

impl Case {
    /// A task with this mask, on a machine that may have CPUs 0 to 3, of which 0 and 1 are online.
    fn new(mask: &str, whole: bool) -> Case {
        let (tree, shell, folder) = (FakeProc::new(), Shell::start(), tempfile::tempdir().unwrap());
        let roots = Roots { proc: tree.root.clone(), sys: SysCpus::new(tree.root.path().join("sys")) };
        tree.put("sys/devices/system/cpu/possible", "0-3\n");
        let state = StateFile::open(&folder.path().join("state"), &ProcRoot::default()).unwrap();
        let table = Table::new(1, Some(state));
        let case = Case { tree, roots, table, shell, _folder: folder };
        case.online("0-1").shows(mask);
        let saved = Saved { mask: cpus(mask), whole, ..case.shell.saved() };
        let held = Held::new(saved, cpus(mask).and(&cpus("0-1")), None);
        assert!(case.table.fill(0, held).unwrap());
        case
    }

    fn online(&self, list: &str) -> &Case {
        self.tree.put("sys/devices/system/cpu/online", list);
        self
    }

    /// Makes the kernel show this mask for the task.
    fn shows(&self, mask: &str) -> &Case {
        let pid = self.shell.pid();
        self.tree.put(&format!("{pid}/task/{pid}/status"), &format!("Cpus_allowed_list:\t{mask}\n"));
        self
    }

    fn bind(&self, cpu: usize) -> &Case {
        self.table.want(0, Some(cpu));
        self.table.carry_out(0, |_| ());
        assert_eq!(self.shell.mask(), CpuSet::of(cpu));
        self.shows(&cpu.to_string())
    }

    fn follow(&self) -> Followed {
        follow(&self.roots, &self.table, 0).unwrap()
    }

    fn held<T>(&self, look: impl FnOnce(&Held) -> T) -> T {
        self.table.look(0, look).unwrap()
    }

    fn saved(&self) -> (CpuSet, bool, Option<usize>) {
        self.held(|held| (held.saved.mask, held.saved.whole, held.bound_to()))
    }
}

/// Whether this test may use CPUs 0 and 1.
fn can_run() -> bool {
    two_cpus() == Some((0, 1))
}

#[test]
fn while_nobody_changes_anything_nothing_is_done() {
    if !can_run() {
        return;
    }
    for (mask, whole) in [("0-1", false), ("0-3", true)] {
        let case = Case::new(mask, whole);
        assert_eq!(case.follow(), Followed::Same);
        assert_eq!(case.bind(1).follow(), Followed::Same);
        assert_eq!(case.saved(), (cpus(mask), whole, Some(1)));
    }
}

#[test]
fn a_task_whose_cpu_goes_offline_gets_its_mask_back_and_no_wider_one() {
    if !can_run() {
        return;
    }
    // While it sleeps it still has only that CPU. When it wakes up, the kernel gives it all possible CPUs.
    for shown in ["1", "0-3"] {
        let case = Case::new("0-1", false);
        case.bind(1).online("0").shows(shown);
        if shown != "1" {
            case.shell.bind(&cpus("0-1"));
        }
        assert_eq!(case.follow(), Followed::Changed(cpus("0")), "{shown}");
        assert_eq!(case.saved(), (cpus("0-1"), false, None));
        assert_eq!(case.shell.mask(), cpus("0-1"));
        // The kernel shows the user's mask, including the offline CPU; then that CPU comes back.
        case.shows("0-1");
        assert_eq!(case.follow(), Followed::Same);
        assert_eq!(case.online("0-1").follow(), Followed::Changed(cpus("0-1")));
    }
}

#[test]
fn cpus_that_the_kernel_dropped_from_a_restored_mask_are_restored_later() {
    if !can_run() {
        return;
    }
    for whole in [false, true] {
        let case = Case::new("0-1", whole);
        let saved = case.held(|held| held.saved.clone());
        // It was restored while CPU 1 was offline.
        assert!(case.table.remask(0, None, &saved, cpus("0"), Some(cpus("0"))).unwrap());
        case.shell.bind(&cpus("0"));
        case.online("0").shows("0");
        assert_eq!(case.follow(), Followed::Same, "its user has not set it");
        assert_eq!(case.online("0-1").follow(), Followed::Changed(cpus("0-1")));
        assert_eq!((case.saved(), case.shell.mask()), ((cpus("0-1"), whole, None), cpus("0-1")));
    }
}

#[test]
fn a_task_bound_elsewhere_stays_bound_and_cannot_go_to_the_offline_cpu() {
    if !can_run() {
        return;
    }
    let case = Case::new("0-1", false);
    case.bind(0).online("0");
    assert_eq!(case.follow(), Followed::Changed(cpus("0")));
    assert_eq!(case.saved(), (cpus("0-1"), false, Some(0)));
}

#[test]
fn a_mask_that_is_the_whole_cpuset_grows_with_it_and_another_does_not() {
    if !can_run() {
        return;
    }
    let case = Case::new("0-1", true);
    assert_eq!(case.online("0-2").shows("0-2").follow(), Followed::Changed(cpus("0-2")));
    assert_eq!(case.saved(), (cpus("0-2"), true, None));
    let case = Case::new("0-1", false);
    assert_eq!(case.online("0-2").follow(), Followed::Same);
    assert_eq!(case.saved(), (cpus("0-1"), false, None));
}

#[test]
fn a_cpuset_that_narrows_is_not_taken_for_its_user_s_wish() {
    if !can_run() {
        return;
    }
    let case = Case::new("0-1", true);
    let pid = case.shell.pid();
    case.bind(1);
    case.tree.put(&format!("{pid}/task/{pid}/cpuset"), "/a\n");
    case.tree.put("sys/fs/cgroup/a/cpuset.cpus.effective", "0\n");
    // The kernel has moved it to the CPUs of the cpuset.
    case.shows("0");
    assert_eq!(case.follow(), Followed::Changed(cpus("0")));
    assert_eq!(case.saved(), (cpus("0-1"), true, None));
    assert_eq!(case.shell.mask(), cpus("0-1"), "the requested mask is everything again, so that it can grow");
}

#[test]
fn its_user_s_wish_holds_whatever_it_was_bound_to() {
    if !can_run() {
        return;
    }
    for (wish, whole) in [("0", false), ("0-1", true), ("0-3", true)] {
        let case = Case::new("0-2", false);
        case.bind(1).shows(wish);
        case.shell.bind(&cpus(wish).and(&cpus("0-1")));
        assert_eq!(case.follow(), Followed::Changed(cpus(wish).and(&cpus("0-1"))), "{wish}");
        assert_eq!(case.saved(), (cpus(wish), whole, None));
        assert_eq!(case.shell.mask(), cpus(wish).and(&cpus("0-1")), "nothing is set");
    }
}

#[test]
fn if_none_of_its_cpus_is_available_it_is_tried_again() {
    if !can_run() {
        return;
    }
    let case = Case::new("1-2", false);
    // The request to the live kernel is CPU 2 only, which this machine may lack.
    let nowhere = Saved { mask: CpuSet::of(1000), ..case.shell.saved() };
    let saved = Saved { whole: false, ..nowhere };
    assert!(case.table.remask(0, None, &saved, cpus("1"), None).unwrap());
    case.shell.bind(&cpus("1"));
    case.table.want(0, Some(1));
    case.table.carry_out(0, |_| ());
    case.online("0").shows("1");
    assert_eq!(case.follow(), Followed::Changed(CpuSet::EMPTY));
    assert_eq!(case.held(Held::bound_to), Some(1), "it is still bound");
}

/// Its user asks for the CPU that it is already bound to, so the mask does not show the change.
#[test]
fn a_call_that_the_binding_hides_is_followed() {
    let Some((0, 1)) = two_cpus() else { return };
    let follow_call = |case: &Case, at_ns| follow_call(&case.roots, &case.table, 0, at_ns).unwrap();
    let wish = |case: &Case| case.table.look(0, |held| (held.saved.mask, held.bound_to())).unwrap();
    for moves_on in [false, true] {
        let case = Case::new("0-1", true);
        case.bind(0);
        let asked_ns = crate::clock::now_ns();
        if moves_on {
            case.bind(1);
        }
        assert_eq!(follow_call(&case, asked_ns), Followed::Concluded(CpuSet::of(0)));
        assert_eq!((case.shell.mask(), wish(&case)), (CpuSet::of(0), (CpuSet::of(0), None)));
    }
    // The user asked for the mask that the task had before, and then for one that shows.
    let case = Case::new("0-1", true);
    let asked_ns = crate::clock::now_ns();
    case.bind(1);
    assert_eq!(follow_call(&case, asked_ns), Followed::Same);
    assert_eq!((case.shell.mask(), wish(&case)), (CpuSet::of(1), (cpus("0-1"), Some(1))));
    case.shows("0");
    assert_eq!(follow_call(&case, asked_ns), Followed::Changed(CpuSet::of(0)));
}
