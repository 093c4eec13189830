//! Masks that could not be restored yet, and tasks in doubt.
//!
//! Invariant: each is in the state file, in its own slot, until the task has its mask, has ended, or its user has set
//! another. A child that waits for its judgement is in the file meanwhile, in doubt: if the daemon is killed then and
//! the child's parent has ended, nothing else would lead to the child.
//!
//! Errors: the state file cannot be read or written.

use std::collections::BTreeSet;

use crate::Result;
use crate::clock;
use crate::migrate::Roots;
use crate::migrate::masks::{Saved, StateFile, StateRecord, is_still_in_doubt, restore_mask};
use crate::migrate::watch::{CallWatch, SetByOther};

/// Children are noted in the file only while it has fewer than this many tasks besides the managed ones: 4 MiB.
const MOST_NOTED: usize = 1024;

/// A task that waits for its mask.
#[derive(Debug)]
pub struct Waiting {
    /// The task and the mask to restore.
    pub record: StateRecord,
    /// When it was last checked whether the user has set another mask, ns.
    since_ns: u64,
}

/// All tasks that wait for their masks.
#[derive(Debug)]
pub struct Unrestored {
    pub(super) waiting: Vec<Waiting>,
    slots: Slots,
}

/// The slots of the state file for these tasks.
#[derive(Debug)]
struct Slots {
    /// The first slot. Lower ones are for managed tasks.
    first: usize,
    /// Slots from here on are all free.
    top: usize,
    /// Free slots below `top`.
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
    /// Starts without tasks. Uses the slots of the state file from `first_slot` on.
    pub fn new(first_slot: usize) -> Unrestored {
        let slots = Slots { first: first_slot, top: first_slot, free: BTreeSet::new() };
        Unrestored { waiting: Vec::new(), slots }
    }

    /// Takes over what an earlier daemon left in the state file.
    pub fn take_over(&mut self, state: &StateFile) -> Result<()> {
        let since_ns = clock::now_ns();
        // First those that keep their slots, so that no other gets an occupied one.
        let (stay, move_up): (Vec<StateRecord>, Vec<StateRecord>) =
            state.records()?.into_iter().partition(|record| record.slot >= self.slots.first);
        let taken: BTreeSet<usize> = stay.iter().map(|record| record.slot).collect();
        self.slots.top = taken.last().map_or(self.slots.first, |last| last + 1);
        self.slots.free = (self.slots.first..self.slots.top).filter(|slot| !taken.contains(slot)).collect();
        self.waiting.extend(stay.into_iter().map(|record| Waiting { record, since_ns }));
        for record in move_up {
            let from = record.slot;
            self.add(state, record)?;
            state.clear(from)?;
        }
        Ok(())
    }

    /// Adds a task, in a new slot.
    pub fn add(&mut self, state: &StateFile, record: StateRecord) -> Result<()> {
        let record = StateRecord { slot: self.slots.take(), ..record };
        state.put_record(&record)?;
        self.waiting.push(Waiting { record, since_ns: clock::now_ns() });
        Ok(())
    }

    /// Puts a child that is still starting into the file, in doubt. Returns its slot, to be [freed](Unrestored::forget)
    /// later; `None` if there are too many, or the file cannot be written.
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

    /// Frees a slot.
    pub fn forget(&mut self, state: &StateFile, slot: usize) -> Result<()> {
        state.clear(slot)?;
        self.slots.free.insert(slot);
        Ok(())
    }

    /// Tries again to restore masks, and drops tasks that no longer need it. Masks in doubt are checked but not
    /// restored.
    pub fn retry(
        &mut self,
        state: &StateFile,
        roots: &Roots,
        call_watch: &CallWatch,
        now_ns: u64,
    ) -> Result<()> {
        for Waiting { record, since_ns } in std::mem::take(&mut self.waiting) {
            let keeps = match call_watch.since_of(&roots.proc, record.saved.pid, record.saved.tid, since_ns) {
                Ok(SetByOther::By { .. }) => false,
                Ok(SetByOther::UnderWay) => true,
                Ok(SetByOther::Unknown | SetByOther::Unclear { .. })
                    if !record.in_doubt && call_watch.sees() =>
                {
                    let record = StateRecord { in_doubt: true, ..record };
                    state.put_record(&record)?;
                    self.waiting.push(Waiting { since_ns: now_ns, record });
                    continue;
                }
                Err(e) => !e.is_gone(),
                Ok(_) if record.in_doubt => is_still_in_doubt(&roots.proc, &record),
                Ok(_) => restore_mask(roots, &record).is_err_and(|e| !e.is_gone()),
            };
            match keeps {
                true => self.waiting.push(Waiting { since_ns: now_ns, record }),
                false => self.forget(state, record.slot)?,
            }
        }
        Ok(())
    }

    /// Whether a task with this id waits for its mask.
    pub fn has(&self, tid: i32) -> bool {
        self.waiting.iter().any(|waiting| waiting.record.saved.tid == tid)
    }

    /// Whether this very task waits for its mask.
    pub fn has_task(&self, task: &Saved) -> bool {
        let same = |saved: &Saved| (saved.tid, saved.start_ticks) == (task.tid, task.start_ticks);
        self.waiting.iter().any(|waiting| same(&waiting.record.saved))
    }

    /// Number of tasks whose masks could not be restored yet.
    pub fn count(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.record.in_doubt).count()
    }

    /// Number of tasks in doubt.
    pub fn in_doubt(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.record.in_doubt).count()
    }
}
