//! Following the mask of a task looked after: whether its user, its cpuset, or a CPU that went offline has changed it.
//!
//! | bound to | its mask now | who did it | what is done |
//! |---|---|---|---|
//! | a CPU that is there | that CPU | we | nothing |
//! | a CPU that is not there | that CPU, or everything | the kernel does, or will | the user's mask is given back |
//! | nothing | its user's mask, or everything if that was its user's mask | nobody, or its cpuset | nothing |
//! | nothing | the part of its user's mask that we could restore | we | restored again when more of its CPUs are there |
//! | any | anything else | its user | that is the user's mask from now on |
//! | any | the same, after a call by somebody else ([`follow_call`]) | its user | what was asked for is the user's mask from now on |
//!
//! *There* is what is online and in the task's cpuset; *everything* is all of that, or all the machine may have. A user's mask
//! is never widened: if a CPU goes offline, the kernel widens the mask of a task bound to it, and we then restore the user's
//! mask. Nor is it narrowed for good: the kernel drops CPUs that are not there from a requested mask (sched_setaffinity(2)), and
//! we restore the rest once they are back.

use reprieve_policy::cpus::CpuSet;

use super::restore::is_everything;
use super::state_record::Saved;
use super::table::Table;
use crate::error::Result;
use crate::migrate::roots::Roots;
use crate::threads;

/// What has become of a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Another thread is at the task, or it is about to end.
    Busy,
    /// All is as it was.
    Same,
    /// The CPUs that the task may be put on from now on.
    Changed(CpuSet),
    /// The same, where no mask shows that: it is concluded from a call.
    Concluded(CpuSet),
}

/// Looks at the mask of the task in a slot, and follows what has changed it.
///
/// # Errors
/// If the state file cannot be written.
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
    // Where none of its user's CPUs is there, this is refused, and tried again.
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

/// Follows a call by somebody else that has set the mask of the task in a slot, and began then. If we bound the task to CPU 1 and
/// its user then asks for CPU 1, the mask does not change, and our next change overwrites the request. But before each change we
/// check that the mask is the one that we set. It still was CPU 1, so the user asked for CPU 1.
///
/// # Errors
/// If the state file cannot be written.
pub fn follow_call(roots: &Roots, table: &Table, slot: usize, began_ns: u64) -> Result<Followed> {
    let known = table.look(slot, |held| {
        let asked = held.sets().overwritten_since(began_ns).unwrap_or(held.bound_to());
        (held.saved.clone(), held.bound_to(), held.shown(), asked)
    });
    let Some((saved, bound, shown, asked)) = known else { return Ok(Followed::Busy) };
    let Ok(now) = roots.proc.allowed_mask(saved.pid, saved.tid) else { return Ok(Followed::Busy) };
    let Some(asked) = asked.filter(|_| now == shown) else {
        // The mask shows the change, or we had not bound the task: `follow` handles both.
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

/// The same task; if its mask was its whole cpuset and that has gained CPUs, with the cpuset as it is now.
fn grown(saved: &Saved, there: &CpuSet) -> Saved {
    let mask = if saved.whole && !there.is_subset(&saved.mask) { *there } else { saved.mask };
    Saved { mask, ..saved.clone() }
}

#[cfg(test)]
mod tests;
