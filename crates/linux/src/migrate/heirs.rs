//! Tasks that have inherited a binding get their masks back: what a bound task forks is bound as it was, and stays so through
//! exec(2).
//!
//! What proves that a task's mask is ours, and not its user's:
//!
//! 1. the kernel's record of its fork, by a task that was, or may have been, bound by us then;
//! 2. no record of a call by anybody else that has set its mask since, or its parent's just before;
//! 3. it is bound to one CPU of its parent's mask.
//!
//! All three hold: it gets the mask of its parent's user. The second does not: it is its user's, and left alone. Nobody knows
//! (no permission for such records, or some were lost): it is left alone, too, and is in doubt, which is told and kept in the
//! state file, so that its user can have it given back. Where there are no such records at all, a task whose children are in
//! doubt is not looked after any more. Where there are none of forks, processes are searched once a second instead.
//!
//! A child is given a moment before it is given its mask back. Programs that bind themselves do so when they start, and
//! between our look at the records and our change of the mask there is a microsecond in which a call by somebody else would
//! be overwritten. If that happens all the same it is counted (`overtaken`).
//!
//! Invariant: the time that is written into the state file is one up to which every heir has its mask, or is in that file.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::BorrowedFd;

use reprieve_policy::cpus::CpuSet;

use super::clock;
use super::forks::{Fork, Forks};
use super::give_back::{give_back, heirs};
use super::masks::{Binding, Owed, Saved, StateFile};
use super::sets::Window;
use super::table::{Held, Table};
use super::wishes::Set;
use super::witness::Witness;
use crate::error::Result;
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};

/// Between a child's fork and giving its mask back, ns: a program has started by then, and has bound itself if it does.
const MOMENT_NS: u64 = 50_000_000;
/// Searches, where there is nothing better, and tries to pay what is owed, ns.
const SEARCH_NS: u64 = 1_000_000_000;
/// How long a child, and a task that has left, is remembered for the sake of its own children, ns.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Most that are remembered, or waited for; with more, the search finds them.
const MOST_REMEMBERED: usize = 65_536;
/// A fork's record is written at its end. A child can be named in a call, and has its parent's mask, so long before, ns.
const FORK_TAKES_NS: u64 = 100_000_000;
/// A call that has set the mask of a task looked after is followed within such a time, ns, and its mask is known then.
const FOLLOWED_NS: u64 = 2_000_000_000;
/// Most numbers of a task and its ancestors.
const MOST_NUMBERS: usize = 64;
/// Most tasks remembered that are not to be looked after any more.
const MOST_BARRED: usize = 4096;

/// A task whose children may inherit a binding of ours.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The task, and what its user wants.
    saved: Saved,
    /// When it was, or may have been, bound by us.
    bound: Window,
    /// Its numbers, and those of its ancestors back to one looked after.
    numbers: Vec<i32>,
}

impl Ancestor {
    /// A task looked after, if it was ever bound.
    pub fn of(held: &Held) -> Option<Ancestor> {
        Some(Ancestor {
            saved: held.saved.clone(),
            bound: held.sets().bound()?,
            numbers: held.numbers.clone(),
        })
    }

    /// Whether a child of a fork that was recorded then may have inherited a binding.
    fn may_bequeath(&self, at_ns: u64) -> bool {
        self.bound.from_ns <= at_ns && at_ns.saturating_sub(FORK_TAKES_NS) <= self.bound.until_ns
    }
}

/// A fork whose child may have inherited a binding.
#[derive(Clone, Debug)]
struct Pending {
    fork: Fork,
    parent: Ancestor,
    /// All heirs that began before then have been seen to, clock ticks since boot.
    seen_ticks: u64,
}

/// Something owed, and since when nobody has looked whether its user has decided otherwise, ns.
#[derive(Debug)]
struct Debt {
    owed: Owed,
    since_ns: u64,
}

/// Looks after heirs.
pub struct Heirs {
    root: ProcRoot,
    sys: SysCpus,
    forks: Option<Forks>,
    witness: Witness,
    remembered: HashMap<i32, (Ancestor, u64)>,
    /// Forks whose parent's slot another thread was at.
    again: Vec<Fork>,
    /// Children that are given a moment, oldest first.
    pending: VecDeque<Pending>,
    debts: Vec<Debt>,
    /// Tasks that are not to be looked after any more: number and start time.
    barred: HashSet<(i32, u64)>,
    /// Slots of the state file from here on are for what is owed.
    first_slot: usize,
    online: CpuSet,
    searched_ns: u64,
    searches: bool,
    seen_ticks: u64,
    given_back: u64,
    overtaken: u64,
}

impl Heirs {
    /// With the slots from `first_slot` on for what is owed. Takes over what is left in the state file.
    ///
    /// # Errors
    /// If the state file cannot be read or written.
    pub fn new(
        root: &ProcRoot,
        sys: &SysCpus,
        forks: Option<Forks>,
        witness: Witness,
        first_slot: usize,
        state: Option<&StateFile>,
    ) -> Result<Heirs> {
        let mut new = Heirs {
            root: root.clone(),
            sys: sys.clone(),
            forks,
            witness,
            remembered: HashMap::new(),
            again: Vec::new(),
            pending: VecDeque::new(),
            debts: Vec::new(),
            barred: HashSet::new(),
            first_slot,
            online: sys.online(),
            searched_ns: 0,
            searches: false,
            seen_ticks: clock::boot_ticks(),
            given_back: 0,
            overtaken: 0,
        };
        if let Some(state) = state {
            let since_ns = clock::now_ns();
            // Those that need not move first, so that nobody's place is taken.
            let (stay, move_up): (Vec<Owed>, Vec<Owed>) =
                state.owed()?.into_iter().partition(|owed| owed.slot >= first_slot);
            new.debts = stay.into_iter().map(|owed| Debt { owed, since_ns }).collect();
            for owed in move_up {
                let from = owed.slot;
                new.owe(state, owed)?;
                state.clear(from)?;
            }
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
        let up_to_ticks = clock::boot_ticks();
        self.witness.look(now_ns);
        let mut forks = std::mem::take(&mut self.again);
        if let Some(watched) = &mut self.forks {
            let (new, missed) = watched.drain();
            forks.extend_from_slice(new);
            self.searches |= missed;
        }
        forks.into_iter().for_each(|fork| self.note(table, fork, now_ns));
        self.settle(state, now_ns, MOMENT_NS)?;
        if now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS {
            self.searched_ns = now_ns;
            self.slow_round(table, state, now_ns)?;
        }
        if !self.searches && self.forks.is_some() && self.again.is_empty() {
            let seen_ticks = self.pending.front().map_or(up_to_ticks, |oldest| oldest.seen_ticks);
            if seen_ticks != self.seen_ticks {
                self.seen_ticks = seen_ticks;
                state.saw_forks(seen_ticks)?;
            }
        }
        Ok(())
    }

    /// The last round: all masks that the tasks looked after had were given back, and nobody is given a moment.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn finish(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        self.round(table, now_ns)?;
        let Some(state) = table.state() else { return Ok(()) };
        self.settle(state, now_ns, 0)?;
        // Calls that were under way.
        for Pending { fork, parent, .. } in std::mem::take(&mut self.pending) {
            if let Some(child) = self.living_child(&parent, &fork) {
                self.doubt(state, &parent, child, Some(fork.cpu))?;
            }
        }
        if self.searches || self.forks.is_none() {
            self.search(table, state)?;
        }
        Ok(())
    }

    fn slow_round(&mut self, table: &Table, state: &StateFile, now_ns: u64) -> Result<()> {
        self.remembered.retain(|_, (_, since_ns)| now_ns.saturating_sub(*since_ns) < REMEMBERED_NS);
        let online = self.sys.online();
        if online != self.online {
            self.forks.iter_mut().for_each(|forks| forks.follow(&online));
            self.witness.follow(&online);
            self.online = online;
        }
        if self.searches || self.forks.is_none() {
            self.searches = false;
            self.search(table, state)?;
        }
        for debt in std::mem::take(&mut self.debts) {
            self.pay(state, debt, now_ns)?;
        }
        Ok(())
    }

    /// Tries again to give back what is owed, unless its user has decided otherwise meanwhile.
    fn pay(&mut self, state: &StateFile, debt: Debt, now_ns: u64) -> Result<()> {
        let Debt { owed, since_ns } = debt;
        let (pid, tid) = (owed.saved.pid, owed.saved.tid);
        let set = self.witness.since_of(&self.root, pid, tid, since_ns);
        let keeps = match set {
            Ok(Set::By { .. }) => false,
            Ok(Set::UnderWay) => true,
            Err(e) => !e.is_gone(),
            Ok(_) if owed.in_doubt => super::give_back::is_still_in_doubt(&self.root, &owed),
            Ok(_) => match give_back(&self.root, &self.sys, &owed) {
                Err(e) => !e.is_gone(),
                Ok(_) => false,
            },
        };
        match keeps {
            true => self.debts.push(Debt { since_ns: now_ns, owed }),
            false => state.clear(owed.slot)?,
        }
        Ok(())
    }

    /// A task leaves whose children may not have been seen yet.
    pub fn remember(&mut self, ancestor: Ancestor, now_ns: u64) {
        if self.remembered.len() < MOST_REMEMBERED {
            self.remembered.insert(ancestor.saved.tid, (ancestor, now_ns));
        }
    }

    /// Takes note of a fork by a task that may have been bound by us.
    fn note(&mut self, table: &Table, fork: Fork, now_ns: u64) {
        let parent = match table.slot_of(fork.parent_tid) {
            Some(slot) => match table.look(slot, |held| (held.saved.tid, Ancestor::of(held))) {
                Some((tid, ancestor)) if tid == fork.parent_tid => ancestor,
                // Another thread is at it, or it has just left.
                _ => return self.again.push(fork),
            },
            None => self.remembered.get(&fork.parent_tid).map(|(ancestor, _)| ancestor.clone()),
        };
        let Some(parent) = parent.filter(|parent| parent.may_bequeath(fork.at_ns)) else { return };
        // On one CPU alone there is nothing that we could have narrowed.
        if parent.saved.mask.len() < 2 {
            return;
        }
        let saved = child_of(&parent, &fork, 0);
        let mut numbers = self.root.numbers(fork.pid, fork.tid).unwrap_or(vec![fork.tid]);
        numbers.extend_from_slice(&parent.numbers);
        numbers.truncate(MOST_NUMBERS);
        // Until it is given its mask back; its own children are seen to by then, or soon after.
        let bound = Window { from_ns: fork.at_ns.saturating_sub(FORK_TAKES_NS), until_ns: u64::MAX };
        self.remember(Ancestor { saved, bound, numbers }, now_ns);
        match self.pending.len() < MOST_REMEMBERED {
            true => self.pending.push_back(Pending { fork, parent, seen_ticks: self.seen_ticks }),
            false => self.searches = true,
        }
    }

    /// Sees to the children that have had their moment.
    fn settle(&mut self, state: &StateFile, now_ns: u64, moment_ns: u64) -> Result<()> {
        for _ in 0..self.pending.len() {
            let is_due = |pending: &mut Pending| now_ns.saturating_sub(pending.fork.at_ns) >= moment_ns;
            let Some(pending) = self.pending.pop_front_if(is_due) else { break };
            let Pending { fork, parent, .. } = &pending;
            let Some(child) = self.living_child(parent, fork) else { continue };
            let since_ns = fork.at_ns.saturating_sub(FORK_TAKES_NS);
            if self.see_to(state, parent, child, Some(fork.cpu), since_ns)? == Set::UnderWay {
                self.pending.push_back(pending);
            }
        }
        Ok(())
    }

    /// The child of a fork, unless it has ended: then it has no mask.
    fn living_child(&self, parent: &Ancestor, fork: &Fork) -> Option<Saved> {
        let stat =
            TaskStatReader::open(&self.root, fork.pid, fork.tid).and_then(|reader| reader.read()).ok()?;
        (!stat.has_ended()).then(|| child_of(parent, fork, stat.start_ticks))
    }

    /// Gives a child of a task that was bound its mask back, if it has inherited the one that it has; `on` is a CPU that the
    /// parent was on. What is known of its mask since `since_ns`.
    fn see_to(
        &mut self,
        state: &StateFile,
        parent: &Ancestor,
        child: Saved,
        on: Option<usize>,
        since_ns: u64,
    ) -> Result<Set> {
        self.witness.look(clock::now_ns());
        // One that has ended has no mask.
        let Ok(set) = self.witness.since_of(&self.root, child.pid, child.tid, since_ns) else {
            return Ok(Set::Never);
        };
        let of_parents = self.witness.since(&parent.numbers, since_ns.saturating_sub(FOLLOWED_NS));
        match (set, of_parents) {
            (Set::By { .. } | Set::UnderWay, _) => {}
            (Set::Unknown, _) | (_, Set::By { .. } | Set::UnderWay) => {
                self.doubt(state, parent, child, on)?
            }
            // What is not known of the parents is long ago.
            (Set::Never, Set::Never | Set::Unknown) => {
                if let Some(owed) = self.inherited(child, on) {
                    self.repay(state, owed)?;
                }
            }
        }
        Ok(set)
    }

    /// What a child is owed if it has inherited the mask that it has; nothing if it is not bound to one CPU.
    fn inherited(&self, child: Saved, on: Option<usize>) -> Option<Owed> {
        let now = self.root.allowed_mask(child.pid, child.tid).ok()?;
        let one = now.iter().next().filter(|cpu| now.len() == 1 && child.mask.contains(*cpu));
        // A CPU that went offline since is not in it any more: the kernel has widened it.
        let binding = Binding { from: None, to: one.or(on) };
        (now != child.mask).then_some(Owed { slot: 0, saved: child, binding, in_doubt: false })
    }

    /// Leaves a child alone that may have inherited its mask, and remembers that.
    fn doubt(&mut self, state: &StateFile, parent: &Ancestor, child: Saved, on: Option<usize>) -> Result<()> {
        let Some(owed) =
            self.inherited(child, on).filter(|owed| super::give_back::is_still_in_doubt(&self.root, owed))
        else {
            return Ok(());
        };
        if !self.witness.sees() && self.barred.len() < MOST_BARRED {
            self.barred.insert((parent.saved.tid, parent.saved.start_ticks));
        }
        if self.debts.iter().any(|debt| debt.owed.saved.tid == owed.saved.tid) {
            return Ok(());
        }
        self.owe(state, Owed { in_doubt: true, ..owed })
    }

    /// Searches the processes of the tasks that were bound for heirs.
    fn search(&mut self, table: &Table, state: &StateFile) -> Result<()> {
        let up_to_ticks = clock::boot_ticks();
        let bound = (0..table.slots()).filter_map(|slot| table.look(slot, Ancestor::of).flatten());
        let bound: Vec<Ancestor> = bound.collect();
        for ancestor in bound {
            for heir in heirs(&self.root, std::slice::from_ref(&ancestor.saved), self.seen_ticks) {
                let since_ns = clock::began_ns(heir.saved.start_ticks);
                if self.pending.iter().any(|pending| pending.fork.tid == heir.saved.tid) {
                    continue;
                }
                self.see_to(state, &ancestor, heir.saved, None, since_ns)?;
            }
        }
        self.seen_ticks = self.pending.front().map_or(up_to_ticks, |oldest| oldest.seen_ticks);
        state.saw_forks(self.seen_ticks)
    }

    fn repay(&mut self, state: &StateFile, heir: Owed) -> Result<()> {
        let began_ns = clock::now_ns();
        match give_back(&self.root, &self.sys, &heir) {
            Ok(given_back) => {
                self.given_back += u64::from(given_back);
                let ended_ns = clock::now_ns();
                self.witness.look(ended_ns);
                let (pid, tid) = (heir.saved.pid, heir.saved.tid);
                let meanwhile = self.witness.since_of(&self.root, pid, tid, began_ns);
                let is_meanwhile =
                    matches!(meanwhile, Ok(Set::By { began_ns: at_ns, .. }) if at_ns <= ended_ns);
                self.overtaken += u64::from(given_back && is_meanwhile);
            }
            Err(e) if e.is_gone() => {}
            Err(_) => self.owe(state, heir)?,
        }
        Ok(())
    }

    /// Takes over what is owed to a task, into a slot of its own.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn owe(&mut self, state: &StateFile, owed: Owed) -> Result<()> {
        let last = self.debts.iter().map(|debt| debt.owed.slot + 1).max().unwrap_or(0);
        let free = (self.first_slot..last).find(|slot| self.debts.iter().all(|debt| debt.owed.slot != *slot));
        let slot = free.unwrap_or(last.max(self.first_slot));
        let owed = Owed { slot, ..owed };
        state.put_owed(&owed)?;
        self.debts.push(Debt { owed, since_ns: clock::now_ns() });
        Ok(())
    }

    /// Whether a task is not to be looked after, since its children could not be told from those that their user has bound.
    pub fn is_barred(&self, saved: (i32, u64)) -> bool {
        self.barred.contains(&saved)
    }

    /// What is known of calls that set masks.
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Tasks that are owed their masks.
    pub fn owed(&self) -> usize {
        self.debts.iter().filter(|debt| !debt.owed.in_doubt).count()
    }

    /// Tasks that are left alone since nobody knows who has bound them.
    pub fn in_doubt(&self) -> usize {
        self.debts.iter().filter(|debt| debt.owed.in_doubt).count()
    }

    /// Heirs that have got their masks back.
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// How often somebody else set a mask while it was given back: it may be that this was overwritten.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// When the next child has had its moment, ns.
    pub fn due_ns(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.fork.at_ns + MOMENT_NS)
    }

    /// What becomes readable when something has forked.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.forks.iter().flat_map(Forks::readable)
    }
}

/// The child of a fork, which is to have the mask of its parent's user.
fn child_of(parent: &Ancestor, fork: &Fork, start_ticks: u64) -> Saved {
    Saved { pid: fork.pid, tid: fork.tid, start_ticks, ..parent.saved.clone() }
}

#[cfg(test)]
#[path = "heirs_tests.rs"]
mod tests;
