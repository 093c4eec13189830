//! Changes of affinity while an entity lives, as `sched_setaffinity()` makes them.
//!
//! An entity that waits on a CPU which it may not use any more moves at once: another CPU takes it from the runqueue. One
//! that runs there must first be switched away, and that CPU alone can do it: in a guest, not before its vCPU runs.
//!
//! Source: behaviour of Linux's `__set_cpus_allowed_ptr()`.

use super::domains::Affinity;
use super::{Arrival, Fair, Policy, State};
use crate::sched::Orders;

impl<P: Policy> Fair<P> {
    /// The entity has that affinity from now on.
    pub(super) fn change_affinity(
        &mut self,
        now_ns: u64,
        entity: u32,
        affinity: Affinity,
        orders: &mut Orders,
    ) {
        let member = &mut self.members[entity as usize];
        let was_movable = member.movable();
        member.affinity = affinity;
        let (state, is_movable) = (member.state, member.movable());
        let Some(cpu) = member.cpu else { return };
        match state {
            State::Blocked | State::Throttled => {}
            State::Running => {
                let leaves = !self.may_run(entity, cpu);
                self.queues[cpu as usize].unwelcome = leaves;
                if leaves {
                    self.resched(cpu, orders);
                }
            }
            State::Queued => {
                let queue = &mut self.queues[cpu as usize];
                queue.movable = queue.movable + u32::from(is_movable) - u32::from(was_movable);
                if !self.may_run(entity, cpu) {
                    self.move_away(now_ns, entity, cpu, is_movable, orders);
                }
                self.settle(cpu, orders);
            }
        }
    }

    /// Moves an entity that waits on a CPU which it may not use.
    fn move_away(&mut self, now_ns: u64, entity: u32, cpu: u32, is_movable: bool, orders: &mut Orders) {
        let queue = &mut self.queues[cpu as usize];
        // `detach` takes one that counts as movable.
        queue.movable += u32::from(!is_movable);
        let at = queue.waiting().iter().position(|waiter| waiter.entity == entity);
        let at = at.expect("a queued entity waits on its CPU");
        self.detach(now_ns, cpu, at, orders);
        let to = self.find_cpu(entity, None);
        self.enqueue(now_ns, entity, to, Arrival::Moved, orders);
    }

    /// What runs on that CPU (accounted up to now) leaves it if it may not run there any more.
    pub(super) fn expel(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        if !std::mem::take(&mut self.queues[cpu as usize].unwelcome) {
            return;
        }
        if let Some(entity) = self.queues[cpu as usize].current
            && !self.may_run(entity, cpu)
        {
            self.put_aside(cpu, State::Blocked);
            let to = self.find_cpu(entity, None);
            self.enqueue(now_ns, entity, to, Arrival::Moved, orders);
        }
    }
}
