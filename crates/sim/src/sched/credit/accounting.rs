//! Credit: the accounting of a pool every slice, and the tick that samples each pCPU's current vCPU.
//!
//! The accounting shares the pool's credit, a slice's for every pCPU, among the domains on the active list, by weight and
//! number of active vCPUs, wherever they may run: two vCPUs pinned to one pCPU of a mostly idle pool earn twice what that
//! pCPU can give. It looks at active vCPUs alone, and nothing else changes a priority but a wake (BOOST) and a tick (no
//! BOOST any more). A tick is the only way onto the active list.

use super::vcpu::State;
use super::{Credit, Wake};
use crate::sched::Orders;
use crate::sched::xen::{Kind, Priority};

/// A VM.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Number that its vCPUs gave; none for a vCPU that is a domain of its own.
    pub number: Option<u32>,
    /// Its share relative to other domains, for each active vCPU.
    pub weight: i64,
    /// CPU time that it may have, in per cent of a pCPU; 0 for no limit.
    pub cap_percent: i64,
    /// Its active vCPUs; who came last stands first.
    pub active: Vec<u32>,
}

impl Domain {
    /// Its weight in the pool.
    fn active_weight(&self) -> i64 {
        self.weight * self.active.len() as i64
    }
}

/// What is left to share while the domains are gone through.
struct Pot {
    credit: i64,
    weight: i64,
    /// Weight of the domains that have not had their share yet.
    weight_left: i64,
    /// What the pool's vCPUs owe together, after the last accounting.
    debt: i64,
    slice_credit: i64,
    /// A domain before got less than it could have used.
    wanted_more: bool,
}

impl Pot {
    /// The most that a domain may earn: its vCPUs' time of a slice, more if the pool is in debt, and no more than its cap.
    fn peak(&self, domain: &Domain) -> i64 {
        let weight = domain.active_weight();
        let mut peak = domain.active.len() as i64 * self.slice_credit;
        if self.debt > 0 {
            peak += divided_up(self.debt * weight, self.weight);
        }
        if domain.cap_percent == 0 { peak } else { peak.min(self.cap(domain)) }
    }

    /// Credit of a cap in one slice.
    fn cap(&self, domain: &Domain) -> i64 {
        divided_up(domain.cap_percent * self.slice_credit, 100)
    }

    /// A domain's share of the pot, for each of its active vCPUs; and whether it was cut at its peak though a domain
    /// before could have used more, so that it should come before that one next time.
    fn take(&mut self, domain: &Domain) -> (i64, bool) {
        let weight = domain.active_weight();
        self.weight_left -= weight;
        let peak = self.peak(domain);
        let mut share = divided_up(self.credit * weight, self.weight);
        let cut = share >= peak;
        if cut {
            // What it cannot use goes to those after it.
            if self.weight_left > 0 {
                self.credit += divided_up((share - peak) * self.weight, self.weight_left);
            }
            share = peak;
        }
        let first_next_time = cut && self.wanted_more;
        self.wanted_more |= !cut;
        (divided_up(share, domain.active.len() as i64), first_next_time)
    }
}

/// Divided and rounded up; both are positive.
fn divided_up(what: i64, by: i64) -> i64 {
    (what + by - 1) / by
}

impl Credit {
    /// Credit of a slice.
    pub(super) fn slice_credit(&self) -> i64 {
        (self.params.slice_ns / super::vcpu::CREDIT_NS) as i64
    }

    /// The tick of a pCPU: it samples the current vCPU and brings the queue into order. It does not reschedule, unless the
    /// current vCPU had better run elsewhere.
    pub(super) fn sample(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        let queue = &mut self.queues[cpu as usize];
        let unsorted = std::mem::replace(&mut queue.epoch, self.epoch) != self.epoch;
        if unsorted {
            let vcpus = &self.vcpus;
            // Stable, and BOOST stays where it is among UNDER.
            queue.waiting.sort_by_key(|&entity| vcpus[entity as usize].priority() == Priority::Over);
        }
        let Some(entity) = self.pcpus[cpu].current else { return };
        let vcpu = &mut self.vcpus[entity as usize];
        if std::mem::take(&mut vcpu.boosted) {
            self.log.push(now_ns, cpu, entity, Kind::BoostEnded);
        }
        vcpu.burn(now_ns);
        if !vcpu.active {
            self.log.push(now_ns, cpu, entity, Kind::JoinedActive { credit: vcpu.credit });
            self.activate(entity);
            return;
        }
        self.log.push(now_ns, cpu, entity, Kind::Sampled);
        if self.better_cpu(entity) != cpu {
            self.vcpus[entity as usize].migrating = true;
            self.log.push(now_ns, cpu, entity, Kind::MigratedMark);
            self.pcpus.order(cpu, orders);
        }
    }

    /// Puts a vCPU, and its domain, onto the active list.
    pub(super) fn activate(&mut self, entity: u32) {
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.active = true;
        let domain = &mut self.domains[vcpu.domain];
        if domain.active.is_empty() {
            self.active.insert(0, vcpu.domain);
        }
        domain.active.insert(0, entity);
    }

    /// Takes a vCPU off the active list.
    fn deactivate(&mut self, entity: u32) {
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.active = false;
        let number = vcpu.domain;
        let domain = &mut self.domains[number];
        domain.active.retain(|&other| other != entity);
        if domain.active.is_empty() {
            self.active.retain(|&other| other != number);
        }
    }

    /// The accounting of the pool.
    pub(super) fn account(&mut self, now_ns: u64, orders: &mut Orders) {
        let weight: i64 = self.active.iter().map(|&number| self.domains[number].active_weight()).sum();
        let debt = (-self.balance).max(0);
        let slice_credit = self.slice_credit();
        let credit = slice_credit * i64::from(self.pool.count()) + debt;
        let mut pot = Pot { credit, weight, weight_left: weight, debt, slice_credit, wanted_more: false };
        self.balance = 0;
        for number in self.active.clone() {
            let domain = &self.domains[number];
            let (share, first_next_time) = pot.take(domain);
            let members = domain.active.clone();
            let park_below = match domain.cap_percent {
                0 => None,
                _ => Some(-divided_up(pot.cap(domain), members.len() as i64)),
            };
            if first_next_time {
                self.active.retain(|&other| other != number);
                self.active.insert(0, number);
            }
            for entity in members {
                self.earn(now_ns, entity, share, park_below, orders);
                self.balance += self.vcpus[entity as usize].credit;
            }
        }
        self.epoch += 1;
        self.finish_wakes(now_ns, orders);
    }

    /// An active vCPU earns its share, and its priority follows.
    fn earn(&mut self, now_ns: u64, entity: u32, share: i64, park_below: Option<i64>, orders: &mut Orders) {
        let (most, fixes) = (self.slice_credit(), self.params.fixes);
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.credit += share;
        let over = vcpu.credit < 0;
        let (was_over, cpu) = (std::mem::replace(&mut vcpu.over, over), vcpu.cpu);
        if vcpu.boosted && !fixes.boost_erased {
            vcpu.boosted = false;
            self.log.push(now_ns, cpu, entity, Kind::BoostErased);
        }
        if over != was_over {
            let kind = if over { Kind::WentOver } else { Kind::WentUnder };
            self.log.push(now_ns, cpu, entity, kind);
        }
        if over {
            let park = park_below.is_some_and(|below| vcpu.credit < below);
            vcpu.credit = vcpu.credit.max(-most);
            if park && !vcpu.parked {
                self.park(now_ns, entity, orders);
            }
            return;
        }
        let unpark = vcpu.parked;
        if vcpu.credit > most {
            if fixes.inactive_debt {
                vcpu.credit = most;
            } else {
                vcpu.credit /= 2;
                self.log.push(now_ns, cpu, entity, Kind::LeftActive);
                self.deactivate(entity);
            }
        }
        if unpark {
            self.unpark(now_ns, entity, orders);
        }
    }

    /// The domain's cap is spent: the vCPU may not run.
    fn park(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.parked = true;
        let cpu = vcpu.cpu;
        match vcpu.state {
            State::Running => self.pcpus.order(cpu, orders),
            State::Queued => {
                vcpu.state = State::Parked;
                self.queues[cpu as usize].remove(entity);
            }
            State::Blocked | State::Parked => {}
        }
        self.log.push(now_ns, cpu, entity, Kind::Parked);
    }

    /// The cap leaves credit again. Being unparked is a wake, but not one that gives BOOST.
    fn unpark(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let vcpu = &mut self.vcpus[entity as usize];
        self.log.push(now_ns, vcpu.cpu, entity, Kind::Unparked);
        if vcpu.state == State::Parked {
            self.enqueue(now_ns, entity, Wake::Unparked, orders);
        }
        self.vcpus[entity as usize].parked = false;
    }
}
