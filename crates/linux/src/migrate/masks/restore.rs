//! Restores a task's user mask if the daemon has left the task bound, and finds children that may have inherited a
//! binding.
//!
//! A task that was bound to a CPU may now have one of these masks:
//!
//! | mask now | set by | action |
//! |---|---|---|
//! | that CPU | the daemon | restore |
//! | the whole cpuset or every CPU, while that CPU is unavailable to the task | the kernel | restore |
//! | anything else | the user | none |
//!
//! In the second row the mask is set even if it looks right already: since Linux 6.2 the kernel remembers the mask last
//! requested, and would otherwise bind the task again when its cpuset changes (sched_setaffinity(2), cpuset(7)).
//!
//! Children inherit their parent's affinity, and it survives exec(2). A child's mask does not show whether it was
//! inherited: the user may have bound the child to the same CPU. While the daemon runs, the kernel's records of forks
//! and of calls of sched_setaffinity(2) show it (see `inherit`). Without such records, a task is in doubt if it
//! descends from a managed task, started after that was first bound and after the last search for children, and is
//! bound to one CPU of its ancestor's mask.

use std::collections::BTreeSet;

use reprieve_policy::cpus::CpuSet;

use super::{Binding, Saved, StateRecord, Window};
use crate::clock;
use crate::error::{Error, Result, thread_path};
use crate::migrate::Roots;
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};
use crate::threads;

/// The most tasks looked at in a search for the children of one task.
const MAX_LOOKED_AT: usize = 65_536;

/// Restores a task's mask if the daemon, or the kernel in consequence, has changed it. Returns the time from the last
/// look at the mask to the end of the change, or `None` if nothing was changed. If somebody else sets the mask in this
/// time, that is overwritten.
///
/// # Errors
/// [`Error::Gone`] if the task has ended; [`Error::NotPermitted`]; [`Error::Io`].
pub fn restore_mask(
    roots: &Roots,
    StateRecord { saved, binding, .. }: &StateRecord,
) -> Result<Option<Window>> {
    let reader = TaskStatReader::open(&roots.proc, saved.pid, saved.tid)?;
    let gone = || Error::Gone { action: "restore", path: thread_path(saved.tid) };
    if reader.read()?.start_ticks != saved.start_ticks {
        return Err(gone());
    }
    let now = roots.proc.allowed_mask(saved.pid, saved.tid)?;
    if !is_bound_as(&now, saved, *binding) && !is_lost(roots, &now, saved, *binding) {
        return Ok(None);
    }
    // Check once more right before the change: reading `/proc` takes long enough for somebody else to change the mask.
    let from_ns = clock::now_ns();
    if now.len() == 1 && threads::affinity_set(saved.tid).is_ok_and(|at_last| !at_last.is_subset(&now)) {
        return Ok(None);
    }
    let set = threads::set_affinity_set(saved.tid, &saved.request());
    let until_ns = clock::now_ns();
    if matches!(&set, Err(Error::Io { .. })) && !is_bound_as(&now, saved, *binding) {
        // The kernel refused because none of the user's CPUs is available now. Keep the mask that the kernel chose.
        return Ok(None);
    }
    if reader.read().is_err() {
        // The task ended meanwhile, and another may already have its id: undo the change as well as possible.
        let _ = threads::set_affinity_set(saved.tid, &now);
        return Err(gone());
    }
    set.map(|()| Some(Window { from_ns, until_ns }))
}

/// Whether the task still exists, and is still bound as when it came into doubt.
pub fn is_still_in_doubt(root: &ProcRoot, StateRecord { saved, binding, .. }: &StateRecord) -> bool {
    let reader = TaskStatReader::open(root, saved.pid, saved.tid).and_then(|reader| reader.read());
    let now = root.allowed_mask(saved.pid, saved.tid);
    reader.is_ok_and(|stat| stat.start_ticks == saved.start_ticks && !stat.has_ended())
        && now.is_ok_and(|now| is_bound_as(&now, saved, *binding))
}

/// Whether the mask is the CPU that the daemon has bound the task to, or was about to.
fn is_bound_as(now: &CpuSet, saved: &Saved, Binding { from, to }: Binding) -> bool {
    let is = |cpu: Option<usize>| cpu.is_some_and(|cpu| *now == CpuSet::of(cpu));
    (is(from) || is(to)) && (saved.whole || *now != saved.mask)
}

/// Whether the kernel has undone the binding because its CPU is no longer available to the task.
fn is_lost(roots: &Roots, now: &CpuSet, saved: &Saved, Binding { from, to }: Binding) -> bool {
    let there = roots.sys.cpuset_of(&roots.proc, saved.pid, saved.tid);
    let lost = [from, to].into_iter().flatten().any(|cpu| !there.contains(cpu));
    lost && is_everything(&roots.sys, &there, now)
}

/// Whether a mask contains all CPUs available to the task (`there`), or all that the machine may have.
pub fn is_everything(sys: &SysCpus, there: &CpuSet, mask: &CpuSet) -> bool {
    there.is_subset(mask) || sys.possible().is_subset(mask)
}

/// Finds tasks that started at `since_ticks` or later and may have inherited a binding from these. Each comes with the
/// mask to restore; the slots are placeholders.
pub fn find_children(root: &ProcRoot, of: &[Saved], since_ticks: u64) -> Vec<StateRecord> {
    let mut known: BTreeSet<i32> = of.iter().map(|saved| saved.tid).collect();
    let mut children = Vec::new();
    for saved in of {
        let (mut processes, mut looked_at) = (vec![saved.pid], 0);
        while let Some(pid) = processes.pop().filter(|_| looked_at < MAX_LOOKED_AT) {
            for tid in root.thread_ids(pid).unwrap_or_default() {
                looked_at += 1;
                processes.extend(root.children(pid, tid));
                // If it cannot be a child of this one, it may be one of another that was bound earlier.
                if let Some(child) =
                    inherited(root, saved, pid, tid, since_ticks).filter(|_| !known.contains(&tid))
                {
                    known.insert(tid);
                    children.push(child);
                }
            }
        }
    }
    children
}

/// If `saved` may have been a bound thread that executed a program: the process that it has become, with the mask to
/// restore. Such a thread ends all others of its process, and goes on with its own mask but with the id and start time
/// of the first thread (execve(2)).
pub fn successor(root: &ProcRoot, saved: &Saved) -> Option<StateRecord> {
    let start_ticks = |tid| {
        let stat = TaskStatReader::open(root, saved.pid, tid).ok()?.read().ok()?;
        (!stat.has_ended()).then_some(stat.start_ticks)
    };
    if saved.tid == saved.pid || start_ticks(saved.tid) == Some(saved.start_ticks) {
        return None;
    }
    let first = Saved { tid: saved.pid, start_ticks: start_ticks(saved.pid)?, ..saved.clone() };
    one_cpu_of(root, saved, first)
}

/// A record of the task, in doubt, if it is bound to one CPU of an ancestor's mask.
fn one_cpu_of(root: &ProcRoot, ancestor: &Saved, saved: Saved) -> Option<StateRecord> {
    let mask = root.allowed_mask(saved.pid, saved.tid).ok()?;
    // Any CPU of the mask counts, since the child may have inherited an earlier binding than the last.
    let cpu = mask.iter().next().filter(|cpu| mask.len() == 1 && ancestor.mask.contains(*cpu))?;
    let binding = Binding { from: None, to: Some(cpu) };
    (mask != ancestor.mask).then_some(StateRecord { slot: 0, saved, binding, in_doubt: true })
}

/// A record of the task, in doubt, if it may have inherited a binding from `ancestor`.
fn inherited(root: &ProcRoot, ancestor: &Saved, pid: i32, tid: i32, since_ticks: u64) -> Option<StateRecord> {
    let stat = TaskStatReader::open(root, pid, tid).ok()?.read().ok().filter(|stat| !stat.has_ended())?;
    let start_ticks = stat.start_ticks;
    if start_ticks < ancestor.bound_ticks.max(since_ticks) {
        return None;
    }
    one_cpu_of(root, ancestor, Saved { pid, tid, start_ticks, ..ancestor.clone() })
}
