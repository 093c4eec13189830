//! Follows the mask of a managed task: finds out whether its user, its cpuset, or a CPU that went offline has changed
//! it.
//!
//! | bound to | mask now | changed by | action |
//! |---|---|---|---|
//! | an available CPU | that CPU | the daemon | none |
//! | an unavailable CPU | that CPU, or everything | the kernel, now or soon | restore the user's mask |
//! | nothing | the user's mask; or everything, if that is the user's mask | nobody, or the cpuset | none |
//! | nothing | the part of the user's mask that could be restored | the daemon | restore more when more CPUs are available |
//! | any | anything else | the user | this is the user's mask from now on |
//! | any | the same, after a call by somebody else ([`follow_call`]) | the user | the mask in the call is the user's mask from now on |
//!
//! *Available* CPUs are online and in the task's cpuset. *Everything* is all available CPUs, or all that the machine
//! may have. A user's mask is never widened: when a CPU goes offline, the kernel widens the mask of a task bound to it,
//! and the daemon then restores the user's mask. Nor is it narrowed for good: the kernel drops unavailable CPUs from a
//! requested mask (sched_setaffinity(2)), and the daemon restores the rest when they are back.
//!
//! Errors: the state file cannot be read or written.

use reprieve_policy::cpus::CpuSet;

use super::{Saved, Table, is_everything};
use crate::migrate::Roots;
use crate::{Result, threads};

/// The result of following a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Nothing could be found out: another thread holds the task, or the task is ending.
    Busy,
    /// Nothing has changed.
    Same,
    /// The mask has changed; from now on the task may be put on these CPUs.
    Changed(CpuSet),
    /// The same, but concluded from a call, since the mask does not show it.
    Concluded(CpuSet),
}

/// Looks at the mask of the task in a slot, and follows a change.
pub fn follow(roots: &Roots, table: &Table, slot: usize) -> Result<Followed> {
    let known = table.look(slot, |held| (held.saved.clone(), held.usable, held.bound_to(), held.shown()));
    let Some((saved, usable, bound, shown)) = known else { return Ok(Followed::Busy) };
    let Ok(now) = roots.proc.allowed_mask(saved.pid, saved.tid) else { return Ok(Followed::Busy) };
    let there = roots.sys.cpuset_of(&roots.proc, saved.pid, saved.tid);
    let everything = is_everything(&roots.sys, &there, &now);
    let lost = bound.is_some_and(|cpu| !there.contains(cpu)) && (now == shown || everything);
    let unbound = bound.is_none() && (now == saved.mask || saved.whole && everything);
    let same = lost || now == shown || unbound;
    let new =
        if same { grown(&saved, &there) } else { Saved { mask: now, whole: everything, ..saved.clone() } };
    let new_usable = new.mask.and(&there);
    let is_short = bound.is_none() && now == shown && !new_usable.is_subset(&now);
    // If none of the user's CPUs is available, the kernel refuses this, and it is tried again later.
    let undone = (lost || is_short) && threads::set_affinity_set(saved.tid, &saved.request()).is_ok();
    if new == saved && new_usable == usable && !undone && same {
        return Ok(Followed::Same);
    }
    let given = match (undone, same) {
        (true, _) => Some(roots.proc.allowed_mask(saved.pid, saved.tid).unwrap_or(new_usable)),
        (false, true) => None,
        (false, false) => Some(now),
    };
    let changed = table.remask(slot, bound, &new, new_usable, given)?;
    Ok(if changed { Followed::Changed(new_usable) } else { Followed::Busy })
}

/// Follows a call, begun at `began_ns`, by which somebody else set the mask of the task in a slot.
///
/// If the daemon has bound the task to CPU 1 and the user then asks for CPU 1, the mask does not change, and the
/// daemon's next change overwrites the request. But each change first checks that the mask is still the one the daemon
/// set. It was, so the user asked for CPU 1.
pub fn follow_call(roots: &Roots, table: &Table, slot: usize, began_ns: u64) -> Result<Followed> {
    let known = table.look(slot, |held| {
        let asked = held.changes.overwritten_since(began_ns).unwrap_or(held.bound_to());
        (held.saved.clone(), held.bound_to(), held.shown(), asked)
    });
    let Some((saved, bound, shown, asked)) = known else { return Ok(Followed::Busy) };
    let Ok(now) = roots.proc.allowed_mask(saved.pid, saved.tid) else { return Ok(Followed::Busy) };
    let Some(asked) = asked.filter(|_| now == shown) else {
        // The mask shows the change, or the task was not bound: `follow` handles both.
        return follow(roots, table, slot);
    };
    let asked = CpuSet::of(asked);
    if now != asked && threads::set_affinity_set(saved.tid, &asked).is_err() {
        return Ok(Followed::Busy);
    }
    let new = Saved { mask: asked, whole: false, ..saved };
    let changed = table.remask(slot, bound, &new, asked, Some(asked))?;
    Ok(if changed { Followed::Concluded(asked) } else { Followed::Busy })
}

/// The task; if its mask was its whole cpuset, and the cpuset has gained CPUs, its mask is the cpuset as it is now.
fn grown(saved: &Saved, there: &CpuSet) -> Saved {
    let mask = if saved.whole && !there.is_subset(&saved.mask) { *there } else { saved.mask };
    Saved { mask, ..saved.clone() }
}

#[cfg(test)]
mod tests;
