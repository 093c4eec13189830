//! Chooses the vCPU that an I/O task goes to.
//!
//! A recipient is on, is in the task's mask, and has enough of its slice left: more than the lead plus the cost of the
//! move. Among several the best is the one with the most time for this task: the rest of its slice, shared with the I/O
//! already there. That alone could gather all tasks on one of two vCPUs. So a vCPU that has all other I/O tasks gets no
//! more while another one could take the task.
//!
//! Cost: a choice visits each vCPU once. The load of all vCPUs is summed up once per signal (`loads`).

use super::task::Task;
use super::{Placer, Policy};
use crate::SECOND_NS;
use crate::beat::Odds;

/// A move must gain this many times what it costs or gives up.
pub(super) const WORTH: u64 = 2;
/// The rate at which slices end is estimated over 1 / this of their spread (the distance of the quartiles): the
/// bandwidth of a density estimate from 32 samples. Source: Silverman, "Density Estimation", 1986, 0.9 min(sd, spread /
/// 1.34) n^(-1/5).
const BANDWIDTH_SHARE: u64 = 3;
/// A slice with no known end is expected to last as long again as it has lasted, but no longer than this, ns.
const LASTED_NS: u64 = SECOND_NS;
/// Where slices last only a few beats, beats miss some ends: it takes this many beats to be sure that no end came.
const UNSEEN_BEATS: u64 = 16;
/// A vCPU that is off is expected back by this percentile of its gaps.
const BACK_PERCENT: u64 = 50;

/// The I/O on one vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Sum of the tasks' I/O fractions, in thousandths.
    pub(super) permille: u64,
    /// Number of I/O tasks.
    pub(super) tasks: usize,
}

impl Placer {
    /// Sums up the I/O of each vCPU.
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

    /// The median of what remains of this vCPU's slice, ns; `None` if the policy has no prediction.
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

    /// The odds that this vCPU goes off within the next `within_ns`; `None` if the policy has no prediction.
    pub(super) fn odds(&self, vcpu: usize, within_ns: u64) -> Option<Odds> {
        match self.settings.policy {
            Policy::Combined if self.calm[vcpu] => None,
            Policy::Combined => self.vcpus[vcpu].odds(self.now_ns, within_ns),
            _ => self.remaining_ns(vcpu).map(|left_ns| Odds::certain(left_ns <= within_ns)),
        }
    }

    /// The cost of being caught on this vCPU when it goes off, ns: its time off.
    pub(super) fn caught_ns(&self, vcpu: usize) -> u64 {
        match self.settings.policy.is_oracle() {
            true => self.next_off[vcpu].map_or(0, |(off_ns, back_ns)| back_ns.saturating_sub(off_ns)),
            false => self.vcpus[vcpu].slices().off_median_ns().unwrap_or(0),
        }
    }

    /// How far ahead an end of the slice is looked for, ns: the lead, and longer the more the ends differ.
    pub(super) fn soon_ns(&self, vcpu: usize) -> u64 {
        let spread_ns = match self.settings.policy {
            Policy::Combined => self.vcpus[vcpu].slices().on_spread_ns() / BANDWIDTH_SHARE,
            _ => 0,
        };
        self.lead_ns(vcpu).saturating_add(spread_ns)
    }

    /// The expected loss, ns, of staying on this vCPU for one more lead, after which it may be too late to leave.
    pub(super) fn danger_ns(&self, vcpu: usize) -> u64 {
        let soon_ns = self.soon_ns(vcpu);
        let loss_ns = self.odds(vcpu, soon_ns).map_or(0, |odds| odds.loss_ns(self.caught_ns(vcpu)));
        // The odds are for the time ahead; the lead's share of it counts.
        (u128::from(loss_ns) * u128::from(self.lead_ns(vcpu)) / u128::from(soon_ns.max(1))) as u64
    }

    /// How long a task that leaves this vCPU ahead of an expected end stays away, ns: until the vCPU would be back if
    /// that end came, and some beats more.
    pub(super) fn stay_away_ns(&self, vcpu: usize) -> u64 {
        let unseen_ns = UNSEEN_BEATS.saturating_mul(self.vcpus[vcpu].period_ns());
        self.lead_ns(vcpu).saturating_add(self.caught_ns(vcpu)).saturating_add(unseen_ns)
    }

    /// Whether avoiding this loss is worth a move of the task.
    pub(super) fn outweighs_move(&self, loss_ns: u64, task: &Task) -> bool {
        loss_ns > WORTH.saturating_mul(task.cost_ns)
    }

    /// Whether the vCPU is on.
    pub(super) fn is_on(&self, vcpu: usize) -> bool {
        let known_off = self.settings.policy.is_oracle()
            && self.next_off[vcpu].is_some_and(|(off_ns, back_ns)| (off_ns..back_ns).contains(&self.now_ns));
        self.vcpus[vcpu].is_on(self.now_ns) && !known_off
    }

    /// The least rest of a slice, ns, for which a move of this cost pays. At least a beat period, or no beat would show
    /// when to leave.
    fn least_ns(&self, vcpu: usize, cost_ns: u64) -> u64 {
        let slice_ns = self.vcpus[vcpu].slices().on_median_ns().unwrap_or(0);
        let lead_ns = self.lead_ns(vcpu);
        let ahead_ns = lead_ns.saturating_add(lead_ns.max(slice_ns / 8)).saturating_add(cost_ns);
        ahead_ns.max(self.vcpus[vcpu].period_ns())
    }

    /// Whether in at least half of the cases this vCPU's slice has enough left for the task; true without a prediction.
    pub(super) fn has_time(&self, task: usize, vcpu: usize) -> bool {
        let cost_ns = self.task(task).map_or(0, |known| known.cost_ns);
        let odds = self.odds(vcpu, self.least_ns(vcpu, cost_ns));
        self.is_on(vcpu) && odds.is_none_or(|odds| 2 * odds.ending <= odds.of)
    }

    /// Whether the task may go to this vCPU and has time there. It may not return to a slice that it has left.
    pub fn could_take(&self, task: usize, vcpu: usize) -> bool {
        let Some(known) = self.task(task).filter(|_| vcpu < self.vcpus.len()) else { return false };
        known.mask.contains(vcpu)
            && !self.left.has_left(task, vcpu, self.vcpus[vcpu].slice(), self.now_ns)
            && self.has_time(task, vcpu)
    }

    /// The I/O load of this vCPU in thousandths, not counting task `without`.
    pub(super) fn load_permille(&self, vcpu: usize, without: usize) -> u64 {
        let own = self.task(without).filter(|task| task.io.is_io() && task.on == Some(vcpu));
        self.loads[vcpu].permille.saturating_sub(own.map_or(0, |task| task.weight()))
    }

    /// Whether there are I/O tasks other than this one, and all of them are on this vCPU.
    fn has_all_others(&self, vcpu: usize, task: usize) -> bool {
        let own = self.task(task).filter(|task| task.io.is_io());
        let others = self.io_tasks.saturating_sub(own.is_some().into());
        let own_here = own.is_some_and(|task| task.on == Some(vcpu));
        let here = self.loads[vcpu].tasks.saturating_sub(own_here.into());
        others > 0 && here == others
    }

    /// How much remains of this vCPU's slice, ns. Without a prediction: as much as it has lasted so far, and the
    /// maximum for a calm vCPU. So a vCPU that is hardly ever off ranks first, and one just seen for the first time
    /// does not.
    pub(super) fn lasts_ns(&self, vcpu: usize) -> u64 {
        let unknown_ns = || match self.calm[vcpu] {
            true => LASTED_NS,
            false => self.vcpus[vcpu].elapsed_ns(self.now_ns).min(LASTED_NS),
        };
        self.remaining_ns(vcpu).unwrap_or_else(unknown_ns)
    }

    /// The task's share of what remains of this vCPU's slice, ns, given the I/O already there.
    pub(super) fn share_ns(&self, task: usize, vcpu: usize) -> u64 {
        self.lasts_ns(vcpu).saturating_mul(1000) / (1000 + self.load_permille(vcpu, task))
    }

    /// The vCPU with the largest share for the task among those that could take it; never the task's own, nor
    /// `excluded`.
    fn best(&self, task: usize, excluded: Option<usize>) -> Option<usize> {
        let on = self.task(task)?.on;
        let others = (0..self.vcpus.len()).filter(|vcpu| Some(*vcpu) != on && Some(*vcpu) != excluded);
        let could = others.filter(|vcpu| self.could_take(task, *vcpu));
        could.max_by_key(|vcpu| (self.share_ns(task, *vcpu), std::cmp::Reverse(*vcpu)))
    }

    /// The best vCPU for a task that should leave its own; `None` if it should stay after all.
    pub(super) fn choose(&self, task: usize) -> Option<usize> {
        let best = self.best(task, None)?;
        if !self.has_all_others(best, task) {
            return Some(best);
        }
        self.best(task, Some(best)).or_else(|| {
            // Joining all others is the only choice left: stay on the own vCPU while that is safe.
            let known = self.task(task)?;
            let on = known.on.filter(|on| *on < self.vcpus.len() && self.is_on(*on));
            let stays = on.is_some_and(|on| !self.outweighs_move(self.danger_ns(on), known));
            (!stays).then_some(best)
        })
    }

    /// When this vCPU is expected back, ns from now; `None` if it is on, or has been off for longer than any known gap.
    fn expected_back_ns(&self, vcpu: usize) -> Option<u64> {
        if self.settings.policy.is_oracle() {
            let (off_ns, back_ns) = self.next_off[vcpu]?;
            return (off_ns..back_ns).contains(&self.now_ns).then(|| back_ns - self.now_ns);
        }
        self.vcpus[vcpu].back_at(BACK_PERCENT, self.now_ns)
    }

    /// Where to park a task whose vCPU may soon go off while no other has time: on a vCPU that is off and expected back
    /// soon. The parked task has no I/O in flight, so the first vCPU that comes back can pull it. `None` if it should
    /// stay.
    ///
    /// The alternative is to work on until it may be too late to leave, or until the other vCPU is back and an I/O has
    /// drained, whichever comes first. Parking pays if the expected saving (being caught costs the own vCPU's time off,
    /// parking only the wait and the move) clearly exceeds the work given up.
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
