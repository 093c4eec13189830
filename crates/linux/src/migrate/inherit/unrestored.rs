//! Masks that are owed: they could not be given back yet, or it is in doubt whether they are to be.
//!
//! Invariant: each is in the state file, in a slot of its own, until the task has its mask, has ended, or its user has decided
//! otherwise. A child that waits for its mask is in the file meanwhile, as in doubt: if the daemon is killed then, and the child's
//! parent has ended, it could not be found otherwise.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::migrate::clock;
use crate::migrate::masks::restore::{give_back, is_still_in_doubt};
use crate::migrate::masks::state_file::StateFile;
use crate::migrate::masks::state_record::{Saved, StateRecord};
use crate::migrate::watch::call_history::SetByOther;
use crate::migrate::watch::call_watch::CallWatch;
use crate::proc::{ProcRoot, SysCpus};

/// Children are noted in the file while fewer than this, debts included, are in it: 4 MiB.
const MOST_NOTED: usize = 1024;

/// A mask owed, and when we last checked whether the user has set another, ns.
#[derive(Debug)]
pub struct Waiting {
    /// The task, and the mask owed to it.
    pub record: StateRecord,
    since_ns: u64,
}

/// All that is owed.
#[derive(Debug)]
pub struct Unrestored {
    pub(super) unrestored: Vec<Waiting>,
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

impl Unrestored {
    /// Nothing, with the slots of the state file from `first_slot` on.
    pub fn new(first_slot: usize) -> Unrestored {
        let slots = Slots { first: first_slot, top: first_slot, free: BTreeSet::new() };
        Unrestored { unrestored: Vec::new(), slots }
    }

    /// Takes over what a former daemon has left in the state file.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn take_over(&mut self, state: &StateFile) -> Result<()> {
        let since_ns = clock::now_ns();
        // First those that keep their slots, so that the others do not get an occupied one.
        let (stay, move_up): (Vec<StateRecord>, Vec<StateRecord>) =
            state.records()?.into_iter().partition(|record| record.slot >= self.slots.first);
        let taken: BTreeSet<usize> = stay.iter().map(|record| record.slot).collect();
        self.slots.top = taken.last().map_or(self.slots.first, |last| last + 1);
        self.slots.free = (self.slots.first..self.slots.top).filter(|slot| !taken.contains(slot)).collect();
        self.unrestored.extend(stay.into_iter().map(|record| Waiting { record, since_ns }));
        for record in move_up {
            let from = record.slot;
            self.add(state, record)?;
            state.clear(from)?;
        }
        Ok(())
    }

    /// Takes over what is owed to a task, into a slot of its own.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn add(&mut self, state: &StateFile, record: StateRecord) -> Result<()> {
        let record = StateRecord { slot: self.slots.take(), ..record };
        state.put_record(&record)?;
        self.unrestored.push(Waiting { record, since_ns: clock::now_ns() });
        Ok(())
    }

    /// Puts a child that is given a moment into the file, as in doubt; the slot that it is in until it is
    /// [forgotten](Unrestored::forget). `None` if there are many already, or the file cannot be written.
    pub fn note(&mut self, state: &StateFile, child: StateRecord) -> Option<usize> {
        if self.slots.free.is_empty() && self.slots.top >= self.slots.first + MOST_NOTED {
            return None;
        }
        let slot = self.slots.take();
        let written = state.put_record(&StateRecord { slot, in_doubt: true, ..child });
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
    pub fn retry(
        &mut self,
        state: &StateFile,
        root: &ProcRoot,
        sys: &SysCpus,
        call_watch: &CallWatch,
        now_ns: u64,
    ) -> Result<()> {
        for Waiting { record, since_ns } in std::mem::take(&mut self.unrestored) {
            let keeps = match call_watch.since_of(root, record.saved.pid, record.saved.tid, since_ns) {
                Ok(SetByOther::By { .. }) => false,
                Ok(SetByOther::UnderWay) => true,
                Ok(SetByOther::Unknown | SetByOther::Unclear { .. })
                    if !record.in_doubt && call_watch.sees() =>
                {
                    state.put_record(&StateRecord { in_doubt: true, ..record.clone() })?;
                    self.unrestored
                        .push(Waiting { since_ns: now_ns, record: StateRecord { in_doubt: true, ..record } });
                    continue;
                }
                Err(e) => !e.is_gone(),
                Ok(_) if record.in_doubt => is_still_in_doubt(root, &record),
                Ok(_) => give_back(root, sys, &record).is_err_and(|e| !e.is_gone()),
            };
            match keeps {
                true => self.unrestored.push(Waiting { since_ns: now_ns, record }),
                false => self.forget(state, record.slot)?,
            }
        }
        Ok(())
    }

    /// Whether a mask is owed to a task of that number.
    pub fn has(&self, tid: i32) -> bool {
        self.unrestored.iter().any(|debt| debt.record.saved.tid == tid)
    }

    /// Whether a mask is owed to this very task.
    pub fn has_task(&self, task: &Saved) -> bool {
        let same = |saved: &Saved| (saved.tid, saved.start_ticks) == (task.tid, task.start_ticks);
        self.unrestored.iter().any(|debt| same(&debt.record.saved))
    }

    /// Tasks that could not be given their masks yet.
    pub fn count(&self) -> usize {
        self.unrestored.iter().filter(|debt| !debt.record.in_doubt).count()
    }

    /// Tasks that are left alone since nobody knows who has bound them.
    pub fn in_doubt(&self) -> usize {
        self.unrestored.iter().filter(|debt| debt.record.in_doubt).count()
    }
}
