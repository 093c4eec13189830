//! Taking and releasing spinlocks, and waiting for them.

use reprieve_study::scenario::Spinlocks;

use crate::guest::ids::TaskId;
use crate::guest::lock::{Lock, Release};
use crate::guest::vcpu::{Level, Presence, UNTIL_HANDED_OVER};
use crate::guest::{Clock, Guest, Request};

impl Guest {
    pub(super) fn take_lock(&mut self, v: usize, task: TaskId, lock: Lock) {
        self.tasks[task].locks += 1;
        if self.locks.take(lock, task) {
            self.vcpus[v].begin(Level::Task, self.costs.lock_ns);
        } else {
            self.vcpus[v].set_left(Level::Task, UNTIL_HANDED_OVER);
            self.vcpus[v].spins_for = Some(lock);
            self.vcpus[v].spun_ns = 0;
        }
    }

    /// A vCPU whose current task waits for a lock goes on: takes a lock that has become free, or spins, or halts when
    /// it has spun for long enough. Returns whether it now waits for time to pass.
    pub(super) fn spin(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) -> bool {
        let lock = self.vcpus[v].spins_for.expect("who spins, spins for a lock");
        if self.locks.retry(lock, task) {
            self.acquired(v);
            return false;
        }
        let vcpu = &mut self.vcpus[v];
        if self.locks.discipline != Spinlocks::Paravirtual {
            clock.queue.disarm(vcpu.work);
            return true;
        }
        if vcpu.spun_ns < self.costs.spin_ns {
            clock.queue.arm(vcpu.work, clock.now_ns + self.costs.spin_ns - vcpu.spun_ns);
            return true;
        }
        // It waits on without its pCPU, in the kernel: no quiescent state.
        vcpu.spun_ns = 0;
        clock.queue.disarm(vcpu.work);
        vcpu.halt(clock.now_ns);
        self.requests.push(Request::Halt(v));
        true
    }

    fn acquired(&mut self, v: usize) {
        self.vcpus[v].spins_for = None;
        self.vcpus[v].set_left(Level::Task, self.costs.lock_ns);
    }

    pub(super) fn release_lock(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, lock: Lock) {
        let state = &mut self.tasks[task];
        state.locks -= 1;
        if state.locks == 0 {
            self.requests.push(Request::Unlocked(v));
        }
        let vcpus = &self.vcpus;
        let runs = |task: TaskId| {
            vcpus.iter().any(|vcpu| vcpu.current == Some(task) && vcpu.presence == Presence::Running)
        };
        match self.locks.release(lock, runs) {
            Release::Free => {}
            Release::HandedTo(next) => self.hand_over(clock, next),
            Release::Kick(next) => {
                let w = self.vcpu_of(next);
                if self.vcpus[w].presence == Presence::Halted {
                    self.requests.push(Request::Kick(w));
                }
            }
        }
    }

    fn hand_over(&mut self, clock: &mut Clock<'_>, next: TaskId) {
        let w = self.vcpu_of(next);
        let presence = self.vcpus[w].presence;
        if presence == Presence::Running {
            self.book(clock.now_ns, w);
        }
        self.acquired(w);
        match presence {
            Presence::Running if self.vcpus[w].top() == Level::Task => {
                clock.queue.arm(self.vcpus[w].work, clock.now_ns + self.costs.lock_ns);
            }
            Presence::Halted => self.requests.push(Request::Kick(w)),
            _ => {}
        }
    }

    /// The vCPU on which a spinning task is current: the kernel does not preempt it.
    fn vcpu_of(&self, task: TaskId) -> usize {
        self.vcpus.iter().position(|vcpu| vcpu.current == Some(task)).expect("it spins on a vCPU")
    }
}
