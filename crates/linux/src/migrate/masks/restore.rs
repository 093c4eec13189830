//! Giving a task its user's mask back, where it is still bound by us, and finding tasks that have inherited a binding.
//!
//! What has to be told apart, of a task that was bound to a CPU:
//!
//! | its mask now | who did it | what is done |
//! |---|---|---|
//! | that CPU | we | given back |
//! | the whole of its cpuset, or every CPU, while that CPU is not there for it | the kernel | given back |
//! | anything else | its user | left alone |
//!
//! In the second row we set the mask even if it looks right already. The kernel remembers the mask last requested: without this, it
//! would bind the task again when its cpuset changes (sched_setaffinity(2), cpuset(7); kernel 6.2 and later).
//!
//! Affinity is inherited by what a bound task forks, and survives exec(2). An heir cannot be told by its mask: its user may
//! have bound it to the same CPU. While the daemon runs, the kernel's records of forks and of calls of sched_setaffinity(2)
//! tell (`heirs`). Without them, a task is in doubt if all of this holds: it descends from a task looked after; it began after
//! that one was first bound, and after the last search for heirs; it is bound to one CPU of its ancestor's mask.

use std::collections::BTreeSet;

use reprieve_policy::cpus::CpuSet;

use super::changes::Window;
use super::state_record::{Binding, Saved, StateRecord};
use crate::error::{Error, Result, thread_path};
use crate::migrate::clock;
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};
use crate::threads;

/// Tasks looked at for heirs of one, at most.
const MAX_LOOKED_AT: usize = 65_536;

/// Gives a task its mask back if we, or the kernel for our sake, left it bound. Returns the window from the last look to the
/// end of the change, or `None` if nothing was changed. A mask that somebody else sets within the window is overwritten.
///
/// # Errors
/// [`Error::Gone`] if it has ended, [`Error::NotPermitted`], [`Error::Io`].
pub fn give_back(
    root: &ProcRoot,
    sys: &SysCpus,
    StateRecord { saved, binding, .. }: &StateRecord,
) -> Result<Option<Window>> {
    let reader = TaskStatReader::open(root, saved.pid, saved.tid)?;
    let gone = || Error::Gone { action: "restore", path: thread_path(saved.tid) };
    if reader.read()?.start_ticks != saved.start_ticks {
        return Err(gone());
    }
    let now = root.allowed_mask(saved.pid, saved.tid)?;
    if !is_bound_by_us(&now, saved, *binding) && !is_lost(root, sys, &now, saved, *binding) {
        return Ok(None);
    }
    // Once more, with nothing in between: reading `/proc` takes long enough for somebody to change the mask meanwhile.
    let from_ns = clock::now_ns();
    if now.len() == 1 && threads::affinity_set(saved.tid).is_ok_and(|at_last| !at_last.is_subset(&now)) {
        return Ok(None);
    }
    let set = threads::set_affinity_set(saved.tid, &saved.request());
    let until_ns = clock::now_ns();
    if matches!(&set, Err(Error::Io { .. })) && !is_bound_by_us(&now, saved, *binding) {
        // None of the user's CPUs is usable now, so the kernel refused. Keep the mask that the kernel chose.
        return Ok(None);
    }
    if reader.read().is_err() {
        // The task ended meanwhile, and another task may have its number by now: undo the change, as well as can be known.
        let _ = threads::set_affinity_set(saved.tid, &now);
        return Err(gone());
    }
    set.map(|()| Some(Window { from_ns, until_ns }))
}

/// Whether the task is there and is bound as it was when it came into doubt.
pub fn is_still_in_doubt(root: &ProcRoot, StateRecord { saved, binding, .. }: &StateRecord) -> bool {
    let reader = TaskStatReader::open(root, saved.pid, saved.tid).and_then(|reader| reader.read());
    let now = root.allowed_mask(saved.pid, saved.tid);
    reader.is_ok_and(|stat| stat.start_ticks == saved.start_ticks && !stat.has_ended())
        && now.is_ok_and(|now| is_bound_by_us(&now, saved, *binding))
}

/// Whether the mask is one CPU that we have bound the task to, or were about to.
fn is_bound_by_us(now: &CpuSet, saved: &Saved, Binding { from, to }: Binding) -> bool {
    let ours = |cpu: Option<usize>| cpu.is_some_and(|cpu| *now == CpuSet::of(cpu));
    (ours(from) || ours(to)) && (saved.whole || *now != saved.mask)
}

/// Whether the kernel has undone the binding, since its CPU is not there for the task any more.
fn is_lost(
    root: &ProcRoot,
    sys: &SysCpus,
    now: &CpuSet,
    saved: &Saved,
    Binding { from, to }: Binding,
) -> bool {
    let there = sys.cpuset_of(root, saved.pid, saved.tid);
    [from, to].into_iter().flatten().any(|cpu| !there.contains(cpu)) && is_everything(sys, &there, now)
}

/// Whether a mask is the whole of what the task's cpuset (`there`) has, or of what the machine may have.
pub fn is_everything(sys: &SysCpus, there: &CpuSet, mask: &CpuSet) -> bool {
    there.is_subset(mask) || sys.possible().is_subset(mask)
}

/// Tasks that began at `since_ticks` or later and may have inherited a binding from these, each with the mask that it would
/// be owed. Their slots are placeholders.
pub fn find_children(root: &ProcRoot, of: &[Saved], since_ticks: u64) -> Vec<StateRecord> {
    let mut known: BTreeSet<i32> = of.iter().map(|saved| saved.tid).collect();
    let mut children = Vec::new();
    for saved in of {
        let (mut processes, mut looked_at) = (vec![saved.pid], 0);
        while let Some(pid) = processes.pop().filter(|_| looked_at < MAX_LOOKED_AT) {
            for tid in root.thread_ids(pid).unwrap_or_default() {
                looked_at += 1;
                processes.extend(root.children(pid, tid));
                // What is no heir of this one may be one of another, which was bound earlier.
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

/// A thread that executes a program ends all others of its process and goes on under the number of the first, with the start
/// time of the first and with its own mask (execve(2)). What that process is owed, if it may be such a thread that we had bound.
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

/// What a task is owed if it is bound to one CPU of an ancestor's mask.
fn one_cpu_of(root: &ProcRoot, ancestor: &Saved, saved: Saved) -> Option<StateRecord> {
    let mask = root.allowed_mask(saved.pid, saved.tid).ok()?;
    // Bindings change all the time, so it may have inherited an earlier one than the last.
    let cpu = mask.iter().next().filter(|cpu| mask.len() == 1 && ancestor.mask.contains(*cpu))?;
    let binding = Binding { from: None, to: Some(cpu) };
    (mask != ancestor.mask).then_some(StateRecord { slot: 0, saved, binding, in_doubt: true })
}

/// What the task is owed, if it may have inherited a binding from `ancestor`.
fn inherited(root: &ProcRoot, ancestor: &Saved, pid: i32, tid: i32, since_ticks: u64) -> Option<StateRecord> {
    let stat = TaskStatReader::open(root, pid, tid).ok()?.read().ok().filter(|stat| !stat.has_ended())?;
    let start_ticks = stat.start_ticks;
    if start_ticks < ancestor.bound_ticks.max(since_ticks) {
        return None;
    }
    one_cpu_of(root, ancestor, Saved { pid, tid, start_ticks, ..ancestor.clone() })
}
