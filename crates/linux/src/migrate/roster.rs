//! The roster of managed tasks: admits tasks, samples what they do, follows their masks, and lets them go.
//!
//! Invariants: a task's mask is in the state file before the decider learns of the task. When a task leaves, its slot
//! is freed only after it has its mask again, or is kept in that file elsewhere. A slot is reused only after the
//! decider has forgotten the earlier task. PID 1 is never admitted, since all processes descend from it.
//!
//! Errors: the state file cannot be written.

use std::fs::File;
use std::sync::Arc;

use reprieve_policy::SECOND_NS;
use reprieve_policy::cpus::CpuSet;
use reprieve_policy::signal::{Admission, Signal};

use crate::Result;
use crate::migrate::Roots;
use crate::migrate::act::Outcomes;
use crate::migrate::find::{Filter, Found, Sampler, Source};
use crate::migrate::inherit::{Ancestor, Children};
use crate::migrate::masks::{
    Binding, Followed, Held, NEVER_TICKS, Saved, StateRecord, Table, follow, follow_call, is_everything,
};
use crate::migrate::watch::SetByOther;
use crate::proc::{TaskIdentity, TaskStatReader};

/// A task without I/O for this long is let go, ns.
const IDLE_NS: u64 = 10 * SECOND_NS;
/// Time between two looks at a task's mask, ns...
const MASK_NS: u64 = SECOND_NS;
/// ... and the least time, if something unexpected was found about it.
const ODD_NS: u64 = 100_000_000;
/// If a leaving task's mask cannot be restored for this long, the slot is freed, and the task is kept elsewhere, ns.
const PATIENCE_NS: u64 = 5 * SECOND_NS;
/// Looks that must find a leaving task unbound. By then any fork begun before is recorded.
const SETTLED_LOOKS: u32 = 2;

/// The state of a task that leaves.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    since_ns: u64,
    ended: bool,
    /// Number of looks in a row that found it unbound.
    settled: u32,
}

/// A managed task.
struct Member {
    identity: TaskIdentity,
    pid: i32,
    tid: i32,
    reader: TaskStatReader,
    sampler: Sampler,
    seen_on: usize,
    busy_ns: u64,
    looked_at_mask_ns: u64,
    start_ticks: u64,
    numbers: Vec<i32>,
    /// All calls before this time that set its mask were followed, ns.
    followed_ns: u64,
    leaving: Option<Leaving>,
}

impl Member {
    /// Begins to let the task go, and tells the decider to forget it.
    fn leave(&mut self, slot: usize, ended: bool, now_ns: u64, signals: &mut Vec<Signal>) {
        self.leaving = Some(Leaving { since_ns: now_ns, ended, settled: 0 });
        signals.push(Signal::Dismiss { task: slot, at_ns: now_ns });
    }
}

/// The managed tasks, by slot.
pub struct Roster {
    roots: Roots,
    source: Source,
    filter: Filter,
    vcpus: usize,
    /// Grows as slots are first used.
    members: Vec<Option<Member>>,
    table: Arc<Table>,
    pub children: Children,
    outcomes: Arc<Outcomes>,
    /// The online CPUs, and when they were read, ns.
    online: (CpuSet, u64),
    /// Number of tasks found while no slot was free.
    pub turned_away: u64,
}

impl Roster {
    pub fn new(
        roots: Roots,
        source: Source,
        filter: Filter,
        vcpus: usize,
        table: Arc<Table>,
        children: Children,
        outcomes: Arc<Outcomes>,
    ) -> Roster {
        let members = Vec::with_capacity(table.slots());
        let online = (roots.sys.online(), 0);
        Roster { roots, source, filter, vcpus, members, table, children, outcomes, online, turned_away: 0 }
    }

    /// Number of managed tasks.
    pub fn count(&self) -> usize {
        self.members.iter().flatten().count()
    }

    /// The task in a slot: process, thread id, name.
    pub fn task(&self, slot: usize) -> Option<(i32, i32, &str)> {
        let member = self.members.get(slot)?.as_ref()?;
        Some((member.pid, member.tid, &member.identity.comm))
    }

    /// Handles new forks.
    pub fn handle_forks(&mut self, now_ns: u64) -> Result<()> {
        self.children.round(&self.table, now_ns)
    }

    /// Admits those tasks that pass the filter and can be moved and saved. Returns the signals for the decider.
    pub fn admit(&mut self, found: &[Found], now_ns: u64) -> Result<Vec<Signal>> {
        let mut signals = Vec::new();
        for found in found {
            if self.members.iter().flatten().any(|member| member.tid == found.tid) {
                continue;
            }
            let Some(slot) = self.free_slot() else {
                self.turned_away += 1;
                continue;
            };
            // A task that has ended meanwhile, or whose user hides it, is not managed.
            let Some((member, held)) = self.candidate(found, now_ns) else { continue };
            let usable = held.usable;
            if !self.table.fill(slot, held)? {
                continue;
            }
            let on = Some(member.seen_on).filter(|cpu| *cpu < self.vcpus);
            self.members[slot] = Some(member);
            signals.push(Signal::Admit { task: slot, admission: Admission::new(usable, on), at_ns: now_ns });
        }
        Ok(signals)
    }

    /// The first free slot.
    fn free_slot(&mut self) -> Option<usize> {
        let free = self.members.iter().position(Option::is_none);
        if free.is_none() && self.members.len() < self.table.slots() {
            self.members.push(None);
            return Some(self.members.len() - 1);
        }
        free
    }

    fn candidate(&self, found: &Found, now_ns: u64) -> Option<(Member, Held)> {
        let (root, Found { pid, tid, .. }) = (&self.roots.proc, *found);
        if pid == 1 {
            return None;
        }
        let identity = root.task_identity(pid, tid).ok()?;
        if !self.filter.passes(&identity) {
            return None;
        }
        let there = self.roots.sys.cpuset_of(root, pid, tid);
        let whole = is_everything(&self.roots.sys, &there, &identity.mask);
        let usable = identity.mask.and(&there);
        // With one CPU there is nothing to choose.
        if usable.and(&CpuSet::first(self.vcpus)).len() < 2 {
            return None;
        }
        let reader = TaskStatReader::open(root, pid, tid).ok()?;
        let alive = File::open(root.path().join(format!("{pid}/task/{tid}/comm"))).ok()?;
        // Read this last: it shows that all of the above is about the task that was found, not another with the same
        // id.
        let stat = reader.read().ok()?;
        if stat.start_ticks != found.stat.start_ticks || stat.is_kernel || stat.is_bound {
            return None;
        }
        let (start_ticks, mask) = (stat.start_ticks, identity.mask);
        if self.children.judge.is_barred((tid, start_ticks)) {
            return None;
        }
        let saved = Saved { pid, tid, start_ticks, bound_ticks: NEVER_TICKS, mask, whole };
        let numbers = root.numbers(pid, tid).ok()?;
        let member = Member {
            identity,
            pid,
            tid,
            reader,
            sampler: Sampler::default(),
            seen_on: stat.cpu,
            busy_ns: now_ns,
            looked_at_mask_ns: now_ns,
            start_ticks,
            numbers: numbers.clone(),
            followed_ns: now_ns,
            leaving: None,
        };
        let mut held = Held::new(saved, usable, Some(alive));
        held.numbers = numbers;
        Some((member, held))
    }

    /// Looks at all members. Lets go of those that have ended or stopped doing I/O, and follows masks that somebody
    /// else has changed. Returns the signals for the decider.
    pub fn look(&mut self, now_ns: u64) -> Result<Vec<Signal>> {
        let mut signals = Vec::new();
        if now_ns.saturating_sub(self.online.1) >= MASK_NS {
            self.online = (self.roots.sys.online(), now_ns);
        }
        for slot in 0..self.members.len() {
            let Some(member) = &self.members[slot] else { continue };
            match member.leaving {
                Some(leaving) => self.let_go(slot, leaving, now_ns)?,
                None => self.look_at(slot, now_ns, &mut signals)?,
            }
        }
        Ok(signals)
    }

    fn look_at(&mut self, slot: usize, now_ns: u64, signals: &mut Vec<Signal>) -> Result<()> {
        let (table, source, vcpus) = (&self.table, self.source, self.vcpus);
        let Some(member) = &mut self.members[slot] else { return Ok(()) };
        let read = member.reader.read();
        // A task that has ended but was not reaped yet has no mask any more.
        let ended = read.as_ref().map_or_else(|e| e.is_gone(), |stat| stat.has_ended());
        let Some(stat) = read.ok().filter(|_| !ended) else {
            member.leave(slot, ended, now_ns, signals);
            return Ok(());
        };
        let before_ns = member.sampler.outstanding_ns;
        let sample = member.sampler.look(source, slot, &stat, now_ns);
        if member.sampler.outstanding_ns > before_ns {
            member.busy_ns = now_ns;
        }
        member.busy_ns = member.busy_ns.max(table.io_ns(slot).min(now_ns));
        if now_ns.saturating_sub(member.busy_ns) > IDLE_NS {
            member.leave(slot, false, now_ns, signals);
            return Ok(());
        }
        signals.extend(sample);
        if self.children.judge.is_barred((member.tid, member.start_ticks)) {
            member.leave(slot, false, now_ns, signals);
            return Ok(());
        }
        if stat.cpu != member.seen_on && stat.cpu < vcpus {
            member.seen_on = stat.cpu;
            signals.push(Signal::Seen { task: slot, on: stat.cpu, at_ns: now_ns });
        }
        self.follow_calls(slot, now_ns, signals)?;
        self.look_at_mask(slot, now_ns, signals)
    }

    /// Follows a call by which somebody else has set a task's mask, even if the mask looks as the daemon has set it.
    fn follow_calls(&mut self, slot: usize, now_ns: u64, signals: &mut Vec<Signal>) -> Result<()> {
        let Some(member) = &mut self.members[slot] else { return Ok(()) };
        let (began_ns, ended_ns, for_sure) =
            match self.children.judge.call_watch.since(&member.numbers, member.followed_ns) {
                SetByOther::By { began_ns, ended_ns } => (began_ns, ended_ns, true),
                SetByOther::Unclear { began_ns, noticed_ns } => (began_ns, noticed_ns, false),
                _ => return Ok(()),
            };
        let before = self.table.look(slot, |held| held.saved.clone());
        let followed = follow_call(&self.roots, &self.table, slot, began_ns)?;
        if followed == Followed::Busy {
            return Ok(());
        }
        member.followed_ns = ended_ns + 1;
        if let Followed::Changed(mask) | Followed::Concluded(mask) = followed {
            signals.push(Signal::Mask { task: slot, mask, at_ns: now_ns });
        }
        // If the call may have been for another task, the binding may still be the daemon's: the task is in doubt.
        if let (Followed::Concluded(mask), false, Some(state), Some(saved)) =
            (followed, for_sure, self.table.state(), before)
        {
            let binding = Binding { from: None, to: mask.iter().next() };
            let record = StateRecord { slot, saved, binding, in_doubt: true };
            self.children.judge.unrestored.add(state, record)?;
        }
        Ok(())
    }

    /// Follows the last calls by others. Call it after the other threads have ended.
    pub fn finish(&mut self, now_ns: u64) -> Result<()> {
        self.children.round(&self.table, now_ns)?;
        let mut unheard = Vec::new();
        (0..self.members.len()).try_for_each(|slot| self.follow_calls(slot, now_ns, &mut unheard))
    }

    /// Handles the last children. Call it after the managed tasks have their masks again.
    pub fn finish_children(&mut self, now_ns: u64) -> Result<()> {
        self.children.finish(&self.table, now_ns)
    }

    fn look_at_mask(&mut self, slot: usize, now_ns: u64, signals: &mut Vec<Signal>) -> Result<()> {
        let Some(member) = &mut self.members[slot] else { return Ok(()) };
        let since_ns = now_ns.saturating_sub(member.looked_at_mask_ns);
        if self.table.state().is_none() || since_ns < ODD_NS {
            return Ok(());
        }
        let odd = self.table.take_odd(slot);
        if !odd && since_ns < MASK_NS {
            return Ok(());
        }
        member.looked_at_mask_ns = now_ns;
        let behind = self.table.is_behind(slot);
        let outcomes = &self.outcomes;
        if !odd && self.table.is_as_expected(slot, &self.online.0) {
            if behind {
                self.table.carry_out(slot, |bound| outcomes.count(bound));
            }
            return Ok(());
        }
        match follow(&self.roots, &self.table, slot)? {
            Followed::Busy => {}
            Followed::Changed(mask) | Followed::Concluded(mask) => {
                // This explains what was unexpected before.
                self.table.take_odd(slot);
                signals.push(Signal::Mask { task: slot, mask, at_ns: now_ns });
            }
            // Nothing explains why it could not be moved, so it is no longer managed.
            Followed::Same if odd => member.leave(slot, false, now_ns, signals),
            Followed::Same => {}
        }
        Ok(())
    }

    /// Restores a leaving task's mask, and then frees its slot.
    fn let_go(&mut self, slot: usize, mut leaving: Leaving, now_ns: u64) -> Result<()> {
        let table = Arc::clone(&self.table);
        if !table.is_dismissed(slot) {
            return Ok(());
        }
        if !leaving.ended {
            let outcomes = Arc::clone(&self.outcomes);
            table.carry_out(slot, |bound| outcomes.count(bound));
            let gone = self.members[slot].as_ref().is_some_and(|member| {
                member.reader.read().map_or_else(|e| e.is_gone(), |stat| stat.has_ended())
            });
            leaving.ended = gone;
            if !gone && table.take_odd(slot) {
                follow(&self.roots, &table, slot)?;
            }
        }
        let bound = table.look(slot, |held| held.bound_to().is_some());
        leaving.settled = if bound == Some(false) { leaving.settled + 1 } else { 0 };
        let given_up = now_ns.saturating_sub(leaving.since_ns) >= PATIENCE_NS && bound.is_some();
        if leaving.ended || leaving.settled >= SETTLED_LOOKS || given_up {
            return self.free(slot, leaving, now_ns);
        }
        if let Some(member) = &mut self.members[slot] {
            member.leaving = Some(leaving);
        }
        Ok(())
    }

    fn free(&mut self, slot: usize, leaving: Leaving, now_ns: u64) -> Result<()> {
        let record = self.table.look(slot, |held| {
            let binding = Binding { from: None, to: held.bound_to() };
            (
                StateRecord { slot, saved: held.saved.clone(), binding, in_doubt: false },
                Ancestor::of(held, now_ns),
            )
        });
        let (Some((record, ancestor)), Some(state)) = (record, self.table.state()) else {
            // Nothing is carried out, or another thread holds the slot.
            if self.table.state().is_none() && self.table.clear(slot, true)? {
                self.members[slot] = None;
            }
            return Ok(());
        };
        if let Some(ancestor) = ancestor {
            if leaving.ended {
                self.children.judge.thread_ended(&self.table, state, &ancestor, &ancestor.saved)?;
            }
            self.children.remember(ancestor, now_ns);
        }
        if !leaving.ended && record.binding.to.is_some() {
            self.children.judge.unrestored.add(state, record)?;
        }
        if self.table.clear(slot, true)? {
            self.members[slot] = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
