//! Tasks that have inherited a binding get their masks back: what a bound task forks is bound as it was, and stays so through
//! exec(2).
//!
//! What proves that a task's mask is ours, and not its user's:
//!
//! 1. the kernel's record of its fork, by a task that was, or may have been, bound by us then;
//! 2. no record of a call by anybody else that has set its mask since, or its parent's just before;
//! 3. it is bound to one CPU of its parent's mask.
//!
//! If all three hold, the child gets the mask of its parent's user. If somebody set the child's own mask, that is its user's, and
//! stays. If somebody set its parent's just before, or records are not permitted or were lost, the child is in doubt: it is left
//! alone, told, and kept in the state file, and its user can have its mask given back (`--restore --in-doubt`). Without any
//! records of calls, a task whose children are in doubt is not looked after any more. Without records of forks, the processes of
//! bound tasks and their descendants are searched once a second.
//!
//! After a recorded fork, a child gets its mask back once 50 ms have passed and it sleeps, or after 2 s; the search does not
//! wait. Programs that bind themselves do so when they start, and between our last look at the mask and our change of it there
//! is a microsecond in which a call by somebody else would be overwritten. If that happens all the same, it is counted
//! (`overtaken`).
//!
//! Invariant: every heir that began before the time in the state file has its user's mask, or is in that file.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

use reprieve_policy::cpus::CpuSet;

use super::ancestor::{Ancestor, FORK_TAKES_NS};
use super::unrestored::Unrestored;
use crate::error::Result;
use crate::migrate::clock;
use crate::migrate::masks::changes::Window;
use crate::migrate::masks::restore::{find_children, give_back, successor};
use crate::migrate::masks::state_file::StateFile;
use crate::migrate::masks::state_record::{Binding, Saved, StateRecord};
use crate::migrate::masks::table::Table;
use crate::migrate::watch::call_history::SetByOther;
use crate::migrate::watch::call_watch::CallWatch;
use crate::migrate::watch::forks::{Fork, Forks};
use crate::proc::{ProcRoot, SysCpus, TaskStat, TaskStatReader};

/// Between a child's fork and giving its mask back, ns: a program has started by then, and has bound itself if it does.
const MOMENT_NS: u64 = 50_000_000;
/// A child that does not sleep may still be starting, for instance on a busy machine. It is waited for at most this long after
/// its fork, ns.
const STARTS_NS: u64 = 2_000_000_000;
/// Searches, where there is nothing better, and tries to pay what is owed, ns.
const SEARCH_NS: u64 = 1_000_000_000;
/// How long a child, and a task that has left, is remembered for the sake of its own children, ns: longer than a child may have
/// to wait for its mask, for which a call that has not ended is given 10 s.
const REMEMBERED_NS: u64 = 12_000_000_000;
/// Most ancestors remembered, and most forks pending. The others are left to the search.
const MOST_REMEMBERED: usize = 65_536;
/// After somebody sets the mask of a task in the table, the roster takes over the new mask within this time, ns.
const FOLLOWED_NS: u64 = 2_000_000_000;
/// Most tasks remembered that are not to be looked after any more.
const MOST_BARRED: usize = 4096;

/// A fork whose child may have inherited a binding.
#[derive(Clone, Debug)]
struct Pending {
    fork: Fork,
    parent: Ancestor,
    /// All heirs that began before then have been seen to, clock ticks since boot.
    seen_ticks: u64,
    /// Where it is in the state file meanwhile.
    slot: Option<usize>,
}

/// Looks after heirs.
pub struct Children {
    root: ProcRoot,
    sys: SysCpus,
    forks: Option<Forks>,
    call_watch: CallWatch,
    remembered: HashMap<i32, (Ancestor, u64)>,
    /// Forks whose parent's slot was locked by another thread.
    again: Vec<Fork>,
    /// Children that are given a moment.
    pending: Vec<Pending>,
    unrestored: Unrestored,
    /// Tasks that are not to be looked after any more: number and start time.
    barred: HashSet<(i32, u64)>,
    online: CpuSet,
    searched_ns: u64,
    searches: bool,
    seen_ticks: u64,
    given_back: u64,
    overtaken: u64,
}

impl Children {
    /// With the slots from `first_slot` on for what is owed. Takes over what is left in the state file.
    ///
    /// # Errors
    /// If the state file cannot be read or written.
    pub fn new(
        root: &ProcRoot,
        sys: &SysCpus,
        forks: Option<Forks>,
        call_watch: CallWatch,
        first_slot: usize,
        state: Option<&StateFile>,
    ) -> Result<Children> {
        let mut new = Children {
            root: root.clone(),
            sys: sys.clone(),
            forks,
            call_watch,
            remembered: HashMap::new(),
            again: Vec::new(),
            pending: Vec::new(),
            unrestored: Unrestored::new(first_slot),
            barred: HashSet::new(),
            online: sys.online(),
            searched_ns: 0,
            searches: false,
            seen_ticks: clock::boot_ticks(),
            given_back: 0,
            overtaken: 0,
        };
        if let Some(state) = state {
            new.unrestored.take_over(state)?;
            state.saw_forks(new.seen_ticks)?;
        }
        Ok(new)
    }

    /// One round: sees to all forks that are due.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn round(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        let Some(state) = table.state() else { return Ok(()) };
        // A task begins before its fork is recorded.
        let up_to_ticks = clock::boot_ticks().saturating_sub(clock::ticks(FORK_TAKES_NS));
        self.call_watch.look(&self.root);
        let mut forks = std::mem::take(&mut self.again);
        if let Some(watched) = &mut self.forks {
            let (new, missed) = watched.drain();
            forks.extend_from_slice(new);
            self.searches |= missed;
        }
        // In their order: a fork by a child whose own fork is put off is put off, too.
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
            let seen_ticks = self.pending_since().unwrap_or(up_to_ticks);
            if seen_ticks != self.seen_ticks {
                self.seen_ticks = seen_ticks;
                state.saw_forks(seen_ticks)?;
            }
        }
        Ok(())
    }

    /// The last round. Call it after all tasks in the table have their masks again. It does not wait for new children to start.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn finish(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        self.round(table, now_ns)?;
        let Some(state) = table.state() else { return Ok(()) };
        self.settle(table, state, now_ns, 0)?;
        // Calls that were under way.
        for Pending { fork, parent, slot, .. } in std::mem::take(&mut self.pending) {
            if let Some((child, _)) = self.living_child(&parent, &fork) {
                self.doubt(state, &parent, child, Some(fork.cpu))?;
            }
            slot.map_or(Ok(()), |slot| self.unrestored.forget(state, slot))?;
        }
        if self.searches || self.forks.is_none() {
            self.search(table, state)?;
        }
        Ok(())
    }

    fn slow_round(&mut self, table: &Table, state: &StateFile, now_ns: u64) -> Result<()> {
        let unrestored = &self.unrestored;
        self.remembered.retain(|tid, (_, since_ns)| {
            now_ns.saturating_sub(*since_ns) < REMEMBERED_NS || unrestored.has(*tid)
        });
        let online = self.sys.online();
        if online != self.online {
            self.forks.iter_mut().for_each(|forks| forks.follow(&online));
            self.call_watch.follow(&online);
            self.online = online;
        }
        if self.searches || self.forks.is_none() {
            self.searches = false;
            self.search(table, state)?;
        }
        self.unrestored.retry(state, &self.root, &self.sys, &self.call_watch, now_ns)
    }

    /// A task leaves whose children may not have been seen yet.
    pub fn remember(&mut self, ancestor: Ancestor, now_ns: u64) {
        if self.remembered.len() < MOST_REMEMBERED {
            self.remembered.insert(ancestor.saved.tid, (ancestor, now_ns));
        } else {
            self.searches = true;
        }
    }

    /// Takes note of a fork by a task that may have been bound by us.
    fn note(&mut self, table: &Table, state: &StateFile, fork: Fork, now_ns: u64) {
        let parent = match table.slot_of(fork.parent_tid) {
            Some(slot) => match table.look(slot, |held| (held.saved.tid, Ancestor::of(held, fork.at_ns))) {
                Some((tid, ancestor)) if tid == fork.parent_tid => ancestor,
                // Another thread is at it, or it has just left.
                _ => return self.again.push(fork),
            },
            None => self.remembered.get(&fork.parent_tid).map(|(ancestor, _)| ancestor.clone()),
        };
        // On one CPU alone there is nothing that we could have narrowed.
        let bequeaths = |of: &Ancestor| of.may_bequeath(fork.at_ns) && of.saved.mask.len() > 1;
        let Some(parent) = parent.filter(bequeaths) else { return };
        let numbers = self.root.numbers(fork.pid, fork.tid).unwrap_or(vec![fork.tid]);
        self.remember(parent.child_as_ancestor(&fork, numbers), now_ns);
        if self.pending.len() >= MOST_REMEMBERED {
            self.searches = true;
            return;
        }
        let child = self.living_child(&parent, &fork);
        let record = child.and_then(|(child, _)| self.inherited(child, Some(fork.cpu)));
        let slot = record.and_then(|record| self.unrestored.note(state, record));
        self.pending.push(Pending { fork, parent, seen_ticks: self.seen_ticks, slot });
    }

    /// Sees to the children that have had their moment.
    fn settle(&mut self, table: &Table, state: &StateFile, now_ns: u64, moment_ns: u64) -> Result<()> {
        for pending in std::mem::take(&mut self.pending) {
            match (self.is_settled(table, state, &pending, now_ns, moment_ns)?, pending.slot) {
                (false, _) => self.pending.push(pending),
                (true, Some(slot)) => self.unrestored.forget(state, slot)?,
                (true, None) => {}
            }
        }
        Ok(())
    }

    /// Sees to a child, if it has had its moment; whether that is done.
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
            return self.thread_ended(table, state, parent, &ended).map(|()| true);
        };
        // Its user binds it by io_uring(7), which is told by no record.
        if stat.is_io_worker {
            self.doubt(state, parent, child, Some(fork.cpu))?;
            return Ok(true);
        }
        let starts = stat.state != 'S' && moment_ns > 0 && age_ns < STARTS_NS;
        let since_ns = fork.at_ns.saturating_sub(FORK_TAKES_NS);
        Ok(!starts && self.see_to(state, parent, child, Some(fork.cpu), since_ns)? != SetByOther::UnderWay)
    }

    /// All heirs that began before then have been seen to, clock ticks since boot; none if all have.
    fn pending_since(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.seen_ticks).min()
    }

    /// The child of a fork, and its state, unless it has ended: then it has no mask.
    fn living_child(&self, parent: &Ancestor, fork: &Fork) -> Option<(Saved, TaskStat)> {
        let stat =
            TaskStatReader::open(&self.root, fork.pid, fork.tid).and_then(|reader| reader.read()).ok()?;
        (!stat.has_ended()).then(|| (parent.child(fork, stat.start_ticks), stat))
    }

    /// Gives a child its mask back if it has inherited a binding. `on` is a CPU that the parent ran on. Returns whether somebody
    /// else has set the child's mask since `since_ns`.
    fn see_to(
        &mut self,
        state: &StateFile,
        parent: &Ancestor,
        child: Saved,
        on: Option<usize>,
        since_ns: u64,
    ) -> Result<SetByOther> {
        self.call_watch.look(&self.root);
        // One that has ended has no mask.
        let Ok(set) = self.call_watch.since_of(&self.root, child.pid, child.tid, since_ns) else {
            return Ok(SetByOther::Never);
        };
        let of_parents = self.call_watch.since(&parent.numbers, since_ns.saturating_sub(FOLLOWED_NS));
        match (set, of_parents) {
            (SetByOther::By { .. } | SetByOther::UnderWay, _) => {}
            (SetByOther::Unknown | SetByOther::Unclear { .. }, _)
            | (_, SetByOther::By { .. } | SetByOther::UnderWay | SetByOther::Unclear { .. }) => {
                self.doubt(state, parent, child, on)?
            }
            // Records are complete since the fork. A call on an ancestor that is not known began before that, and was followed.
            (SetByOther::Never, SetByOther::Never | SetByOther::Unknown) => {
                if let Some(record) = self.inherited(child, on) {
                    self.restore(state, record)?;
                }
            }
        }
        Ok(set)
    }

    /// What a child is owed if it has inherited its mask; `None` if it has its user's mask. Whether it is bound, `give_back` checks.
    fn inherited(&self, child: Saved, on: Option<usize>) -> Option<StateRecord> {
        let now = self.root.allowed_mask(child.pid, child.tid).ok()?;
        let one = now.iter().next().filter(|cpu| now.len() == 1 && child.mask.contains(*cpu));
        // A CPU that went offline since is not in it any more: the kernel has widened it.
        let binding = Binding { from: None, to: one.or(on) };
        (now != child.mask).then_some(StateRecord { slot: 0, saved: child, binding, in_doubt: false })
    }

    /// Leaves a child alone that may have inherited its mask, and remembers that.
    fn doubt(&mut self, state: &StateFile, parent: &Ancestor, child: Saved, on: Option<usize>) -> Result<()> {
        let Some(record) = self
            .inherited(child, on)
            .filter(|record| crate::migrate::masks::restore::is_still_in_doubt(&self.root, record))
        else {
            return Ok(());
        };
        if !self.call_watch.sees() && self.barred.len() < MOST_BARRED {
            self.barred.insert((parent.saved.tid, parent.saved.start_ticks));
        }
        match self.unrestored.has_task(&record.saved) {
            true => Ok(()),
            false => self.unrestored.add(state, StateRecord { in_doubt: true, ..record }),
        }
    }

    /// Searches the processes of the tasks that were bound for heirs.
    fn search(&mut self, table: &Table, state: &StateFile) -> Result<()> {
        let up_to_ticks = clock::boot_ticks();
        let bound = (0..table.slots())
            .filter_map(|slot| table.look(slot, |held| Ancestor::of(held, clock::now_ns())).flatten());
        // And those that have left since, whose children may not have been seen to.
        let left = self.remembered.values().map(|(ancestor, _)| ancestor.clone());
        let bound: Vec<Ancestor> = bound.chain(left).collect();
        for ancestor in bound {
            for child in find_children(&self.root, std::slice::from_ref(&ancestor.saved), self.seen_ticks) {
                let since_ns = clock::began_ns(child.saved.start_ticks);
                if self.pending.iter().any(|pending| pending.fork.tid == child.saved.tid) {
                    continue;
                }
                self.see_to(state, &ancestor, child.saved, None, since_ns)?;
            }
        }
        self.seen_ticks = self.pending_since().unwrap_or(up_to_ticks);
        state.saw_forks(self.seen_ticks)
    }

    fn restore(&mut self, state: &StateFile, child: StateRecord) -> Result<()> {
        match give_back(&self.root, &self.sys, &child) {
            Ok(Some(window)) => {
                self.given_back += 1;
                // What it forks from now on inherits its user's mask.
                if let Some((freed, _)) = self.remembered.get_mut(&child.saved.tid) {
                    freed.bound.until_ns = window.until_ns;
                }
                self.overtaken += u64::from(self.was_overtaken(&child.saved, window));
            }
            Ok(None) => {}
            Err(e) if e.is_gone() => {}
            Err(_) => self.add_unrestored(state, child)?,
        }
        Ok(())
    }

    /// Whether somebody else may have set a mask in the moment in which it was given back, and was overwritten.
    fn was_overtaken(&mut self, saved: &Saved, window: Window) -> bool {
        self.call_watch.look(&self.root);
        let set = self.call_watch.since_of(&self.root, saved.pid, saved.tid, window.from_ns);
        let meanwhile = match set {
            Ok(SetByOther::By { began_ns, .. }) => began_ns <= window.until_ns,
            Ok(SetByOther::Unclear { began_ns, .. }) => began_ns <= window.until_ns,
            Ok(SetByOther::UnderWay) => true,
            _ => false,
        };
        meanwhile && self.root.allowed_mask(saved.pid, saved.tid).is_ok_and(|now| now == saved.mask)
    }

    /// Takes over what is owed to a task.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn add_unrestored(&mut self, state: &StateFile, record: StateRecord) -> Result<()> {
        self.unrestored.add(state, record)
    }

    /// A thread that may have been bound has ended. If it has executed a program, its process lives on as it was bound, under the
    /// number of its first thread: whether that is so nobody has seen, so that is in doubt.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn thread_ended(
        &mut self,
        table: &Table,
        state: &StateFile,
        of: &Ancestor,
        ended: &Saved,
    ) -> Result<()> {
        let Some(StateRecord { saved, .. }) = successor(&self.root, ended) else { return Ok(()) };
        // We have bound the first thread, too, and it is as we left it.
        let slot = table.slot_of(saved.tid);
        let shown = slot.and_then(|slot| table.look(slot, |held| held.shown()));
        if shown
            .is_some_and(|shown| self.root.allowed_mask(saved.pid, saved.tid).is_ok_and(|now| now == shown))
        {
            return Ok(());
        }
        self.doubt(state, of, saved, None)
    }

    /// Whether a task is not to be looked after, since its children could not be told from those that their user has bound.
    pub fn is_barred(&self, saved: (i32, u64)) -> bool {
        self.barred.contains(&saved)
    }

    /// What is known of calls that set masks.
    pub fn call_watch(&self) -> &CallWatch {
        &self.call_watch
    }

    /// What is owed.
    pub fn unrestored(&self) -> &Unrestored {
        &self.unrestored
    }

    /// Heirs that have got their masks back.
    pub fn restored(&self) -> u64 {
        self.given_back
    }

    /// How often somebody else set a mask while it was given back: it may be that this was overwritten.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// When the next child has had its moment, ns.
    pub fn due_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.fork.at_ns + MOMENT_NS).min()
    }

    /// What becomes readable when something has forked, and when many masks were set.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.forks.iter().flat_map(Forks::readable).chain(self.call_watch.readable())
    }
}

#[cfg(test)]
mod tests;
