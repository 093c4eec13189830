//! Wakes: BOOST, and whom a woken vCPU interrupts.
//!
//! A wake of an UNDER vCPU makes it BOOST. It interrupts its pCPU if that idles or, with no idle pCPU in the pool, if its
//! priority is strictly higher than the current vCPU's: equals never preempt. With idle pCPUs in the pool one that the
//! woken vCPU may use is interrupted, which then steals it; if it may use none of them, its own pCPU is interrupted if its
//! priority is higher, and the current vCPU is marked to be moved to an idle one.
//!
//! Bug 1 is that the mark does not look at where the current vCPU may run, and that the move ends in a wake with BOOST.
//! Bug 3 is that the priority is read again after BOOST was stored, and accounting may have overwritten it between.

use super::vcpu::State;
use super::{Credit, Wake};
use crate::sched::xen::{Kind, Priority, Refusal};
use crate::sched::{Cpu, Orders};

impl Credit {
    /// Puts a vCPU into the queue of its pCPU, and interrupts whom it should.
    pub(super) fn enqueue(&mut self, now_ns: u64, entity: u32, wake: Wake, orders: &mut Orders) {
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.state = State::Queued;
        let cpu = vcpu.cpu;
        let earned = match wake {
            Wake::Event(_) => Some(Kind::Boosted),
            Wake::Migration if self.params.fixes.boost_on_migration => None,
            Wake::Migration => Some(Kind::BoostedByMigration),
            Wake::Unparked => None,
        };
        if let Some(kind) = earned
            && vcpu.priority() == Priority::Under
            && !vcpu.parked
        {
            vcpu.boosted = true;
            self.log.push(now_ns, cpu, entity, kind);
        }
        self.queues[cpu as usize].insert(&self.vcpus, entity);
        if self.races(now_ns, entity, wake) {
            self.racing.push(entity);
        } else {
            self.tickle(now_ns, entity, orders);
        }
    }

    /// Whether the next accounting comes between this wake's store of BOOST and its look at the priority.
    fn races(&self, now_ns: u64, entity: u32, wake: Wake) -> bool {
        let Wake::Event(from) = wake else { return false };
        let Some(first) = self.pool.first() else { return false };
        let accounting_ns = self.interrupts[first as usize].due(self.accounting_ns);
        from != Some(Cpu(first))
            && self.vcpus[entity as usize].active
            && accounting_ns.checked_sub(now_ns).is_some_and(|ns| ns < self.params.race_window_ns)
    }

    /// Wakes that accounting overtook look at the priorities.
    pub(super) fn finish_wakes(&mut self, now_ns: u64, orders: &mut Orders) {
        for entity in std::mem::take(&mut self.racing) {
            if self.vcpus[entity as usize].state == State::Queued {
                self.tickle(now_ns, entity, orders);
            }
        }
    }

    /// Interrupts a pCPU for a vCPU that was queued, if one should be.
    fn tickle(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let vcpu = &self.vcpus[entity as usize];
        let (cpu, woken) = (vcpu.cpu, vcpu.priority());
        let current = self.pcpus[cpu].current;
        let priority = current.map_or(Priority::Idle, |current| self.vcpus[current as usize].priority());
        let suitable = match priority {
            Priority::Idle => Some(cpu),
            _ => self.idlers.next_with(&vcpu.allowed, self.last_tickled),
        };
        if let Some(suitable) = suitable {
            self.last_tickled = suitable;
            self.log.push(now_ns, suitable, entity, Kind::Tickled);
            return self.pcpus.order(suitable, orders);
        }
        if woken <= priority {
            let why = Refusal::NotHigher { woken, current: priority };
            return self.log.push(now_ns, cpu, entity, Kind::TickleRefused(why));
        }
        if let Some(current) = current
            && !self.idlers.is_empty()
        {
            self.mark(now_ns, current);
        }
        self.log.push(now_ns, cpu, entity, Kind::Tickled);
        self.pcpus.order(cpu, orders);
    }

    /// Marks a current vCPU, about to be preempted, to be moved to an idle pCPU.
    fn mark(&mut self, now_ns: u64, current: u32) {
        let vcpu = &mut self.vcpus[current as usize];
        if !self.params.fixes.boost_on_migration || vcpu.allowed.meets(&self.idlers) {
            vcpu.migrating = true;
            self.log.push(now_ns, vcpu.cpu, current, Kind::MigratedMark);
        }
    }
}
