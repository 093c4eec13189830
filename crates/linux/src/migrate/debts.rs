//! Masks that are owed: they could not be given back yet, or it is in doubt whether they are to be.
//!
//! Invariant: each is in the state file, in a slot of its own, until the task has its mask, has ended, or its user has decided
//! otherwise. A child that waits for its mask is in the file meanwhile, as in doubt: if the daemon is killed then, and the child's
//! parent has ended, it could not be found otherwise.

use std::collections::BTreeSet;

use super::clock;
use super::give_back::{give_back, is_still_in_doubt};
use super::masks::StateFile;
use super::owed::{Owed, Saved};
use super::wishes::Set;
use super::witness::Witness;
use crate::error::Result;
use crate::proc::{ProcRoot, SysCpus};

/// Children are noted in the file while fewer than this, debts included, are in it: 4 MiB.
const MOST_NOTED: usize = 1024;

/// A mask owed, and when we last checked whether the user has set another, ns.
#[derive(Debug)]
pub struct Debt {
    /// The task, and the mask owed to it.
    pub owed: Owed,
    since_ns: u64,
}

/// All that is owed.
#[derive(Debug)]
pub struct Debts {
    pub(super) debts: Vec<Debt>,
    slots: Slots,
}

/// Slots of the state file.
#[derive(Debug)]
struct Slots {
    /// Those below are for the tasks looked after.
    first: usize,
    /// From here on all are free.
    top: usize,
    /// Of those below, these are.
    free: BTreeSet<usize>,
}

impl Slots {
    fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.top += 1;
            self.top - 1
        })
    }
}

impl Debts {
    /// Nothing, with the slots of the state file from `first_slot` on.
    pub fn new(first_slot: usize) -> Debts {
        let slots = Slots { first: first_slot, top: first_slot, free: BTreeSet::new() };
        Debts { debts: Vec::new(), slots }
    }

    /// Takes over what a former daemon has left in the state file.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn take_over(&mut self, state: &StateFile) -> Result<()> {
        let since_ns = clock::now_ns();
        // First those that keep their slots, so that the others do not get an occupied one.
        let (stay, move_up): (Vec<Owed>, Vec<Owed>) =
            state.owed()?.into_iter().partition(|owed| owed.slot >= self.slots.first);
        let taken: BTreeSet<usize> = stay.iter().map(|owed| owed.slot).collect();
        self.slots.top = taken.last().map_or(self.slots.first, |last| last + 1);
        self.slots.free = (self.slots.first..self.slots.top).filter(|slot| !taken.contains(slot)).collect();
        self.debts.extend(stay.into_iter().map(|owed| Debt { owed, since_ns }));
        for owed in move_up {
            let from = owed.slot;
            self.owe(state, owed)?;
            state.clear(from)?;
        }
        Ok(())
    }

    /// Takes over what is owed to a task, into a slot of its own.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn owe(&mut self, state: &StateFile, owed: Owed) -> Result<()> {
        let owed = Owed { slot: self.slots.take(), ..owed };
        state.put_owed(&owed)?;
        self.debts.push(Debt { owed, since_ns: clock::now_ns() });
        Ok(())
    }

    /// Puts a child that is given a moment into the file, as in doubt; the slot that it is in until it is
    /// [forgotten](Debts::forget). `None` if there are many already, or the file cannot be written.
    pub fn note(&mut self, state: &StateFile, child: Owed) -> Option<usize> {
        if self.slots.free.is_empty() && self.slots.top >= self.slots.first + MOST_NOTED {
            return None;
        }
        let slot = self.slots.take();
        let written = state.put_owed(&Owed { slot, in_doubt: true, ..child });
        if written.is_err() {
            self.slots.free.insert(slot);
        }
        written.ok().map(|()| slot)
    }

    /// Forgets what is in a slot.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn forget(&mut self, state: &StateFile, slot: usize) -> Result<()> {
        state.clear(slot)?;
        self.slots.free.insert(slot);
        Ok(())
    }

    /// Tries again to give back masks that could not be given back, and drops debts that are settled. Masks in doubt are checked,
    /// and not given back.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn pay(
        &mut self,
        state: &StateFile,
        root: &ProcRoot,
        sys: &SysCpus,
        witness: &Witness,
        now_ns: u64,
    ) -> Result<()> {
        for Debt { owed, since_ns } in std::mem::take(&mut self.debts) {
            let keeps = match witness.since_of(root, owed.saved.pid, owed.saved.tid, since_ns) {
                Ok(Set::By { .. }) => false,
                Ok(Set::UnderWay) => true,
                Ok(Set::Unknown | Set::Unclear { .. }) if !owed.in_doubt && witness.sees() => {
                    state.put_owed(&Owed { in_doubt: true, ..owed.clone() })?;
                    self.debts.push(Debt { since_ns: now_ns, owed: Owed { in_doubt: true, ..owed } });
                    continue;
                }
                Err(e) => !e.is_gone(),
                Ok(_) if owed.in_doubt => is_still_in_doubt(root, &owed),
                Ok(_) => give_back(root, sys, &owed).is_err_and(|e| !e.is_gone()),
            };
            match keeps {
                true => self.debts.push(Debt { since_ns: now_ns, owed }),
                false => self.forget(state, owed.slot)?,
            }
        }
        Ok(())
    }

    /// Whether a mask is owed to a task of that number.
    pub fn has(&self, tid: i32) -> bool {
        self.debts.iter().any(|debt| debt.owed.saved.tid == tid)
    }

    /// Whether a mask is owed to this very task.
    pub fn has_task(&self, task: &Saved) -> bool {
        let same = |saved: &Saved| (saved.tid, saved.start_ticks) == (task.tid, task.start_ticks);
        self.debts.iter().any(|debt| same(&debt.owed.saved))
    }

    /// Tasks that could not be given their masks yet.
    pub fn owed(&self) -> usize {
        self.debts.iter().filter(|debt| !debt.owed.in_doubt).count()
    }

    /// Tasks that are left alone since nobody knows who has bound them.
    pub fn in_doubt(&self) -> usize {
        self.debts.iter().filter(|debt| debt.owed.in_doubt).count()
    }
}
