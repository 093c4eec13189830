//! Tasks that have inherited a binding get their masks back: what a bound task forks is bound as it was, and stays so through
//! exec(2).
//!
//! The kernel's records of forks name parent and child, and the CPU they were on, which is what the parent was bound to: a
//! child that is bound to anything else was bound by its user since. Where there are no such records (no permission), or some
//! were lost, processes of the tasks looked after are searched once a second instead, which takes any child bound to one CPU
//! for an heir. What cannot be given back now is owed, in the state file, and tried again.
//!
//! Invariant: the time that is written into the state file is one up to which every heir has its mask, or is in that file.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use reprieve_policy::cpus::CpuSet;

use super::clock;
use super::forks::{Fork, Forks};
use super::give_back::{give_back, heirs};
use super::masks::{Binding, Owed, Saved, StateFile};
use super::table::Table;
use crate::error::Result;
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};

/// Searches, where there is nothing better, and tries to pay what is owed, ns.
const SEARCH_NS: u64 = 1_000_000_000;
/// How long a child, and a task that has left, is remembered for the sake of its own children, ns.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Most that are remembered; with more, the search finds their children.
const MOST_REMEMBERED: usize = 65_536;

/// Looks after heirs.
pub struct Heirs {
    root: ProcRoot,
    sys: SysCpus,
    forks: Option<Forks>,
    remembered: HashMap<i32, (Saved, u64)>,
    /// Forks whose parent's slot another thread was at.
    again: Vec<Fork>,
    debts: Vec<Owed>,
    /// Slots of the state file from here on are for what is owed.
    first_slot: usize,
    online: CpuSet,
    searched_ns: u64,
    searches: bool,
    seen_ticks: u64,
    given_back: u64,
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
        first_slot: usize,
        state: Option<&StateFile>,
    ) -> Result<Heirs> {
        let mut new = Heirs {
            root: root.clone(),
            sys: sys.clone(),
            forks,
            remembered: HashMap::new(),
            again: Vec::new(),
            debts: Vec::new(),
            first_slot,
            online: sys.online(),
            searched_ns: 0,
            searches: false,
            seen_ticks: clock::boot_ticks(),
            given_back: 0,
        };
        if let Some(state) = state {
            // Those that need not move first, so that nobody's place is taken.
            let (stay, move_up): (Vec<Owed>, Vec<Owed>) =
                state.owed()?.into_iter().partition(|owed| owed.slot >= first_slot);
            new.debts = stay;
            for owed in move_up {
                let from = owed.slot;
                new.owe(state, owed)?;
                state.clear(from)?;
            }
            state.saw_forks(new.seen_ticks)?;
        }
        Ok(new)
    }

    /// One round: sees to all forks up to now.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn round(&mut self, table: &Table, now_ns: u64) -> Result<()> {
        let Some(state) = table.state() else { return Ok(()) };
        let up_to_ticks = clock::boot_ticks();
        let mut forks = std::mem::take(&mut self.again);
        if let Some(watched) = &mut self.forks {
            let (new, missed) = watched.drain();
            forks.extend_from_slice(new);
            self.searches |= missed;
        }
        for fork in forks {
            self.see_to(table, state, fork, now_ns)?;
        }
        if now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS {
            self.searched_ns = now_ns;
            self.slow_round(table, state, now_ns)?;
        }
        if !self.searches && self.forks.is_some() && self.again.is_empty() && up_to_ticks != self.seen_ticks {
            self.seen_ticks = up_to_ticks;
            state.saw_forks(up_to_ticks)?;
        }
        Ok(())
    }

    fn slow_round(&mut self, table: &Table, state: &StateFile, now_ns: u64) -> Result<()> {
        self.remembered.retain(|_, (_, since_ns)| now_ns.saturating_sub(*since_ns) < REMEMBERED_NS);
        let online = self.sys.online();
        if online != self.online {
            self.forks.iter_mut().for_each(|forks| forks.follow(&online));
            self.online = online;
        }
        if self.searches || self.forks.is_none() {
            self.searches = false;
            self.search(table, state)?;
        }
        for debt in std::mem::take(&mut self.debts) {
            match give_back(&self.root, &self.sys, &debt) {
                Err(e) if !e.is_gone() => self.debts.push(debt),
                _ => state.clear(debt.slot)?,
            }
        }
        Ok(())
    }

    /// A task leaves, whose children may not have been seen yet.
    pub fn remember(&mut self, saved: Saved, now_ns: u64) {
        if self.remembered.len() < MOST_REMEMBERED {
            self.remembered.insert(saved.tid, (saved, now_ns));
        }
    }

    fn see_to(&mut self, table: &Table, state: &StateFile, fork: Fork, now_ns: u64) -> Result<()> {
        let parent = match table.slot_of(fork.parent_tid) {
            Some(slot) => match table.look(slot, |held| held.saved.clone()) {
                Some(saved) if saved.tid == fork.parent_tid => Some(saved),
                // Another thread is at it, or it has just left.
                _ => {
                    self.again.push(fork);
                    return Ok(());
                }
            },
            None => self.remembered.get(&fork.parent_tid).map(|(saved, _)| saved.clone()),
        };
        let Some(parent) = parent else { return Ok(()) };
        let stat = TaskStatReader::open(&self.root, fork.pid, fork.tid).and_then(|reader| reader.read());
        // One that has ended already may have forked before.
        let start_ticks = stat.as_ref().map_or(0, |stat| stat.start_ticks);
        let saved = Saved { pid: fork.pid, tid: fork.tid, start_ticks, ..parent };
        self.remember(saved.clone(), now_ns);
        // On one CPU alone there is nothing that we could have narrowed.
        if saved.mask.len() < 2 || stat.is_err() {
            return Ok(());
        }
        self.repay(state, Owed { slot: 0, saved, binding: Binding { from: None, to: Some(fork.cpu) } })
    }

    /// Searches the processes of the tasks looked after for heirs.
    fn search(&mut self, table: &Table, state: &StateFile) -> Result<()> {
        let up_to_ticks = clock::boot_ticks();
        let members = (0..table.slots()).filter_map(|slot| table.look(slot, |held| held.saved.clone()));
        let members: Vec<Saved> = members.collect();
        for heir in heirs(&self.root, &members, self.seen_ticks) {
            self.repay(state, heir)?;
        }
        self.seen_ticks = up_to_ticks;
        state.saw_forks(up_to_ticks)
    }

    fn repay(&mut self, state: &StateFile, heir: Owed) -> Result<()> {
        match give_back(&self.root, &self.sys, &heir) {
            Ok(given_back) => self.given_back += u64::from(given_back),
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
        let last = self.debts.iter().map(|debt| debt.slot + 1).max().unwrap_or(0);
        let free = (self.first_slot..last).find(|slot| self.debts.iter().all(|debt| debt.slot != *slot));
        let slot = free.unwrap_or(last.max(self.first_slot));
        let owed = Owed { slot, ..owed };
        state.put_owed(&owed)?;
        self.debts.push(owed);
        Ok(())
    }

    /// Tasks that are owed their masks.
    pub fn owed(&self) -> usize {
        self.debts.len()
    }

    /// Heirs that have got their masks back.
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// What becomes readable when something has forked.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.forks.iter().flat_map(Forks::readable)
    }
}

#[cfg(test)]
#[path = "heirs_tests.rs"]
mod tests;
