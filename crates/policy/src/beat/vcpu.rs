//! One vCPU as its beats show it.

use super::lateness::grain_ns;
use super::recent::Recent;
use super::steal::Steal;
use super::{Beat, Gap, Lateness, News, Odds, Remaining, Slices, Verdict, Verdicts};

/// Steal of a gap is booked at the guest's next tick, at most so much later, ns.
const BOOKED_NS: u64 = 10_000_000;
/// A gap is judged again for so long, ns: until steal is booked, and read some time after.
const SETTLE_NS: u64 = 20_000_000;
/// A gap longer than this is not a scheduler's: the machine was suspended or the clock leapt, ns.
pub(crate) const LEAP_NS: u64 = 10_000_000_000;

/// A gap whose verdict may still change.
#[derive(Clone, Copy, Debug)]
struct Pending {
    gap: Gap,
    /// Steal before the gap, ns, if it was ever read, and whether it was read shortly before.
    steal_before_ns: Option<u64>,
    recent: bool,
    /// Whether steal was read when it must have been booked.
    reread: bool,
    /// When the slice before the gap had begun, should it turn out not to have ended.
    began_ns: u64,
}

/// Beats are cheap that come as often as this, ns: all that are of use.
const CHEAP_NS: u64 = 1_000_000;
/// It is worth leaving out so many beats.
const WORTH_PERIODS: u64 = 2;

/// What the beats of one vCPU tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vcpu {
    last: Option<Beat>,
    /// When the next beat is due.
    next_ns: u64,
    lateness: Lateness,
    slices: Slices,
    recent: Recent,
    pending: Option<Pending>,
    /// The first beat of this slice.
    began_ns: u64,
    /// Whether that was the first after a gap, and not the first of all.
    began_known: bool,
    /// Slices begun so far.
    stretch: u64,
    steal: Steal,
    run_delay_ns: Option<u64>,
    verdicts: Verdicts,
}

impl Vcpu {
    /// Takes in a beat. They are to come in the order of their times.
    pub fn beat(&mut self, beat: &Beat) -> News {
        let news = match self.last {
            None => {
                self.restart(beat);
                News::OnTime
            }
            Some(last) if beat.at_ns < last.at_ns || beat.lateness_ns() > LEAP_NS => {
                self.verdicts.clock_faults += 1;
                self.restart(beat);
                News::ClockFault
            }
            Some(last) => self.follow(&last, beat),
        };
        self.last = Some(*beat);
        self.next_ns = beat.at_ns.saturating_add(beat.period_ns);
        self.run_delay_ns = beat.run_delay_ns.or(self.run_delay_ns);
        news
    }

    fn restart(&mut self, beat: &Beat) {
        (self.pending, self.began_known, self.began_ns) = (None, false, beat.at_ns);
        (self.run_delay_ns, self.recent) = (None, Recent::default());
        self.steal.restart();
        self.steal.take(beat.at_ns, beat.steal_ns);
        self.stretch += 1;
    }

    /// A beat after another one: an ordinary one, or the end of a gap.
    fn follow(&mut self, last: &Beat, beat: &Beat) -> News {
        let late_ns = beat.lateness_ns();
        let steal_before_ns = self.steal.last_ns();
        let recent = self.steal.is_recent(beat.at_ns.saturating_sub(late_ns));
        let stolen_ns = self.steal.take(beat.at_ns, beat.steal_ns);
        let threshold_ns = self.lateness.threshold_ns(beat.period_ns);
        // What the host took is a gap however short, and never ordinary.
        let host = late_ns > grain_ns(beat.period_ns)
            && recent
            && stolen_ns.is_some_and(|stolen_ns| stolen_ns >= late_ns / 2);
        if !host {
            self.lateness.learn(late_ns);
        }
        if !host && late_ns <= threshold_ns {
            self.settle(beat);
            return News::OnTime;
        }
        self.conclude();
        let verdict = match host {
            true => Verdict::Host,
            false => self.guests_or_unknown(beat, late_ns),
        };
        let gap = Gap { vcpu: beat.vcpu, last_beat_ns: last.at_ns, back_ns: beat.at_ns, late_ns, verdict };
        self.open(gap, steal_before_ns, recent);
        News::Back(gap)
    }

    /// The verdict where steal says nothing: by the beat thread's own run delay.
    fn guests_or_unknown(&self, beat: &Beat, late_ns: u64) -> Verdict {
        let waited_ns =
            beat.run_delay_ns.zip(self.run_delay_ns).map(|(now, before)| now.saturating_sub(before));
        match waited_ns {
            Some(waited_ns) if waited_ns >= late_ns / 2 => Verdict::Guest,
            _ => Verdict::Unknown,
        }
    }

    /// Opens the case of a gap.
    fn open(&mut self, gap: Gap, steal_before_ns: Option<u64>, recent: bool) {
        if gap.verdict == Verdict::Guest {
            self.verdicts.guest += 1;
            return;
        }
        let began_ns = self.began_ns;
        self.pending = Some(Pending { gap, steal_before_ns, recent, reread: false, began_ns });
        if self.slices.ends_slice(gap.late_ns) {
            self.began_ns = gap.back_ns;
            self.stretch += 1;
        }
        if gap.verdict == Verdict::Host {
            self.conclude();
        }
    }

    /// Looks again at a gap that nothing explained, now that steal may have been booked.
    fn settle(&mut self, beat: &Beat) {
        let Some(pending) = &mut self.pending else { return };
        let since_ns = beat.at_ns.saturating_sub(pending.gap.back_ns);
        pending.reread |= beat.steal_ns.is_some() && since_ns >= BOOKED_NS;
        let stolen_ns =
            beat.steal_ns.zip(pending.steal_before_ns).map(|(now, before)| now.saturating_sub(before));
        if pending.recent && stolen_ns.is_some_and(|stolen| stolen >= pending.gap.late_ns / 2) {
            pending.gap.verdict = Verdict::Host;
            self.conclude();
        } else if since_ns >= SETTLE_NS {
            self.conclude();
        }
    }

    /// Ends the pending gap's case, and books it.
    fn conclude(&mut self) {
        let Some(Pending { gap, began_ns, steal_before_ns, reread, .. }) = self.pending.take() else {
            return;
        };
        match gap.verdict {
            Verdict::Host => self.verdicts.host += 1,
            _ => self.verdicts.unknown += 1,
        }
        // A gap that steal would show, and does not after it must have been booked, is not the host's.
        let innocent = gap.verdict == Verdict::Unknown
            && steal_before_ns.is_some()
            && reread
            && self.steal.would_show(gap.late_ns);
        let ends = self.slices.ends_slice(gap.late_ns);
        if (innocent || !ends) && self.began_ns == gap.back_ns {
            self.began_ns = began_ns;
        }
        if innocent {
            return;
        }
        if ends {
            if self.began_known {
                self.slices.on(gap.last_beat_ns.saturating_sub(began_ns) + half_a_grain(&gap));
            }
            self.began_known = true;
        }
        self.slices.off(gap.late_ns + half_a_grain(&gap));
        self.slices.set_blur(2 * half_a_grain(&gap));
        self.recent.push(gap.back_ns, gap.late_ns);
    }

    /// Whether the vCPU is on as far as its beats tell: the next one is not late yet.
    pub fn is_on(&self, now_ns: u64) -> bool {
        self.last.is_some_and(|last| {
            now_ns <= self.next_ns.saturating_add(self.lateness.threshold_ns(last.period_ns))
        })
    }

    /// When the vCPU went off, if it is off now, ns: between its last beat and the one that was due, where slices ordinarily
    /// end, or in the middle.
    pub fn off_since_ns(&self) -> Option<u64> {
        let last = self.last?;
        let between = last.at_ns..self.next_ns;
        let usual_ns = self.slices.on_median_ns().filter(|_| self.began_known);
        let usual_ns = usual_ns.map(|on_ns| self.began_ns.saturating_add(on_ns));
        let middle_ns = last.at_ns + self.next_ns.saturating_sub(last.at_ns) / 2;
        Some(usual_ns.filter(|end_ns| between.contains(end_ns)).unwrap_or(middle_ns))
    }

    /// Time since this slice began, ns.
    pub fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }

    /// Time on so far, if that can be compared with slices: it is on, and was seen to begin.
    fn comparable_ns(&self, now_ns: u64) -> Option<u64> {
        (self.began_known && self.is_on(now_ns)).then(|| self.elapsed_ns(now_ns))
    }

    /// What remains of this slice; `None` while too little is known, and while the vCPU is off.
    pub fn remaining(&self, now_ns: u64) -> Option<Remaining> {
        self.slices.remaining(self.comparable_ns(now_ns)?)
    }

    /// The same at one quantile, ns.
    pub fn remaining_at(&self, percent: u64, now_ns: u64) -> Option<u64> {
        self.slices.remaining_at(percent, self.comparable_ns(now_ns)?)
    }

    /// How often it goes off within the next `within_ns`; `None` as for [`remaining`](Self::remaining).
    pub fn odds(&self, now_ns: u64, within_ns: u64) -> Option<Odds> {
        self.slices.odds(self.comparable_ns(now_ns)?, within_ns)
    }

    /// When it is back in `percent` of 100 cases, ns from now; `None` while it is on, and if no known gap lasted so long.
    pub fn back_at(&self, percent: u64, now_ns: u64) -> Option<u64> {
        let since_ns = self.off_since_ns().filter(|_| !self.is_on(now_ns))?;
        self.slices.off_remaining_at(percent, now_ns.saturating_sub(since_ns))
    }

    /// Leaves out the beats of the next `quiet_ns`, which would hardly tell anything, where beats are dear: where they come
    /// more slowly than they might. But no longer than the vCPU is usually off, so that no usual gap fits between two beats.
    pub fn rest(&mut self, now_ns: u64, quiet_ns: u64) {
        let quiet_ns = quiet_ns.min(self.slices.off_median_ns().unwrap_or(0));
        if self.period_ns() > CHEAP_NS && quiet_ns >= WORTH_PERIODS.saturating_mul(self.period_ns()) {
            self.next_ns = self.next_ns.max(now_ns.saturating_add(quiet_ns));
        }
    }

    /// When the next beat is due, ns.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Times on and off.
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Ordinary lateness.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Time off in the last second, in thousandths.
    pub fn off_permille(&self, now_ns: u64) -> u64 {
        self.recent.off_permille(now_ns)
    }

    /// Slices begun so far: another number, another slice.
    pub fn stretch(&self) -> u64 {
        self.stretch
    }

    /// Counts of verdicts.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts
    }

    /// The period of the last beat, ns; 0 before the first.
    pub fn period_ns(&self) -> u64 {
        self.last.map_or(0, |last| last.period_ns)
    }
}

/// The vCPU went off between its last beat and the next that was due: in the middle, for all that is known, ns.
fn half_a_grain(gap: &Gap) -> u64 {
    (gap.back_ns - gap.last_beat_ns).saturating_sub(gap.late_ns) / 2
}

#[cfg(test)]
mod tests;
