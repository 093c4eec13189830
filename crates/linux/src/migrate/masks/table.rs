//! The table of managed tasks, which the daemon's threads share: one slot for each task.
//!
//! A slot is a mailbox. The decider writes the CPU it wants for the task, and orders a mover to carry that out. The
//! mover reads the wanted CPU when it acts, so no order is lost, and no stale order wins:
//!
//! ```text
//! decider: wanted = w; order a mover    mover: loop { try-lock, or return; bind to wanted; unlock; return if wanted is the same }
//! ```
//! (Apart from the decider, only a change of the task's mask resets the wanted CPU, since it is then void.)
//!
//! Invariants: no thread waits for a lock. If another thread holds it, leave the work to that thread, which checks
//! again after unlocking. A task's mask is in the state file before its slot is filled, and its binding before it is
//! bound. A slot is emptied only when its task has its mask again, has ended, or is recorded elsewhere.
//!
//! Errors: the state cannot be saved; nothing is changed then.
//!
//! Ordering: the wanted CPU is stored, then a fence, then the try-lock (A); and the unlock, then a fence, then the
//! wanted CPU is loaded (B). If A's fence comes first in the total order of fences, B's load sees A's store. Otherwise
//! A's try-lock sees B's unlock, and succeeds. With weaker fences both could fail, and the order would wait for the
//! main loop's next round. Test: `the_last_wish_holds`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

use reprieve_policy::cpus::CpuSet;

use super::{Binding, Changes, Saved, StateFile, StateRecord};
use crate::clock;
use crate::{Result, threads};

/// Stands for no CPU: the task has, or is to have, its user's mask. A CPU is its number plus one.
const HOME: u32 = 0;

/// A task in a slot.
#[derive(Debug)]
pub struct Held {
    /// The task and its user's mask.
    pub saved: Saved,
    /// The CPUs of its mask that are available to it now: online, and in its cpuset.
    pub usable: CpuSet,
    /// A file of the task in `/proc`. It becomes unreadable when the task ends, which shows that the id may now be
    /// another task's. Without it this goes unnoticed.
    pub alive: Option<File>,
    /// Its ids in all PID namespaces that it is in.
    pub numbers: Vec<i32>,
    /// The CPU it is bound to, or [`HOME`].
    applied: u32,
    /// The mask that the kernel made of the user's mask when it was last restored: smaller, if CPUs were unavailable.
    given: CpuSet,
    /// The daemon's changes to its mask.
    pub changes: Changes,
    /// The task before its user last changed the mask, and when that was noticed, ns.
    former: Option<(Saved, u64)>,
}

impl Held {
    /// A task that is not bound.
    pub fn new(saved: Saved, usable: CpuSet, alive: Option<File>) -> Held {
        let given = saved.mask;
        let numbers = vec![saved.tid];
        Held {
            saved,
            usable,
            alive,
            numbers,
            applied: HOME,
            given,
            changes: Changes::default(),
            former: None,
        }
    }

    /// The mask that the kernel shows unless somebody else changes it: the CPU it is bound to, or the mask last
    /// restored.
    pub fn shown(&self) -> CpuSet {
        self.bound_to().map_or(self.given, CpuSet::of)
    }

    /// The task as it was known at this time.
    pub fn saved_at(&self, at_ns: u64) -> &Saved {
        self.former.as_ref().filter(|(_, until_ns)| at_ns < *until_ns).map_or(&self.saved, |(saved, _)| saved)
    }

    /// The CPU it is bound to, if any.
    pub fn bound_to(&self) -> Option<usize> {
        to_cpu(self.applied)
    }

    /// The mask that the kernel should show now.
    fn expected(&self) -> CpuSet {
        self.bound_to().map_or(self.usable, CpuSet::of)
    }

    fn has_ended(&self) -> bool {
        self.alive.as_ref().is_some_and(|file| file.read_at(&mut [0], 0).is_err())
    }
}

/// One slot.
#[derive(Debug, Default)]
struct Slot {
    /// The task's id, or 0 without a task: readable without the lock.
    tid: AtomicI32,
    /// The CPU that the decider wants, or [`HOME`].
    wanted: AtomicU32,
    held: Mutex<Option<Held>>,
    /// The decider has forgotten the task, and has asked for its mask to be restored.
    dismissed: AtomicBool,
    /// Something unexpected was found, and the main loop must look.
    odd: AtomicBool,
    /// When an I/O event of the task was last seen, ns.
    io_ns: AtomicU64,
}

impl Slot {
    /// The task, unless another thread holds it.
    fn try_hold(&self) -> Option<MutexGuard<'_, Option<Held>>> {
        match self.held.try_lock() {
            Ok(held) => Some(held),
            // A panic leaves a consistent value, since values are only replaced as a whole.
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The outcome of carrying out an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The mask was changed.
    Done,
    /// There was nothing to do: the task is as wanted, or the slot is empty.
    Same,
    /// Another thread holds the task, and will carry out this order as well.
    Overtaken,
    /// Somebody else has changed the task's mask, so it was left alone.
    Foreign,
    /// The task has ended.
    Gone,
    /// The kernel refused, the CPU is unavailable to the task, or the state file cannot be written.
    Refused,
}

/// All slots.
#[derive(Debug)]
pub struct Table {
    slots: Box<[Slot]>,
    /// Slots from this number on have never been filled.
    top: AtomicUsize,
    /// `None` if nothing is carried out.
    state: Option<StateFile>,
}

impl Table {
    /// A table of this many empty slots. Masks are saved in `state`; without it, nothing is carried out.
    pub fn new(tasks: usize, state: Option<StateFile>) -> Table {
        Table { slots: (0..tasks).map(|_| Slot::default()).collect(), top: AtomicUsize::new(0), state }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The state file.
    pub fn state(&self) -> Option<&StateFile> {
        self.state.as_ref()
    }

    /// Saves a task and fills an empty slot with it. Only the main loop calls this, for a slot that the decider does
    /// not know. Returns `false` if another thread holds the slot.
    pub fn fill(&self, slot: usize, held: Held) -> Result<bool> {
        let to = &self.slots[slot];
        let Some(mut empty) = to.try_hold() else { return Ok(false) };
        self.state.as_ref().map_or(Ok(()), |state| state.put(slot, &held.saved))?;
        // Relaxed here and below: the decider learns of the task through a ring, which orders these before any use.
        to.wanted.store(HOME, Ordering::Relaxed);
        to.dismissed.store(false, Ordering::Relaxed);
        to.odd.store(false, Ordering::Relaxed);
        to.io_ns.store(0, Ordering::Relaxed);
        to.tid.store(held.saved.tid, Ordering::Relaxed);
        self.top.fetch_max(slot + 1, Ordering::Relaxed);
        *empty = Some(held);
        Ok(true)
    }

    /// Empties a slot whose task has its mask again, or has `ended`. Returns whether that was possible now.
    pub fn clear(&self, slot: usize, ended: bool) -> Result<bool> {
        let of = &self.slots[slot];
        let Some(mut held) = of.try_hold() else { return Ok(false) };
        if held.as_ref().is_some_and(|held| held.applied != HOME && !ended) {
            return Ok(false);
        }
        self.state.as_ref().map_or(Ok(()), |state| state.clear(slot))?;
        *held = None;
        of.tid.store(0, Ordering::Relaxed);
        Ok(true)
    }

    /// The id of the task in a slot; 0 if the slot is empty.
    pub fn tid(&self, slot: usize) -> i32 {
        self.slots.get(slot).map_or(0, |of| of.tid.load(Ordering::Relaxed))
    }

    /// The slot of a task.
    pub fn slot_of(&self, tid: i32) -> Option<usize> {
        let filled = &self.slots[..self.top.load(Ordering::Relaxed)];
        filled.iter().position(|of| of.tid.load(Ordering::Relaxed) == tid && tid != 0)
    }

    /// Looks at the task in a slot; `None` if the slot is empty, or another thread holds it.
    pub fn look<T>(&self, slot: usize, look: impl FnOnce(&Held) -> T) -> Option<T> {
        let seen = self.slots[slot].try_hold()?.as_ref().map(look);
        self.carry_out_missed(slot);
        seen
    }

    /// Carries out an order that a mover has left to this thread, because it held the slot.
    fn carry_out_missed(&self, slot: usize) {
        // `carry_out` begins with a fence, which is B's in the ordering above.
        self.carry_out(slot, |_| ());
    }

    /// Changes the saved state of the task in a slot: its user's mask and the usable part of it. `bound` is its binding
    /// when the caller looked. If `given` is set, the task is no longer bound but has this mask, by the kernel, its
    /// user or the caller. Returns `false` if another thread holds the task, or has bound it elsewhere since.
    pub fn remask(
        &self,
        slot: usize,
        bound: Option<usize>,
        saved: &Saved,
        usable: CpuSet,
        given: Option<CpuSet>,
    ) -> Result<bool> {
        let Some(mut guard) = self.slots[slot].try_hold() else { return Ok(false) };
        if let Some(held) = guard.as_mut() {
            if held.bound_to() != bound || held.saved.tid != saved.tid {
                return Ok(false);
            }
            let applied = if given.is_some() { HOME } else { held.applied };
            // The decider did not know this when it chose the wanted CPU, so reset that, unless it changes just now.
            let wanted = self.slots[slot].wanted.load(Ordering::SeqCst);
            if given.is_some() {
                let wanted_by = &self.slots[slot].wanted;
                let _ = wanted_by.compare_exchange(wanted, HOME, Ordering::SeqCst, Ordering::SeqCst);
            }
            // The task may have been bound and unbound again since the caller looked.
            let saved = Saved { bound_ticks: held.saved.bound_ticks, ..saved.clone() };
            if saved != held.saved || applied != held.applied {
                let binding = Binding { from: held.bound_to(), to: to_cpu(applied) };
                let record = StateRecord { slot, saved: saved.clone(), binding, in_doubt: false };
                self.state.as_ref().map_or(Ok(()), |state| state.put_record(&record))?;
            }
            if saved.mask != held.saved.mask {
                held.former = Some((held.saved.clone(), clock::now_ns()));
            }
            (held.saved, held.usable, held.applied) = (saved, usable, applied);
            held.given = given.unwrap_or(held.given);
        }
        drop(guard);
        self.carry_out_missed(slot);
        Ok(true)
    }

    /// Sets the CPU wanted for the task in a slot, or its user's mask (`None`). Only the decider calls this.
    pub fn want(&self, slot: usize, cpu: Option<usize>) {
        // A of the ordering above, with the fence in `carry_out`.
        self.slots[slot].wanted.store(cpu.map_or(HOME, |cpu| cpu as u32 + 1), Ordering::SeqCst);
    }

    /// Whether the task in a slot is not as wanted: an order was lost, or refused.
    pub fn is_behind(&self, slot: usize) -> bool {
        let wanted = self.slots[slot].wanted.load(Ordering::SeqCst);
        self.look(slot, |held| held.applied != wanted).unwrap_or(false)
    }

    /// Marks the task in a slot as forgotten by the decider, which has asked for its mask to be restored.
    pub fn dismiss(&self, slot: usize) {
        // Release pairs with the acquire below: a thread that sees this also sees the last wanted CPU.
        self.slots[slot].dismissed.store(true, Ordering::Release);
    }

    /// Whether the decider has forgotten the task in a slot.
    pub fn is_dismissed(&self, slot: usize) -> bool {
        self.slots[slot].dismissed.load(Ordering::Acquire)
    }

    /// Whether the kernel shows the expected mask for the task in a slot, and all `online` CPUs of the user's mask are
    /// usable (which a bound task's mask does not show). `true` while another thread holds the task.
    pub fn is_as_expected(&self, slot: usize, online: &CpuSet) -> bool {
        let as_expected = |held: &Held| {
            let has_all = held.usable == held.saved.mask.and(online);
            has_all && threads::affinity_set(held.saved.tid).is_ok_and(|now| now == held.expected())
        };
        self.look(slot, as_expected).unwrap_or(true)
    }

    /// Whether something unexpected was found about the task since the last call.
    pub fn take_odd(&self, slot: usize) -> bool {
        // Relaxed: a hint. The caller reads the facts from the kernel.
        self.slots[slot].odd.swap(false, Ordering::Relaxed)
    }

    /// Takes in an I/O event of the task in a slot.
    pub fn saw_io(&self, slot: usize, at_ns: u64) {
        self.slots[slot].io_ns.store(at_ns, Ordering::Relaxed);
    }

    /// When the last I/O event of the task in a slot was, ns.
    pub fn io_ns(&self, slot: usize) -> u64 {
        self.slots[slot].io_ns.load(Ordering::Relaxed)
    }

    /// Binds the task in a slot as wanted, and passes the outcome of each attempt to `tell`. Allocates only to report
    /// an error. If the task is running on a vCPU that is off, this waits until the vCPU is back.
    pub fn carry_out(&self, slot: usize, mut tell: impl FnMut(Bound)) {
        let of = &self.slots[slot];
        loop {
            // A of the ordering above.
            fence(Ordering::SeqCst);
            let Some(mut held) = of.try_hold() else { return tell(Bound::Overtaken) };
            let wanted = of.wanted.load(Ordering::SeqCst);
            let bound = held.as_mut().map_or(Bound::Same, |held| self.bind(slot, held, wanted));
            drop(held);
            if matches!(bound, Bound::Foreign | Bound::Refused | Bound::Gone) {
                of.odd.store(true, Ordering::Relaxed);
            }
            tell(bound);
            // B.
            fence(Ordering::SeqCst);
            if of.wanted.load(Ordering::SeqCst) == wanted {
                return;
            }
        }
    }

    fn bind(&self, slot: usize, held: &mut Held, wanted: u32) -> Bound {
        let Some(state) = self.state.as_ref().filter(|_| held.applied != wanted) else { return Bound::Same };
        let tid = held.saved.tid;
        let now = match threads::affinity_set(tid) {
            Ok(now) => now,
            Err(e) if e.is_gone() => return Bound::Gone,
            Err(_) => return Bound::Refused,
        };
        // The mask of a sleeping task is empty while its CPU is offline.
        if now != held.expected() && !now.is_empty() {
            return Bound::Foreign;
        }
        let request = match to_cpu(wanted) {
            None => held.saved.request(),
            Some(cpu) if held.usable.contains(cpu) => CpuSet::of(cpu),
            Some(_) => return Bound::Refused,
        };
        let binding = Binding { from: to_cpu(held.applied), to: to_cpu(wanted) };
        if held.has_ended() {
            return Bound::Gone;
        }
        let bound_ticks = held.saved.bound_ticks.min(clock::boot_ticks());
        if state.bind(slot, binding, bound_ticks).is_err() {
            return Bound::Refused;
        }
        held.saved.bound_ticks = bound_ticks;
        let began_ns = clock::now_ns();
        // Check once more right before the change: writing the state file takes time.
        if threads::affinity_set(tid).is_ok_and(|at_last| at_last != now) {
            let _ = state.bind(slot, Binding { from: None, to: to_cpu(held.applied) }, bound_ticks);
            return Bound::Foreign;
        }
        // Note the change before making it: a child forked from now on may inherit it.
        held.changes.begin(began_ns, to_cpu(held.applied), to_cpu(wanted));
        let set = threads::set_affinity_set(tid, &request);
        held.changes.end(clock::now_ns(), set.is_ok());
        if held.has_ended() {
            // Another task may have its id by now: undo the change.
            let _ = set.map(|()| threads::set_affinity_set(tid, &now));
            return Bound::Gone;
        }
        match set {
            Ok(()) if wanted == HOME => {
                // The kernel leaves out unavailable CPUs.
                held.given = threads::affinity_set(tid).unwrap_or(held.usable);
                held.applied = HOME;
            }
            Ok(()) => held.applied = wanted,
            Err(e) if e.is_gone() => return Bound::Gone,
            Err(_) => return Bound::Refused,
        }
        // Clear FROM, since the user may bind the task to that CPU from now on. If this cannot be written, the file
        // still has the right TO.
        let _ = state.bind(slot, Binding { from: None, to: to_cpu(wanted) }, bound_ticks);
        Bound::Done
    }
}

fn to_cpu(applied: u32) -> Option<usize> {
    applied.checked_sub(1).map(|cpu| cpu as usize)
}

#[cfg(test)]
mod tests;
