//! What every pCPU has under each of Xen's schedulers: its current vCPU, the order to decide anew, and the timer that
//! ends what it runs.
//!
//! A decision is taken only if it is due: somebody ordered it, the current vCPU left, or it yielded. Another one at the
//! same time would meet the rate limit and cut the slice short, where Xen's softirq is raised only once.

use super::{Kind, Log};
use crate::sched::{Cpu, Orders};

/// One pCPU.
#[derive(Clone, Debug, Default)]
pub struct Pcpu {
    /// Its current vCPU.
    pub current: Option<u32>,
    /// Since when its current vCPU has had it without another between.
    pub since_ns: u64,
    /// Whether a decision was ordered and has not been taken yet.
    pub ordered: bool,
    timer_ns: Option<u64>,
}

/// The pCPUs, and the timers of a scheduler: of pCPU `n`, the number is `first + n`.
#[derive(Clone, Debug)]
pub struct Pcpus {
    pcpus: Vec<Pcpu>,
    first: u32,
}

impl std::ops::Index<u32> for Pcpus {
    type Output = Pcpu;

    fn index(&self, cpu: u32) -> &Pcpu {
        &self.pcpus[cpu as usize]
    }
}

impl std::ops::IndexMut<u32> for Pcpus {
    fn index_mut(&mut self, cpu: u32) -> &mut Pcpu {
        &mut self.pcpus[cpu as usize]
    }
}

impl Pcpus {
    /// That many pCPUs, idle, with timers numbered from `first`.
    pub fn new(cpus: u32, first: u32) -> Pcpus {
        Pcpus { pcpus: vec![Pcpu::default(); cpus as usize], first }
    }

    /// Orders a decision for that pCPU, once.
    pub fn order(&mut self, cpu: u32, orders: &mut Orders) {
        if !std::mem::replace(&mut self[cpu].ordered, true) {
            orders.resched.push(Cpu(cpu));
        }
    }

    /// Whether a decision is due, as `pick` is called; from now on it is not.
    pub fn due(&mut self, cpu: u32) -> bool {
        let pcpu = &mut self[cpu];
        std::mem::take(&mut pcpu.ordered) || pcpu.current.is_none()
    }

    /// A decision is due at the next `pick`, which the dispatcher calls anyway.
    pub fn make_due(&mut self, cpu: u32) {
        self[cpu].ordered = true;
    }

    /// Gives the pCPU to that vCPU or to none, from now until its timer; none for no timer.
    pub fn give(
        &mut self,
        now_ns: u64,
        cpu: u32,
        next: Option<u32>,
        for_ns: Option<u64>,
        orders: &mut Orders,
    ) {
        let pcpu = &mut self[cpu];
        if pcpu.current != next {
            (pcpu.current, pcpu.since_ns) = (next, now_ns);
        }
        match for_ns {
            Some(for_ns) => self.set_timer(now_ns.saturating_add(for_ns.max(1)), cpu, orders),
            None => pcpu.timer_ns = None,
        }
    }

    /// The timer of a pCPU expires at `at_ns`.
    pub fn set_timer(&mut self, at_ns: u64, cpu: u32, orders: &mut Orders) {
        self[cpu].timer_ns = Some(at_ns);
        orders.rearm(self.first + cpu, at_ns);
    }

    /// The timer of a pCPU expires at `at_ns`, if it would later.
    pub fn shorten(&mut self, at_ns: u64, cpu: u32, orders: &mut Orders) {
        if self[cpu].timer_ns.is_some_and(|timer_ns| at_ns < timer_ns) {
            self.set_timer(at_ns, cpu, orders);
        }
    }

    /// The pCPU whose timer has that number, if it is armed for now: what it runs is over.
    pub fn expired(&mut self, now_ns: u64, number: u32) -> Option<u32> {
        let cpu = number.checked_sub(self.first).filter(|&cpu| (cpu as usize) < self.pcpus.len())?;
        let pcpu = &mut self[cpu];
        (pcpu.timer_ns == Some(now_ns)).then(|| {
            pcpu.timer_ns = None;
            cpu
        })
    }

    /// The timer of a pCPU's current vCPU expired.
    pub fn end_slice(&mut self, now_ns: u64, cpu: u32, log: &mut Log, orders: &mut Orders) {
        if let Some(current) = self[cpu].current {
            log.push(now_ns, cpu, current, Kind::SliceEnd);
        }
        self.order(cpu, orders);
    }

    /// How long the current vCPU of that pCPU has run.
    pub fn ran_ns(&self, now_ns: u64, cpu: u32) -> u64 {
        now_ns - self[cpu].since_ns
    }
}
