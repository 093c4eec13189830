//! Finds the children of bound tasks, waits until they have started, and has them judged.
//!
//! The kernel's records of forks show the children. Without such records, the processes of bound tasks and their
//! descendants are searched once a second. After a recorded fork, a child is judged once 50 ms have passed and it
//! sleeps, or after 2 s, because programs that bind themselves do so when they start. The search does not wait.
//!
//! Invariant: every child that had inherited a binding and started before the time in the state file has its user's
//! mask, or is in that file.
//!
//! Errors: the state file cannot be read or written.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use reprieve_policy::SECOND_NS;
use reprieve_policy::cpus::CpuSet;

use super::{Ancestor, FORK_TAKES_NS, Judge, Judged, Unrestored};
use crate::Result;
use crate::clock;
use crate::migrate::Roots;
use crate::migrate::masks::{Saved, StateFile, Table, find_children};
use crate::migrate::watch::{CallWatch, Fork, Forks};
use crate::proc::{TaskStat, TaskStatReader};

/// Time between a child's fork and the earliest judgement, ns. By then a program has started, and has bound itself if
/// it does.
const MOMENT_NS: u64 = 50_000_000;
/// A child that does not sleep may still be starting, for instance on a busy machine. It is judged this long after its
/// fork at the latest, ns.
const STARTS_NS: u64 = 2 * SECOND_NS;
/// Time between two searches, and between two attempts to restore what could not be restored, ns.
const SEARCH_NS: u64 = SECOND_NS;
/// How long a child, or a task that is no longer managed, is remembered for its own children's sake, ns. This is longer
/// than a child may wait for its judgement, which waits up to 10 s for a call that does not end.
const REMEMBERED_NS: u64 = 12 * SECOND_NS;
/// The most ancestors remembered, and the most forks pending. All others are left to the search.
const MOST_REMEMBERED: usize = 65_536;

/// A fork whose child may have inherited a binding.
#[derive(Clone, Debug)]
struct Pending {
    fork: Fork,
    parent: Ancestor,
    /// The time in the state file when the fork was found, clock ticks since boot.
    handled_ticks: u64,
    /// The child's slot in the state file meanwhile.
    slot: Option<usize>,
}

/// Watches for children that inherit bindings.
pub struct Children {
    /// Judges the children.
    pub judge: Judge,
    forks: Option<Forks>,
    /// Ancestors outside of the table, and when each was last seen, ns.
    remembered: HashMap<i32, (Ancestor, u64)>,
    /// Forks put off because another thread held the parent's slot.
    again: Vec<Fork>,
    /// Children that are still starting.
    pending: Vec<Pending>,
    online: CpuSet,
    searched_ns: u64,
    /// Whether a search is due because records of forks were lost.
    searches: bool,
    handled_ticks: u64,
}

impl Children {
    /// Watches from now on. Uses the slots of the state file from `first_slot` on, and takes over what is left in that
    /// file.
    pub fn new(
        roots: &Roots,
        forks: Option<Forks>,
        call_watch: CallWatch,
        first_slot: usize,
        state: Option<&StateFile>,
    ) -> Result<Children> {
        let mut new = Children {
            judge: Judge::new(roots.clone(), call_watch, Unrestored::new(first_slot)),
            forks,
            remembered: HashMap::new(),
            again: Vec::new(),
            pending: Vec::new(),
            online: roots.sys.online(),
            searched_ns: 0,
            searches: false,
            handled_ticks: clock::boot_ticks(),
        };
        if let Some(state) = state {
            new.judge.unrestored.take_over(state)?;
            state.save_handled(new.handled_ticks)?;
        }
        Ok(new)
    }

    /// Runs one round: takes in new forks, and has the children judged that have started.
    pub fn round(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        let Some(state) = table.state() else { return Ok(()) };
        // A task starts before its fork is recorded.
        let up_to_ticks = clock::boot_ticks().saturating_sub(clock::ticks(FORK_TAKES_NS));
        self.judge.look();
        let mut forks = std::mem::take(&mut self.again);
        if let Some(watched) = &mut self.forks {
            let (new, missed) = watched.drain();
            forks.extend_from_slice(new);
            self.searches |= missed;
        }
        // Keep the order: if a child's own fork is put off, put off the child's forks too.
        for fork in forks {
            let is_child = self.again.iter().any(|before| before.tid == fork.parent_tid);
            if is_child { self.again.push(fork) } else { self.note(table, state, fork, now_ns) }
        }
        self.settle(table, state, now_ns, MOMENT_NS)?;
        if now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS {
            self.searched_ns = now_ns;
            self.slow_round(table, state, now_ns)?;
        }
        if !self.searches && self.forks.is_some() && self.again.is_empty() {
            let handled_ticks = self.pending_since().unwrap_or(up_to_ticks);
            if handled_ticks != self.handled_ticks {
                self.handled_ticks = handled_ticks;
                state.save_handled(handled_ticks)?;
            }
        }
        Ok(())
    }

    /// Runs the last round. Call it after all tasks in the table have their masks again. It does not wait for children
    /// to start.
    pub fn finish(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        self.round(table, now_ns)?;
        let Some(state) = table.state() else { return Ok(()) };
        self.settle(table, state, now_ns, 0)?;
        // Only children with a call under way are left.
        for Pending { fork, parent, slot, .. } in std::mem::take(&mut self.pending) {
            if let Some((child, _)) = self.living_child(&parent, &fork) {
                self.judge.doubt(state, &parent, child, Some(fork.cpu))?;
            }
            slot.map_or(Ok(()), |slot| self.judge.unrestored.forget(state, slot))?;
        }
        if self.searches || self.forks.is_none() {
            self.search(table, state)?;
        }
        Ok(())
    }

    fn slow_round(&mut self, table: &Table, state: &StateFile, now_ns: u64) -> Result<()> {
        let unrestored = &self.judge.unrestored;
        self.remembered.retain(|tid, (_, since_ns)| {
            now_ns.saturating_sub(*since_ns) < REMEMBERED_NS || unrestored.has(*tid)
        });
        let online = self.judge.roots.sys.online();
        if online != self.online {
            self.forks.iter_mut().for_each(|forks| forks.follow(&online));
            self.judge.call_watch.follow(&online);
            self.online = online;
        }
        if self.searches || self.forks.is_none() {
            self.searches = false;
            self.search(table, state)?;
        }
        let Judge { unrestored, roots, call_watch, .. } = &mut self.judge;
        unrestored.retry(state, roots, call_watch, now_ns)
    }

    /// Remembers a task that leaves the table, and whose children may not all be known yet.
    pub fn remember(&mut self, ancestor: Ancestor, now_ns: u64) {
        if self.remembered.len() < MOST_REMEMBERED {
            self.remembered.insert(ancestor.saved.tid, (ancestor, now_ns));
        } else {
            self.searches = true;
        }
    }

    /// Takes in a fork, if its parent may have been bound by the daemon.
    fn note(&mut self, table: &Table, state: &StateFile, fork: Fork, now_ns: u64) {
        let parent = match table.slot_of(fork.parent_tid) {
            Some(slot) => match table.look(slot, |held| (held.saved.tid, Ancestor::of(held, fork.at_ns))) {
                Some((tid, ancestor)) if tid == fork.parent_tid => ancestor,
                // Another thread holds the slot, or the task has just left it.
                _ => return self.again.push(fork),
            },
            None => self.remembered.get(&fork.parent_tid).map(|(ancestor, _)| ancestor.clone()),
        };
        // A mask of one CPU cannot be narrowed.
        let bequeaths = |of: &Ancestor| of.may_bequeath(fork.at_ns) && of.saved.mask.len() > 1;
        let Some(parent) = parent.filter(bequeaths) else { return };
        let numbers = self.judge.roots.proc.numbers(fork.pid, fork.tid).unwrap_or(vec![fork.tid]);
        self.remember(parent.child_as_ancestor(&fork, numbers), now_ns);
        if self.pending.len() >= MOST_REMEMBERED {
            self.searches = true;
            return;
        }
        let child = self.living_child(&parent, &fork);
        let record = child.and_then(|(child, _)| self.judge.inherited(child, Some(fork.cpu)));
        let slot = record.and_then(|record| self.judge.unrestored.note(state, record));
        self.pending.push(Pending { fork, parent, handled_ticks: self.handled_ticks, slot });
    }

    /// Has the children judged that have started.
    fn settle(&mut self, table: &Table, state: &StateFile, now_ns: u64, moment_ns: u64) -> Result<()> {
        for pending in std::mem::take(&mut self.pending) {
            match (self.is_settled(table, state, &pending, now_ns, moment_ns)?, pending.slot) {
                (false, _) => self.pending.push(pending),
                (true, Some(slot)) => self.judge.unrestored.forget(state, slot)?,
                (true, None) => {}
            }
        }
        Ok(())
    }

    /// Has a child judged if it has started. Returns whether the child is settled.
    fn is_settled(
        &mut self,
        table: &Table,
        state: &StateFile,
        Pending { fork, parent, .. }: &Pending,
        now_ns: u64,
        moment_ns: u64,
    ) -> Result<bool> {
        let age_ns = now_ns.saturating_sub(fork.at_ns);
        if age_ns < moment_ns {
            return Ok(false);
        }
        let Some((child, stat)) = self.living_child(parent, fork) else {
            let ended = Saved { pid: fork.pid, tid: fork.tid, ..parent.saved.clone() };
            return self.judge.thread_ended(table, state, parent, &ended).map(|()| true);
        };
        // Its user can bind it through io_uring(7), of which there is no record.
        if stat.is_io_worker {
            self.judge.doubt(state, parent, child, Some(fork.cpu))?;
            return Ok(true);
        }
        let starts = stat.state != 'S' && moment_ns > 0 && age_ns < STARTS_NS;
        let since_ns = fork.at_ns.saturating_sub(FORK_TAKES_NS);
        Ok(!starts && self.judge(state, parent, child, Some(fork.cpu), since_ns)? != Judged::NotYet)
    }

    fn judge(
        &mut self,
        state: &StateFile,
        parent: &Ancestor,
        child: Saved,
        on: Option<usize>,
        since_ns: u64,
    ) -> Result<Judged> {
        let tid = child.tid;
        let judged = self.judge.judge(state, parent, child, on, since_ns)?;
        // From now on its own children inherit its user's mask.
        if let (Judged::Restored(window), Some((freed, _))) = (judged, self.remembered.get_mut(&tid)) {
            freed.bound.until_ns = window.until_ns;
        }
        Ok(judged)
    }

    /// The time in the state file that pending children allow, clock ticks since boot; `None` without any.
    fn pending_since(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.handled_ticks).min()
    }

    /// The child of a fork, and its state; `None` if it has ended, and so has no mask.
    fn living_child(&self, parent: &Ancestor, fork: &Fork) -> Option<(Saved, TaskStat)> {
        let reader = TaskStatReader::open(&self.judge.roots.proc, fork.pid, fork.tid);
        let stat = reader.and_then(|reader| reader.read()).ok()?;
        (!stat.has_ended()).then(|| (parent.child(fork, stat.start_ticks), stat))
    }

    /// Searches the processes of bound tasks for children.
    fn search(&mut self, table: &Table, state: &StateFile) -> Result<()> {
        let up_to_ticks = clock::boot_ticks();
        let bound = (0..table.slots())
            .filter_map(|slot| table.look(slot, |held| Ancestor::of(held, clock::now_ns())).flatten());
        // Tasks that have left the table may have children that are not known yet.
        let left = self.remembered.values().map(|(ancestor, _)| ancestor.clone());
        let bound: Vec<Ancestor> = bound.chain(left).collect();
        for ancestor in bound {
            let of = std::slice::from_ref(&ancestor.saved);
            for child in find_children(&self.judge.roots.proc, of, self.handled_ticks) {
                let since_ns = clock::began_ns(child.saved.start_ticks);
                if self.pending.iter().any(|pending| pending.fork.tid == child.saved.tid) {
                    continue;
                }
                self.judge(state, &ancestor, child.saved, None, since_ns)?;
            }
        }
        self.handled_ticks = self.pending_since().unwrap_or(up_to_ticks);
        state.save_handled(self.handled_ticks)
    }

    /// When the next child is to be judged, ns.
    pub fn due_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.fork.at_ns + MOMENT_NS).min()
    }

    /// Descriptors that become readable when a task has forked, and when many masks were set.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.forks.iter().flat_map(Forks::readable).chain(self.judge.call_watch.readable())
    }
}

#[cfg(test)]
mod tests;
