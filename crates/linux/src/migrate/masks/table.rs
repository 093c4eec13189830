//! The tasks looked after, as the threads of the daemon share them: a slot for each.
//!
//! A slot is a mailbox. The decider writes where it wants the task (nobody else does, but to take back what a change of the
//! task's mask has overtaken) and rings a mover; whoever carries out looks at what is wanted *now*, so that no order is lost, and no stale one wins:
//!
//! ```text
//! decider: wanted = w; ring a mover        mover: loop { lock or leave; bind to wanted; unlock; as wanted still? leave }
//! ```
//! Invariants: a lock is only ever tried, nobody waits for anybody; who does not get it leaves the work to who has it, and
//! that one looks again after unlocking. A task's mask is in the state file before its slot is filled, and its binding before
//! it is bound; its slot is emptied only when it has its mask again or has ended.
//!
//! Ordering: wanted is stored before the fence before the try (A), and loaded after the fence after the unlock (B). If A comes
//! before B in the one order of fences, B's load sees what A stored; else A's try sees B's unlock, and succeeds. With weaker
//! fences both could fail, and the order would lie until the house thread's next round. Test: `the_last_wish_holds`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

use reprieve_policy::cpus::CpuSet;

use super::changes::Changes;
use super::state_file::StateFile;
use super::state_record::{Binding, Saved};
use crate::error::Result;
use crate::migrate::clock;
use crate::threads;

/// No CPU: the task has its user's mask.
const HOME: u32 = u32::MAX;

/// A task in a slot.
#[derive(Debug)]
pub struct Held {
    /// The task, and what its user wants.
    pub saved: Saved,
    /// The CPUs of its mask that are there for it now: online, and in its cpuset.
    pub usable: CpuSet,
    /// A file of the task in `/proc`, which cannot be read any more once the task has ended: its number may be another's
    /// then. Without it that is not noticed.
    pub alive: Option<File>,
    /// Its numbers in all PID namespaces that it is in.
    pub numbers: Vec<i32>,
    /// The CPU it is bound to, or [`HOME`].
    applied: u32,
    /// What the kernel made of its user's mask when that was given back last: less, while CPUs of it were not there.
    given: CpuSet,
    /// What we have bound it to, and when.
    sets: Changes,
    /// What its user wanted before that was changed last, and when that was noticed, ns.
    former: Option<(Saved, u64)>,
}

impl Held {
    /// A task that is bound to nothing.
    pub fn new(saved: Saved, usable: CpuSet, alive: Option<File>) -> Held {
        let given = saved.mask;
        let numbers = vec![saved.tid];
        Held { saved, usable, alive, numbers, applied: HOME, given, sets: Changes::default(), former: None }
    }

    /// What the kernel shows for it as long as nobody else changes it: the CPU it is bound to, or what was given back.
    pub fn shown(&self) -> CpuSet {
        self.bound_to().map_or(self.given, CpuSet::of)
    }

    /// The task as it was known then.
    pub fn saved_at(&self, at_ns: u64) -> &Saved {
        self.former.as_ref().filter(|(_, until_ns)| at_ns < *until_ns).map_or(&self.saved, |(saved, _)| saved)
    }

    /// What we have bound it to, and when.
    pub fn sets(&self) -> &Changes {
        &self.sets
    }

    /// The CPU it is bound to.
    pub fn bound_to(&self) -> Option<usize> {
        to_cpu(self.applied)
    }

    /// The mask that the kernel should show for it.
    fn expected(&self) -> CpuSet {
        self.bound_to().map_or(self.usable, CpuSet::of)
    }

    fn has_ended(&self) -> bool {
        self.alive.as_ref().is_some_and(|file| file.read_at(&mut [0], 0).is_err())
    }
}

/// One slot.
#[derive(Debug)]
struct Slot {
    /// 0 where there is none. For who only needs to know whom a slot is about.
    tid: AtomicI32,
    wanted: AtomicU32,
    held: Mutex<Option<Held>>,
    /// The decider knows of the task no more, and has asked for its mask to be given back.
    dismissed: AtomicBool,
    /// Something is not as expected: the house thread must look.
    odd: AtomicBool,
    /// When an I/O of the task was last seen, ns, where I/Os come as events.
    io_ns: AtomicU64,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            tid: AtomicI32::new(0),
            wanted: AtomicU32::new(HOME),
            held: Mutex::new(None),
            dismissed: AtomicBool::new(false),
            odd: AtomicBool::new(false),
            io_ns: AtomicU64::new(0),
        }
    }
}

impl Slot {
    /// The task, unless another thread is at it.
    fn try_hold(&self) -> Option<MutexGuard<'_, Option<Held>>> {
        match self.held.try_lock() {
            Ok(held) => Some(held),
            // A thread that panicked has left a whole value: what is in it is only ever replaced at once.
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// What came of binding a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Done.
    Done,
    /// There was nothing to do: it is where it is wanted, or the slot is empty.
    Same,
    /// Another thread was at it, and carries this out, too.
    Overtaken,
    /// The task's mask is neither its user's nor ours: somebody else has changed it. Left alone.
    Foreign,
    /// The task has ended.
    Gone,
    /// The kernel refused, or that CPU is not there for the task, or the state file cannot be written.
    Refused,
}

/// All slots.
#[derive(Debug)]
pub struct Table {
    slots: Box<[Slot]>,
    /// No slot from this one on has ever been filled.
    top: AtomicUsize,
    /// None if nothing is carried out.
    state: Option<StateFile>,
}

impl Table {
    /// With so many slots, all empty. `state` is where masks are saved; without it nothing may be carried out.
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

    /// Saves a task and fills an empty slot with it. Only the house thread does, for a slot that the decider does not know.
    /// `false` if another thread looks at the slot just now.
    ///
    /// # Errors
    /// If the task cannot be saved; then the slot stays empty.
    pub fn fill(&self, slot: usize, held: Held) -> Result<bool> {
        let to = &self.slots[slot];
        let Some(mut empty) = to.try_hold() else { return Ok(false) };
        self.state.as_ref().map_or(Ok(()), |state| state.put(slot, &held.saved))?;
        // Relaxed here and below: the ring through which the decider is told of the task orders these before any use.
        to.wanted.store(HOME, Ordering::Relaxed);
        to.dismissed.store(false, Ordering::Relaxed);
        to.odd.store(false, Ordering::Relaxed);
        to.io_ns.store(0, Ordering::Relaxed);
        to.tid.store(held.saved.tid, Ordering::Relaxed);
        self.top.fetch_max(slot + 1, Ordering::Relaxed);
        *empty = Some(held);
        Ok(true)
    }

    /// Empties a slot whose task has its mask again, or has `ended`; whether that could be done now.
    ///
    /// # Errors
    /// If the state file cannot be written.
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

    /// The number of the task in a slot; 0 if there is none.
    pub fn tid(&self, slot: usize) -> i32 {
        self.slots.get(slot).map_or(0, |of| of.tid.load(Ordering::Relaxed))
    }

    /// The slot of a task.
    pub fn slot_of(&self, tid: i32) -> Option<usize> {
        let filled = &self.slots[..self.top.load(Ordering::Relaxed)];
        filled.iter().position(|of| of.tid.load(Ordering::Relaxed) == tid && tid != 0)
    }

    /// Looks at the task in a slot; `None` if there is none, or another thread is at it.
    pub fn look<T>(&self, slot: usize, look: impl FnOnce(&Held) -> T) -> Option<T> {
        let seen = self.slots[slot].try_hold()?.as_ref().map(look);
        self.make_up_for(slot);
        seen
    }

    /// A mover that came while the slot was only looked at has left its work to who looked.
    fn make_up_for(&self, slot: usize) {
        // Between the unlock and this: B of the ordering above, since `carry_out` begins with a fence.
        self.carry_out(slot, |_| ());
    }

    /// Changes what is known of the task in a slot, which was bound to `bound` when it was looked at: its user's mask, and
    /// what of it is there. With a mask that it is `given` it is bound to nothing any more: the kernel, its user, or the
    /// caller has seen to that. `false` if another thread is at the task, or has bound it elsewhere since.
    ///
    /// # Errors
    /// If it cannot be saved; nothing is changed then.
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
            // What was wanted was so without knowing this, unless the decider says anything else just now.
            let wanted = self.slots[slot].wanted.load(Ordering::SeqCst);
            if given.is_some() {
                let wanted_by = &self.slots[slot].wanted;
                let _ = wanted_by.compare_exchange(wanted, HOME, Ordering::SeqCst, Ordering::SeqCst);
            }
            // It may have been bound, and unbound again, since the caller looked at it.
            let saved = Saved { bound_ticks: held.saved.bound_ticks, ..saved.clone() };
            if saved != held.saved || applied != held.applied {
                let binding = Binding { from: held.bound_to(), to: to_cpu(applied) };
                let record = crate::migrate::masks::state_record::StateRecord {
                    slot,
                    saved: saved.clone(),
                    binding,
                    in_doubt: false,
                };
                self.state.as_ref().map_or(Ok(()), |state| state.put_record(&record))?;
            }
            if saved.mask != held.saved.mask {
                held.former = Some((held.saved.clone(), clock::now_ns()));
            }
            (held.saved, held.usable, held.applied) = (saved, usable, applied);
            held.given = given.unwrap_or(held.given);
        }
        drop(guard);
        self.make_up_for(slot);
        Ok(true)
    }

    /// Wants the task in a slot on a CPU, or to have its user's mask (`None`). The decider's.
    pub fn want(&self, slot: usize, cpu: Option<usize>) {
        // SeqCst, and the fence in `carry_out` after it: A of the ordering above.
        self.slots[slot].wanted.store(cpu.map_or(HOME, |cpu| cpu as u32), Ordering::SeqCst);
    }

    /// Whether the task in a slot is not where it is wanted: an order was lost, or refused.
    pub fn is_behind(&self, slot: usize) -> bool {
        let wanted = self.slots[slot].wanted.load(Ordering::SeqCst);
        self.look(slot, |held| held.applied != wanted).unwrap_or(false)
    }

    /// The decider has forgotten the task in a slot, after it has asked for its mask to be given back.
    pub fn dismiss(&self, slot: usize) {
        // Release pairs with the acquire below: who sees it sees what was wanted last.
        self.slots[slot].dismissed.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn is_dismissed(&self, slot: usize) -> bool {
        self.slots[slot].dismissed.load(Ordering::Acquire)
    }

    /// Whether the kernel shows the mask for the task in a slot that we have made of it, and it may use all of its user's that
    /// is `online`: the mask of a task that is bound does not tell that. `true` while another thread is at it.
    pub fn is_as_expected(&self, slot: usize, online: &CpuSet) -> bool {
        let as_expected = |held: &Held| {
            let has_all = held.usable == held.saved.mask.and(online);
            has_all && threads::affinity_set(held.saved.tid).is_ok_and(|now| now == held.expected())
        };
        self.look(slot, as_expected).unwrap_or(true)
    }

    /// Whether something odd was found about the task since this was last asked.
    pub fn take_odd(&self, slot: usize) -> bool {
        // Relaxed: a hint; what is odd is read from the kernel.
        self.slots[slot].odd.swap(false, Ordering::Relaxed)
    }

    /// An I/O of the task in a slot was seen.
    pub fn saw_io(&self, slot: usize, at_ns: u64) {
        self.slots[slot].io_ns.store(at_ns, Ordering::Relaxed);
    }

    /// When that was last, ns.
    pub fn io_ns(&self, slot: usize) -> u64 {
        self.slots[slot].io_ns.load(Ordering::Relaxed)
    }

    /// Binds the task in a slot as it is wanted; tells what came of each change. Allocates nothing but for an error. May wait
    /// for the task's vCPU if the task is running there.
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
        // None is left of the mask of a task that sleeps while its CPU is offline.
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
        // Once more, with nothing in between: the state file is written meanwhile.
        if threads::affinity_set(tid).is_ok_and(|at_last| at_last != now) {
            let _ = state.bind(slot, Binding { from: None, to: to_cpu(held.applied) }, bound_ticks);
            return Bound::Foreign;
        }
        // Known before it is done: what the task forks from now on may inherit it.
        held.sets.begin(began_ns, to_cpu(held.applied), to_cpu(wanted));
        let set = threads::set_affinity_set(tid, &request);
        held.sets.end(clock::now_ns(), set.is_ok());
        if held.has_ended() {
            // Its number may have become another's in between, who is left as found.
            let _ = set.map(|()| threads::set_affinity_set(tid, &now));
            return Bound::Gone;
        }
        match set {
            Ok(()) if wanted == HOME => {
                // Without CPUs that are not there.
                held.given = threads::affinity_set(tid).unwrap_or(held.usable);
                held.applied = HOME;
            }
            Ok(()) => held.applied = wanted,
            Err(e) if e.is_gone() => return Bound::Gone,
            Err(_) => return Bound::Refused,
        }
        // What it was bound to before is nothing that is given back: its user may bind it there now. If this cannot be
        // written, the file still says where the task is bound.
        let _ = state.bind(slot, Binding { from: None, to: to_cpu(wanted) }, bound_ticks);
        Bound::Done
    }
}

fn to_cpu(applied: u32) -> Option<usize> {
    (applied != HOME).then_some(applied as usize)
}

#[cfg(test)]
mod tests;
