//! Judges whether a child has inherited its mask from a bound parent, and restores the mask if so.
//!
//! A child's mask is inherited, and not chosen by its user, if all of this holds:
//!
//! 1. the kernel recorded its fork, by a task that was, or may have been, bound by the daemon then;
//! 2. no call by anybody else has set the child's mask since, nor its parent's just before;
//! 3. the child is bound to one CPU of its parent's mask.
//!
//! Then it gets the mask of its parent's user. If somebody set the child's own mask, that is its user's, and stays. If
//! somebody set its parent's just before, or records are not permitted or were lost, the child is in doubt: it is left
//! alone, counted, and kept in the state file, so that its user can have the mask restored (`--restore --in-doubt`).
//! Without any records of calls, a task whose children are in doubt is barred: it is no longer managed.
//!
//! Between the last look at a mask and its change there is a microsecond in which a call by somebody else would be
//! overwritten. If that may have happened, it is counted (`overtaken`).

use std::collections::HashSet;

use super::{Ancestor, Unrestored};
use crate::Result;
use crate::migrate::Roots;
use crate::migrate::masks::{
    Binding, Saved, StateFile, StateRecord, Table, Window, is_still_in_doubt, restore_mask, successor,
};
use crate::migrate::watch::{CallWatch, SetByOther};
use reprieve_policy::SECOND_NS;

/// The time within which the roster takes over a mask that somebody else has set, ns.
const FOLLOWED_NS: u64 = 2 * SECOND_NS;
/// The most tasks barred.
const MOST_BARRED: usize = 4096;

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// A call that sets its mask is under way: judge it again later.
    NotYet,
    /// It had inherited a binding, and got its mask back within this time.
    Restored(Window),
    /// It has its user's mask, is in doubt, cannot be restored yet, or has ended.
    Settled,
}

pub struct Judge {
    pub(super) roots: Roots,
    /// Records of calls that set masks.
    pub call_watch: CallWatch,
    /// Masks that could not be restored yet, and tasks in doubt.
    pub unrestored: Unrestored,
    /// Tasks that are not to be managed any more: thread id and start time.
    pub(super) barred: HashSet<(i32, u64)>,
    /// Number of children that got their masks back.
    pub restored: u64,
    /// How often somebody else set a mask while it was being restored, so that it may have been overwritten.
    pub overtaken: u64,
}

impl Judge {
    pub fn new(roots: Roots, call_watch: CallWatch, unrestored: Unrestored) -> Judge {
        Judge { roots, call_watch, unrestored, barred: HashSet::new(), restored: 0, overtaken: 0 }
    }

    pub(super) fn look(&mut self) {
        self.call_watch.look(&self.roots.proc);
    }

    /// Restores a child's mask if the child has inherited a binding since `since_ns`. `on` is a CPU that its parent ran
    /// on.
    pub(super) fn judge(
        &mut self,
        state: &StateFile,
        parent: &Ancestor,
        child: Saved,
        on: Option<usize>,
        since_ns: u64,
    ) -> Result<Judged> {
        self.look();
        // This fails only for a child that has ended, and so has no mask.
        let Ok(set) = self.call_watch.since_of(&self.roots.proc, child.pid, child.tid, since_ns) else {
            return Ok(Judged::Settled);
        };
        let of_parents = self.call_watch.since(&parent.numbers, since_ns.saturating_sub(FOLLOWED_NS));
        match (set, of_parents) {
            (SetByOther::UnderWay, _) => return Ok(Judged::NotYet),
            (SetByOther::By { .. }, _) => {}
            (SetByOther::Unknown | SetByOther::Unclear { .. }, _)
            | (_, SetByOther::By { .. } | SetByOther::UnderWay | SetByOther::Unclear { .. }) => {
                self.doubt(state, parent, child, on)?
            }
            // Records are complete since the fork. An unknown call on an ancestor was earlier, and was followed.
            (SetByOther::Never, SetByOther::Never | SetByOther::Unknown) => {
                if let Some(record) = self.inherited(child, on) {
                    return Ok(self.restore(state, record)?.map_or(Judged::Settled, Judged::Restored));
                }
            }
        }
        Ok(Judged::Settled)
    }

    /// A record of the child, if its mask is not its user's. Whether it is bound is checked when the mask is restored.
    pub(super) fn inherited(&self, child: Saved, on: Option<usize>) -> Option<StateRecord> {
        let now = self.roots.proc.allowed_mask(child.pid, child.tid).ok()?;
        let one = now.iter().next().filter(|cpu| now.len() == 1 && child.mask.contains(*cpu));
        // If that CPU has gone offline since, the kernel has widened the mask, and it no longer shows the CPU.
        let binding = Binding { from: None, to: one.or(on) };
        (now != child.mask).then_some(StateRecord { slot: 0, saved: child, binding, in_doubt: false })
    }

    /// Leaves a child alone that may have inherited its mask, and keeps it as in doubt.
    pub(super) fn doubt(
        &mut self,
        state: &StateFile,
        parent: &Ancestor,
        child: Saved,
        on: Option<usize>,
    ) -> Result<()> {
        let record = self.inherited(child, on);
        let Some(record) = record.filter(|record| is_still_in_doubt(&self.roots.proc, record)) else {
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

    /// Restores a child's mask; returns when, if the mask was changed.
    pub(super) fn restore(&mut self, state: &StateFile, child: StateRecord) -> Result<Option<Window>> {
        match restore_mask(&self.roots, &child) {
            Ok(Some(window)) => {
                self.restored += 1;
                self.overtaken += u64::from(self.was_overtaken(&child.saved, window));
                return Ok(Some(window));
            }
            Ok(None) => {}
            Err(e) if e.is_gone() => {}
            Err(_) => self.unrestored.add(state, child)?,
        }
        Ok(None)
    }

    /// Whether somebody else may have set a mask in the time in which it was restored, and was overwritten.
    fn was_overtaken(&mut self, saved: &Saved, window: Window) -> bool {
        self.look();
        let set = self.call_watch.since_of(&self.roots.proc, saved.pid, saved.tid, window.from_ns);
        let meanwhile = match set {
            Ok(SetByOther::By { began_ns, .. } | SetByOther::Unclear { began_ns, .. }) => {
                began_ns <= window.until_ns
            }
            Ok(SetByOther::UnderWay) => true,
            _ => false,
        };
        meanwhile && self.roots.proc.allowed_mask(saved.pid, saved.tid).is_ok_and(|now| now == saved.mask)
    }

    /// A thread that may have been bound has ended. If it has executed a program, its process lives on with the
    /// binding, under the id of its first thread. No record shows whether it did, so that process is in doubt.
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
        let Some(StateRecord { saved, .. }) = successor(&self.roots.proc, ended) else { return Ok(()) };
        // If the first thread is managed as well, its mask may be the one that the daemon gave it.
        let slot = table.slot_of(saved.tid);
        let shown = slot.and_then(|slot| table.look(slot, |held| held.shown()));
        let now = || self.roots.proc.allowed_mask(saved.pid, saved.tid);
        if shown.is_some_and(|shown| now().is_ok_and(|now| now == shown)) {
            return Ok(());
        }
        self.doubt(state, of, saved, None)
    }

    /// Whether a task is not to be managed, because its children's inherited masks look like masks chosen by their
    /// users.
    pub fn is_barred(&self, task: (i32, u64)) -> bool {
        self.barred.contains(&task)
    }
}
