//! CFS bandwidth: run time that an entity may have in each period.
//!
//! As in Linux, run time is charged where it is accounted (at ticks, wakes and switches), so that an entity overshoots by
//! up to a tick; the debt is carried into the next periods, unused run time only up to the burst. Periods that have begun are added when
//! run time is charged, so a timer is needed only while somebody is throttled; entities with the same grid of periods
//! share one, and are refilled in their order. Left out: Linux hands run time out to CPUs in slices of 5 ms.

use reprieve_study::units::MILLISECOND_NS;

use crate::sched::{Orders, Quota};

/// The least quota and period of Linux.
pub const MIN_NS: u64 = MILLISECOND_NS;

/// An entity's bandwidth.
#[derive(Debug)]
struct Limit {
    quota_ns: i64,
    /// The most that can be left at the beginning of a period: the quota, and what may be saved.
    most_ns: i64,
    period_ns: u64,
    /// What is left of this period's quota; a debt if negative.
    left_ns: i64,
    /// When the next period begins.
    next_ns: u64,
    /// The timer of its grid.
    timer: u32,
}

impl Limit {
    /// Adds the quotas of the periods that have begun.
    fn refill(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let periods = (now_ns - self.next_ns) / self.period_ns + 1;
        let added_ns = self.quota_ns.saturating_mul(periods.min(i64::MAX as u64) as i64);
        self.left_ns = self.left_ns.saturating_add(added_ns).min(self.most_ns);
        self.next_ns += periods * self.period_ns;
    }
}

/// A grid of periods: a timer of the scheduler, by its number.
#[derive(Debug)]
struct Grid {
    period_ns: u64,
    phase_ns: u64,
    armed_ns: Option<u64>,
    /// Entities with this grid, in order.
    members: Vec<u32>,
}

/// All limited entities' bandwidth. A limit's number is kept by its entity.
#[derive(Debug, Default)]
pub struct Bandwidth {
    limits: Vec<Limit>,
    grids: Vec<Grid>,
}

impl Bandwidth {
    /// Limits an entity; gives the limit's number. Quota and period are at least [`MIN_NS`].
    pub fn add(&mut self, entity: u32, quota: &Quota) -> u32 {
        let (quota_ns, period_ns) = (quota.quota_ns.max(MIN_NS) as i64, quota.period_ns.max(MIN_NS));
        let phase_ns = quota.phase_ns;
        let same = |grid: &Grid| grid.period_ns == period_ns && grid.phase_ns == phase_ns;
        let timer = self.grids.iter().position(same).unwrap_or_else(|| {
            self.grids.push(Grid { period_ns, phase_ns, armed_ns: None, members: Vec::new() });
            self.grids.len() - 1
        });
        self.grids[timer].members.push(entity);
        let timer = timer as u32;
        let most_ns = quota_ns.saturating_add_unsigned(quota.burst_ns);
        self.limits.push(Limit { quota_ns, most_ns, period_ns, left_ns: quota_ns, next_ns: phase_ns, timer });
        (self.limits.len() - 1) as u32
    }

    /// CPU time that the entity has had beyond its quota, to be taken from the next periods.
    pub fn debt_ns(&mut self, limit: u32, now_ns: u64) -> u64 {
        self.charge(limit, now_ns, 0);
        u64::try_from(-self.limits[limit as usize].left_ns).unwrap_or(0)
    }

    /// The entity ran for that long, up to now. True if nothing is left.
    pub fn charge(&mut self, limit: u32, now_ns: u64, delta_ns: u64) -> bool {
        let limit = &mut self.limits[limit as usize];
        limit.refill(now_ns);
        limit.left_ns = limit.left_ns.saturating_sub_unsigned(delta_ns);
        limit.left_ns <= 0
    }

    /// The entity is throttled: its timer is armed for the next period.
    pub fn arm(&mut self, limit: u32, orders: &mut Orders) {
        let limit = &self.limits[limit as usize];
        let grid = &mut self.grids[limit.timer as usize];
        if grid.armed_ns != Some(limit.next_ns) {
            grid.armed_ns = Some(limit.next_ns);
            orders.arm.push((limit.timer, limit.next_ns));
        }
    }

    /// That timer expired: number of entities that may have to be refilled. None if it is no timer of ours, or early.
    pub fn expire(&mut self, timer: u32, now_ns: u64) -> usize {
        let Some(grid) = self.grids.get_mut(timer as usize) else { return 0 };
        if grid.armed_ns.is_none_or(|armed_ns| now_ns < armed_ns) {
            return 0;
        }
        grid.armed_ns = None;
        grid.members.len()
    }

    /// An entity of that timer's.
    pub fn member(&self, timer: u32, index: usize) -> u32 {
        self.grids[timer as usize].members[index]
    }
}
