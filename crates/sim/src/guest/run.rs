//! The execution of a running vCPU: what it does next, down to the point where it needs time.

use crate::guest::ids::Mode;
use crate::guest::vcpu::{Level, Presence, UNTIL_HANDED_OVER};
use crate::guest::{Clock, Guest, Request};

/// Steps of a vCPU without any time: far more than one of a real system has.
const STEPS_AT_ONCE: u32 = 1 << 14;

impl Guest {
    /// Goes on with a running vCPU whose time is booked, until it needs time (its timer is then armed), spins, or
    /// halts.
    pub(super) fn run(&mut self, clock: &mut Clock<'_>, v: usize) {
        for _ in 0..STEPS_AT_ONCE {
            let vcpu = &mut self.vcpus[v];
            if vcpu.presence != Presence::Running {
                return;
            }
            let level = vcpu.top();
            let left_ns = vcpu.left(level);
            if level >= Level::Hard {
                if left_ns > 0 {
                    return clock.queue.arm(vcpu.work, clock.now_ns + left_ns);
                }
                vcpu.end(level);
                vcpu.leaving_interrupt |= level == Level::Hard;
                continue;
            }
            if vcpu.pending != 0 {
                self.take_interrupt(clock, v);
                continue;
            }
            if level == Level::Soft {
                if left_ns > 0 {
                    return clock.queue.arm(vcpu.work, clock.now_ns + left_ns);
                }
                vcpu.end(Level::Soft);
                self.continue_softirqs(clock, v);
                continue;
            }
            if vcpu.leaving_interrupt {
                vcpu.leaving_interrupt = false;
                self.begin_softirqs_after_interrupt(clock, v);
                continue;
            }
            if self.run_task_level(clock, v) {
                return;
            }
        }
        self.take_a_moment(clock, v);
    }

    /// A vCPU that has found so much to do that takes no time gets a nanosecond of it: time goes on.
    fn take_a_moment(&mut self, clock: &mut Clock<'_>, v: usize) {
        *clock.work += u64::from(STEPS_AT_ONCE);
        let vcpu = &mut self.vcpus[v];
        vcpu.begin(Level::Overhead, 1);
        clock.queue.arm(vcpu.work, clock.now_ns + 1);
    }

    /// The level of tasks. Returns whether the vCPU now waits for time to pass.
    fn run_task_level(&mut self, clock: &mut Clock<'_>, v: usize) -> bool {
        let vcpu = &mut self.vcpus[v];
        let Some(task) = vcpu.current else {
            if vcpu.need_resched {
                self.leave_idle(clock, v);
                self.switch_task(clock, v);
            } else {
                self.halt(clock, v);
            }
            return false;
        };
        let left_ns = vcpu.left(Level::Task);
        if left_ns > 0 {
            // The kernel is left before user space goes on: that is where the guest preempts.
            if vcpu.need_resched && vcpu.mode == Mode::User {
                self.switch_task(clock, v);
                return false;
            }
            if left_ns == UNTIL_HANDED_OVER {
                return self.spin(clock, v, task);
            }
            if self.io.disk.is_some() && self.pauses(clock, v) {
                return true;
            }
            clock.queue.arm(self.vcpus[v].work, clock.now_ns + left_ns);
            return true;
        }
        // Between two operations stand the kernel's voluntary preemption points; none within a section.
        let state = &self.tasks[task];
        let in_section = state.locks > 0 || state.runs_on;
        if vcpu.need_resched && !in_section {
            self.switch_task(clock, v);
            return false;
        }
        if !in_section {
            self.rcu.state.voluntary(v, &mut self.rcu.effects);
        }
        self.next_operation(clock, v, task);
        false
    }

    /// Idle: stops the tick if nothing needs it, and halts.
    fn halt(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.enter_idle(clock, v);
        let vcpu = &mut self.vcpus[v];
        clock.queue.disarm(vcpu.work);
        vcpu.halt(clock.now_ns);
        self.requests.push(Request::Halt(v));
    }
}
