//! Following the mask of a task looked after: whether its user, its cpuset, or a CPU that went offline has changed it.
//!
//! | bound to | its mask now | who did it | what is done |
//! |---|---|---|---|
//! | a CPU that is there | that CPU | we | nothing |
//! | a CPU that is not there | that CPU, or everything | the kernel does, or will | the user's mask is given back |
//! | nothing | the same, or everything and so it was | nobody, or its cpuset | nothing |
//! | nothing | what the kernel made of it when it was given back | we | given back again, once more of it is there |
//! | any | anything else | its user | that is the user's mask from now on |
//! | any | the same, after a call by somebody else ([`follow_call`]) | its user | what was asked for is the user's mask from now on |
//!
//! *There* is what is online and in the task's cpuset; *everything* is all of that, or all the machine may have. A user's mask
//! is thus never widened: where a CPU goes offline the kernel widens the mask of a task bound to it, which is taken back. Nor
//! is it narrowed for good: of a mask that is asked for the kernel keeps only what is there (sched_setaffinity(2)).

use reprieve_policy::cpus::CpuSet;

use super::give_back::is_everything;
use super::masks::Saved;
use super::roster::Roots;
use super::table::Table;
use crate::error::Result;
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

/// Follows a call by somebody else that has set the mask of the task in a slot, and began then. Of a task that we have bound to
/// CPU 1 its user may have asked for CPU 1: then the mask shows nothing, and our next change overwrites it. But that change
/// saw CPU 1, or it would not have been made; so this is what was asked for.
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
        // It shows, or it was the mask that the task has from its user in any case.
        return follow(roots, table, slot);
    };
    let asked = CpuSet::of(asked);
    if now != asked && threads::set_affinity_set(saved.tid, &asked).is_err() {
        return Ok(Followed::Busy);
    }
    let new = Saved { mask: asked, whole: false, ..saved };
    let changed = table.remask(slot, bound, &new, asked, Some(asked))?;
    Ok(if changed { Followed::Changed(asked) } else { Followed::Busy })
}

/// The same, but for a mask that is the whole of a cpuset, which may have got more.
fn grown(saved: &Saved, there: &CpuSet) -> Saved {
    let mask = if saved.whole && !there.is_subset(&saved.mask) { *there } else { saved.mask };
    Saved { mask, ..saved.clone() }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
