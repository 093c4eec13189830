//! xBalloon's guest side: a process that pauses the vCPU when it would only compute.
//!
//! While all tasks that are runnable on a vCPU are CPU-bound, the process pauses the vCPU by a hypercall, so that its share of
//! the pCPU is saved. An event (an interrupt of the disk, or of another vCPU) unpauses it, and the host lets it run at once if
//! it has a right to CPU time. A vCPU that has used up its share is not paused again until the host's accounting finds that
//! it has a right to CPU time again; the accounting also ends a pause that has lasted since the last one, and lets the tasks
//! compute until the next.
//!
//! A task is CPU-bound if it has computed for a while since it last waited: also a task of an application that computes for
//! long between two requests, which then waits for the next accounting as others do.
//!
//! Source: Suo et al., "Preserving I/O Prioritization in Virtualized OSes", SoCC 2017, as described in its abstract and tree.

use crate::guest::ids::{Mode, TaskId};
use crate::guest::vcpu::interrupt;
use crate::guest::{Clock, Guest, Request};

/// State of the process, by vCPU.
#[derive(Clone, Debug)]
pub struct Pausing {
    /// A task that has computed for so long since it last waited is CPU-bound.
    cpu_bound_ns: u64,
    /// Whether the vCPU may be paused.
    armed: Vec<bool>,
    /// Whether it is, and since when.
    paused_ns: Vec<Option<u64>>,
    last_accounting_ns: u64,
}

impl Pausing {
    /// One for so many vCPUs.
    pub fn new(cpu_bound_ns: u64, vcpus: usize) -> Pausing {
        Pausing {
            cpu_bound_ns,
            armed: vec![true; vcpus],
            paused_ns: vec![None; vcpus],
            last_accounting_ns: 0,
        }
    }
}

impl Guest {
    /// Gives it xBalloon's process.
    pub fn set_pausing(&mut self, pausing: Pausing) {
        if let Some(io) = &mut self.io.disk {
            io.pausing = Some(pausing);
        }
    }

    fn pausing(&mut self) -> Option<&mut Pausing> {
        self.io.disk.as_mut()?.pausing.as_mut()
    }

    /// A vCPU is about to run its task in user space. Whether it is paused instead.
    pub(super) fn pauses(&mut self, clock: &mut Clock<'_>, v: usize) -> bool {
        if !self.should_pause(v) {
            return false;
        }
        let now_ns = clock.now_ns;
        clock.queue.disarm(self.vcpus[v].work);
        self.vcpus[v].pause(now_ns);
        if let Some(pausing) = self.pausing() {
            pausing.paused_ns[v] = Some(now_ns);
        }
        self.requests.push(Request::Halt(v));
        true
    }

    fn should_pause(&self, v: usize) -> bool {
        let Some(io) = &self.io.disk else { return false };
        let Some(pausing) = &io.pausing else { return false };
        let vcpu = &self.vcpus[v];
        pausing.armed[v]
            && vcpu.mode == Mode::User
            && vcpu.pending == 0
            && vcpu.current.is_some_and(|task| self.is_cpu_bound(task, pausing.cpu_bound_ns))
            && self.all_cpu_bound_on(v, pausing.cpu_bound_ns)
    }

    fn all_cpu_bound_on(&self, v: usize, cpu_bound_ns: u64) -> bool {
        self.tasks
            .ids()
            .filter(|task| self.tasks.place(*task) == Some(v))
            .all(|task| self.is_cpu_bound(task, cpu_bound_ns))
    }

    fn is_cpu_bound(&self, task: TaskId, cpu_bound_ns: u64) -> bool {
        let task = &self.tasks[task];
        task.exec_ns - task.woke_exec_ns >= cpu_bound_ns
    }

    /// Whether a vCPU may be paused from now on: whether it has a right to CPU time, as its host knows.
    pub fn arm_pausing(&mut self, v: usize, may: bool) {
        if let Some(pausing) = self.pausing() {
            pausing.armed[v] = may;
        }
    }

    /// Whether what waits for a vCPU ends its pause: its own timers do not.
    pub fn stays_paused(&self, v: usize) -> bool {
        self.is_paused(v) && self.vcpus[v].pending & !interrupt::CLOCK == 0
    }

    /// Whether a vCPU is paused.
    pub fn is_paused(&self, v: usize) -> bool {
        self.vcpus[v].paused
    }

    /// A pause ends.
    pub(super) fn end_pause(&mut self, v: usize) {
        if let Some(pausing) = self.pausing() {
            pausing.paused_ns[v] = None;
        }
    }

    /// The host's accounting: vCPUs that have been paused since the last one are put into `unpaused`, and not paused again
    /// before the next.
    pub fn account_pauses(&mut self, now_ns: u64, unpaused: &mut Vec<usize>) {
        let Some(pausing) = self.pausing() else { return };
        for (v, since_ns) in pausing.paused_ns.iter().enumerate() {
            if since_ns.is_some_and(|since_ns| since_ns <= pausing.last_accounting_ns) {
                unpaused.push(v);
            }
        }
        for v in &*unpaused {
            pausing.armed[*v] = false;
        }
        pausing.last_accounting_ns = now_ns;
    }
}
