//! Invokes RCU callbacks, either in RCU's softirq or, if they are offloaded, in a kernel thread for each vCPU. That
//! thread can run on any vCPU.

use crate::guest::callback::{Action, action};
use crate::guest::ids::{Mode, TaskId};
use crate::guest::rcu::Callback;
use crate::guest::vcpu::Level;
use crate::guest::{Clock, Guest};

/// Callbacks that an offloading thread invokes between two preemption points. The kernel has a preemption point after
/// each callback. Several at a time keep the number of simulated events low, and take only some microseconds at 200 ns
/// each.
const OFFLOADED_AT_ONCE: u32 = 32;

impl Guest {
    /// Invokes a batch of a vCPU's ready callbacks in its softirq. Returns the CPU time.
    pub(super) fn run_callbacks(&mut self, clock: &mut Clock<'_>, v: usize, before_ns: u64) -> u64 {
        let began_ns = clock.now_ns + before_ns;
        let Some(batch) = self.rcu.state.begin_batch(began_ns, v) else {
            return 0;
        };
        let vcpu = &self.vcpus[v];
        let stops_at_limit = vcpu.need_resched || vcpu.current.is_some();
        let (mut ns, mut count) = (0, 0);
        while !batch.is_over(count, began_ns + ns, stops_at_limit) {
            let Some(callback) = self.rcu.state.next_callback(v) else {
                break;
            };
            count += 1;
            ns += self.invoke(clock, v, v, callback);
        }
        self.rcu.invoked += self.rcu.state.end_batch(v, &mut self.rcu.effects);
        ns
    }

    /// Invokes on vCPU `here` a callback that was queued on `of`. Returns the CPU time.
    fn invoke(&mut self, clock: &mut Clock<'_>, here: usize, of: usize, callback: Callback) -> u64 {
        let mut ns = self.costs.callback_ns;
        match action(callback) {
            Action::Free(object) => {
                self.rcu.remove_outstanding(of, &self.memory, object);
                ns += self.memory.free(here, object);
            }
            Action::Wake(task) => {
                ns += self.costs.wake_ns;
                self.wake_task(clock, task, Some(here));
            }
            Action::Barrier(task) => self.barrier_passed(clock, here, task),
            Action::Batch { vcpu, batch } => self.batch_ready(clock, here, vcpu, batch),
        }
        ns
    }

    /// Runs the offloading thread of vCPU `of` on `v`: the thread invokes some callbacks, or goes to sleep.
    pub(super) fn run_offloaded(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, of: usize) {
        self.vcpus[v].mode = Mode::Kernel;
        if self.rcu.state.begin_batch(clock.now_ns, of).is_none() {
            return self.block(v, task);
        }
        let mut ns = 0;
        for _ in 0..OFFLOADED_AT_ONCE {
            let Some(callback) = self.rcu.state.next_callback(of) else { break };
            ns += self.invoke(clock, v, of, callback);
        }
        self.rcu.invoked += self.rcu.state.end_batch(of, &mut self.rcu.effects);
        self.vcpus[v].begin(Level::Task, ns);
        self.apply_effects(clock, Some(v));
    }
}
