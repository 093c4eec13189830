//! Which vCPU an I/O task goes to.
//!
//! A recipient is on, allowed, and has enough left: longer than tasks have to leave ahead of its end, and what the move costs.
//! Among several: what remains of its slice, shared with the I/O that it has already. That alone could still give all tasks
//! to one of two; so a vCPU that has all the other I/O tasks gets no more while another one that has none could take it.
//!
//! Cost: a choice looks at each vCPU once; what the I/O of all tasks comes to is summed up once for each signal (`loads`).

use super::task::Task;
use super::{Placer, Policy};
use crate::beat::Odds;

/// A move must be worth so many times what it costs, or what stays.
pub(super) const WORTH: u64 = 2;
/// Slices that differ by a spread of quartiles end within 1 / this of it at the rate that is asked for: the bandwidth of a
/// density estimate from 32 samples. Source: Silverman, "Density Estimation", 1986, 0.9 min(sd, spread / 1.34) n^(-1/5).
const BANDWIDTH_SHARE: u64 = 3;
/// What is known of a vCPU that has not gone off for long is that it has lasted so long; longer than this counts no more, ns.
const LASTED_NS: u64 = 1_000_000_000;
/// Where slices last a few beats only, some ends are missed: it takes so many beats until it is clear that none came.
const UNSEEN_BEATS: u64 = 16;
/// A vCPU that is off is expected back by this percentile of its times off.
const BACK_PERCENT: u64 = 50;

/// The I/O tasks of one vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) permille: u64,
    pub(super) tasks: usize,
}

impl Placer {
    /// Sums up the I/O of all tasks.
    pub(super) fn sum_loads(&mut self) {
        self.loads.fill(Load::default());
        self.io_tasks = 0;
        for task in self.tasks[..self.top].iter().flatten().filter(|task| task.io.is_io()) {
            self.io_tasks += 1;
            if let Some(load) = task.on.and_then(|on| self.loads.get_mut(on)) {
                load.permille += task.weight();
                load.tasks += 1;
            }
        }
    }

    /// What remains of this vCPU's slice, ns, as far as the policy knows: as often less as more. `None` if it knows nothing.
    pub(super) fn remaining_ns(&self, vcpu: usize) -> Option<u64> {
        match self.settings.policy {
            Policy::Oracle | Policy::OracleParks => {
                let (off_ns, back_ns) = self.next_off[vcpu]?;
                (self.now_ns < back_ns).then(|| off_ns.saturating_sub(self.now_ns))
            }
            Policy::Predict | Policy::Combined if self.calm[vcpu] => None,
            Policy::Predict | Policy::Combined => self.vcpus[vcpu].remaining_at(50, self.now_ns),
            Policy::None | Policy::React | Policy::Pull => None,
        }
    }

    /// How often this vCPU goes off within the next `within_ns`, as far as the policy knows; `None` if it knows nothing.
    pub(super) fn odds(&self, vcpu: usize, within_ns: u64) -> Option<Odds> {
        match self.settings.policy {
            Policy::Combined if self.calm[vcpu] => None,
            Policy::Combined => self.vcpus[vcpu].odds(self.now_ns, within_ns),
            _ => self.remaining_ns(vcpu).map(|left_ns| Odds::certain(left_ns <= within_ns)),
        }
    }

    /// What it costs to be caught on this vCPU as it goes off, ns: its time off.
    pub(super) fn caught_ns(&self, vcpu: usize) -> u64 {
        match self.settings.policy.is_oracle() {
            true => self.next_off[vcpu].map_or(0, |(off_ns, back_ns)| back_ns.saturating_sub(off_ns)),
            false => self.vcpus[vcpu].slices().off_median_ns().unwrap_or(0),
        }
    }

    /// The time ahead in which an end is looked for, ns: the lead, and as much longer as ends are spread.
    pub(super) fn soon_ns(&self, vcpu: usize) -> u64 {
        let spread_ns = match self.settings.policy {
            Policy::Combined => self.vcpus[vcpu].slices().on_spread_ns() / BANDWIDTH_SHARE,
            _ => 0,
        };
        self.lead_ns(vcpu).saturating_add(spread_ns)
    }

    /// What is lost in the mean by staying on this vCPU until it may be too late to leave, the lead, ns.
    pub(super) fn danger_ns(&self, vcpu: usize) -> u64 {
        let soon_ns = self.soon_ns(vcpu);
        let loss_ns = self.odds(vcpu, soon_ns).map_or(0, |odds| odds.loss_ns(self.caught_ns(vcpu)));
        // The loss in the time ahead, as far as it falls into the lead.
        (u128::from(loss_ns) * u128::from(self.lead_ns(vcpu)) / u128::from(soon_ns.max(1))) as u64
    }

    /// How long after a task has left this vCPU ahead of its end it would be back, had it gone off as was feared, ns; and some
    /// beats more.
    pub(super) fn feared_ns(&self, vcpu: usize) -> u64 {
        let unseen_ns = UNSEEN_BEATS.saturating_mul(self.vcpus[vcpu].period_ns());
        self.lead_ns(vcpu).saturating_add(self.caught_ns(vcpu)).saturating_add(unseen_ns)
    }

    /// Whether a loss is worth a move of this task to avoid it.
    pub(super) fn is_dear(&self, loss_ns: u64, task: &Task) -> bool {
        loss_ns > WORTH.saturating_mul(task.cost_ns)
    }

    /// Whether the vCPU is on.
    pub(super) fn is_on(&self, vcpu: usize) -> bool {
        let told_off = self.settings.policy.is_oracle()
            && self.next_off[vcpu].is_some_and(|(off_ns, back_ns)| (off_ns..back_ns).contains(&self.now_ns));
        self.vcpus[vcpu].is_on(self.now_ns) && !told_off
    }

    /// What must remain of a slice to be worth moving a task there whose move costs so much, ns: at least until the next beat,
    /// or nobody would see when to leave.
    fn least_ns(&self, vcpu: usize, cost_ns: u64) -> u64 {
        let slice_ns = self.vcpus[vcpu].slices().on_median_ns().unwrap_or(0);
        let lead_ns = self.lead_ns(vcpu);
        let ahead_ns = lead_ns.saturating_add(lead_ns.max(slice_ns / 8)).saturating_add(cost_ns);
        ahead_ns.max(self.vcpus[vcpu].period_ns())
    }

    /// Whether enough remains of this vCPU's slice for the task, as often as not; also if nothing is known of it.
    pub(super) fn has_time(&self, task: usize, vcpu: usize) -> bool {
        let cost_ns = self.task(task).map_or(0, |known| known.cost_ns);
        let odds = self.odds(vcpu, self.least_ns(vcpu, cost_ns));
        self.is_on(vcpu) && odds.is_none_or(|odds| 2 * odds.ending <= odds.of)
    }

    /// Whether the task may go to this vCPU, and would have time there. Not to where it left within the same slice.
    pub fn could_take(&self, task: usize, vcpu: usize) -> bool {
        let Some(known) = self.task(task).filter(|_| vcpu < self.vcpus.len()) else { return false };
        known.mask.contains(vcpu)
            && !self.left.has_left(task, vcpu, self.vcpus[vcpu].stretch(), self.now_ns)
            && self.has_time(task, vcpu)
    }

    /// I/O on this vCPU in thousandths, but for one task.
    pub(super) fn load_permille(&self, vcpu: usize, without: usize) -> u64 {
        let own = self.task(without).filter(|task| task.io.is_io() && task.on == Some(vcpu));
        self.loads[vcpu].permille.saturating_sub(own.map_or(0, |task| task.weight()))
    }

    /// Whether all I/O tasks but this one, and at least one, are on this vCPU.
    fn has_all_others(&self, vcpu: usize, but: usize) -> bool {
        let own = self.task(but).filter(|task| task.io.is_io());
        let others = self.io_tasks.saturating_sub(own.is_some().into());
        let own_here = own.is_some_and(|task| task.on == Some(vcpu));
        let here = self.loads[vcpu].tasks.saturating_sub(own_here.into());
        others > 0 && here == others
    }

    /// What remains of this vCPU's slice, ns. Where nothing is known of the end, as much again as it has lasted: a vCPU that is
    /// never off is the best there is, and one new to us is not.
    pub(super) fn lasts_ns(&self, vcpu: usize) -> u64 {
        let unknown_ns = || match self.calm[vcpu] {
            true => LASTED_NS,
            false => self.vcpus[vcpu].elapsed_ns(self.now_ns).min(LASTED_NS),
        };
        self.remaining_ns(vcpu).unwrap_or_else(unknown_ns)
    }

    /// What there is for the task on this vCPU, ns: what remains, shared with what is there.
    pub(super) fn share_ns(&self, task: usize, vcpu: usize) -> u64 {
        self.lasts_ns(vcpu).saturating_mul(1000) / (1000 + self.load_permille(vcpu, task))
    }

    /// The vCPU with the greatest share of those that could take the task, but for where it is and `but`.
    fn best(&self, task: usize, but: Option<usize>) -> Option<usize> {
        let on = self.task(task)?.on;
        let others = (0..self.vcpus.len()).filter(|vcpu| Some(*vcpu) != on && Some(*vcpu) != but);
        let could = others.filter(|vcpu| self.could_take(task, *vcpu));
        could.max_by_key(|vcpu| (self.share_ns(task, *vcpu), std::cmp::Reverse(*vcpu)))
    }

    /// The best vCPU for a task that should leave where it is; `None` if it had better stay.
    pub(super) fn choose(&self, task: usize) -> Option<usize> {
        let best = self.best(task, None)?;
        if !self.has_all_others(best, task) {
            return Some(best);
        }
        self.best(task, Some(best)).or_else(|| {
            // Alone where it is, it stays there while that is safe.
            let known = self.task(task)?;
            let on = known.on.filter(|on| *on < self.vcpus.len() && self.is_on(*on));
            let stays = on.is_some_and(|on| !self.is_dear(self.danger_ns(on), known));
            (!stays).then_some(best)
        })
    }

    /// When this vCPU, which is off, is expected back, ns from now. `None` if it is on, or off for longer than is known.
    fn expected_back_ns(&self, vcpu: usize) -> Option<u64> {
        if self.settings.policy.is_oracle() {
            let (off_ns, back_ns) = self.next_off[vcpu]?;
            return (off_ns..back_ns).contains(&self.now_ns).then(|| back_ns - self.now_ns);
        }
        self.vcpus[vcpu].back_at(BACK_PERCENT, self.now_ns)
    }

    /// Where a task waits best while no recipient has time and its own vCPU may be about to end: on a vCPU that is off and
    /// expected back soon. There it has no I/O in flight to wait for, and whatever vCPU comes back first pulls it. `None` if
    /// it had better stay.
    ///
    /// It goes if that is better than to wait on its own until that may be too late, or until the other is back and an I/O
    /// has drained, whichever is first: then it is caught in some cases, for its vCPU's time off instead of the wait there;
    /// else it has worked for so long.
    pub(super) fn choose_parking(&self, task: usize) -> Option<usize> {
        let known = self.task(task)?;
        let own = known.on?;
        let (soon_ns, caught_ns) = (self.soon_ns(own), self.caught_ns(own));
        let drain_ns = self.lead.usual_ns();
        let allowed = (0..self.vcpus.len()).filter(|vcpu| *vcpu != own && known.mask.contains(*vcpu));
        let back = allowed.filter_map(|vcpu| Some((self.expected_back_ns(vcpu)?, vcpu)));
        let pays = |(back_ns, _): &(u64, usize)| {
            let worked_ns = soon_ns.min(back_ns.saturating_add(drain_ns));
            let spared_ns =
                caught_ns.saturating_sub(back_ns.saturating_add(WORTH.saturating_mul(known.cost_ns)));
            self.odds(own, worked_ns)
                .is_some_and(|odds| odds.loss_ns(spared_ns) > WORTH.saturating_mul(worked_ns))
        };
        back.filter(pays)
            .min_by_key(|(back_ns, vcpu)| (*back_ns, self.load_permille(*vcpu, task), *vcpu))
            .map(|(_, vcpu)| vcpu)
    }
}
