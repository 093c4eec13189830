//! Whom a woken (or preempted) vCPU interrupts: an idle pCPU, else the current vCPU over which it has the most credit.

use super::Credit2;
use super::params::{RESIST_NS, TOLERANCE_NS};
use crate::sched::Orders;
use crate::sched::xen::{Kind, Refusal};

impl Credit2 {
    /// Interrupts a pCPU for a vCPU that was queued, if one should be.
    pub(super) fn tickle(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let vcpu = &self.vcpus[entity as usize];
        let (number, home) = (vcpu.queue, vcpu.cpu);
        let queue = &self.queues[number];
        let free = |cpu: &u32| vcpu.allowed.has(*cpu) && !queue.tickled.has(*cpu);
        // Its own pCPU comes first; then the others in turn.
        let own = Some(home).into_iter();
        let idle = own.clone().chain(queue.idle.iter()).filter(free).find(|&cpu| queue.idle.has(cpu));
        if let Some(cpu) = idle {
            return self.interrupt(now_ns, number, cpu, entity, orders);
        }
        let busy: Vec<u32> = own.chain(queue.cpus.iter().filter(|&cpu| cpu != home)).filter(free).collect();
        // The best that may be interrupted, and the best that its rate limit protects.
        let (mut best, mut limited) = ((0, None), (0, None));
        for cpu in busy {
            let score = self.score(now_ns, entity, cpu);
            let protected = self.pcpus.ran_ns(now_ns, cpu) + TOLERANCE_NS < self.params.ratelimit_ns;
            let least = if protected { &mut limited } else { &mut best };
            if score > least.0 {
                *least = (score, Some(cpu));
            }
        }
        match (best.1, limited.1) {
            (Some(cpu), _) => self.interrupt(now_ns, number, cpu, entity, orders),
            (None, Some(cpu)) => self.refuse(now_ns, cpu, entity, orders),
            (None, None) => {
                self.log.push(now_ns, home, entity, Kind::TickleRefused(Refusal::LessCredit));
            }
        }
    }

    fn interrupt(&mut self, now_ns: u64, queue: usize, cpu: u32, entity: u32, orders: &mut Orders) {
        self.queues[queue].tickled.insert(cpu);
        self.log.push(now_ns, cpu, entity, Kind::Tickled);
        self.pcpus.order(cpu, orders);
    }

    /// The rate limit of what runs there is in the way.
    fn refuse(&mut self, now_ns: u64, cpu: u32, entity: u32, orders: &mut Orders) {
        self.log.push(now_ns, cpu, entity, Kind::TickleRefused(Refusal::RateLimit));
        if self.params.retry_refused {
            self.pcpus.shorten(self.pcpus[cpu].since_ns + self.params.ratelimit_ns, cpu, orders);
        }
    }

    /// How much more credit a vCPU has than what runs there, as of now.
    fn score(&mut self, now_ns: u64, entity: u32, cpu: u32) -> i64 {
        self.burn(now_ns, cpu);
        // Without a current one it is about to decide, and looks at the queue itself.
        let Some(current) = self.pcpus[cpu].current else { return 0 };
        let vcpu = &self.vcpus[entity as usize];
        let resist = if vcpu.cpu == cpu { 0 } else { RESIST_NS };
        vcpu.credit - self.vcpus[current as usize].credit - resist
    }
}
