//! The state of one vCPU, as its beats show it: on or off, the slice so far, and the gap still to be judged.

use super::lateness::grain_ns;
use super::recent::Recent;
use super::steal::Steal;
use super::{Beat, Gap, Lateness, News, Odds, Slices, Verdict, Verdicts};
use crate::SECOND_NS;

/// The kernel books a gap's steal at its next tick, at most this long after the gap, ns.
const BOOKED_NS: u64 = 10_000_000;
/// How long a gap may be judged again, ns: time enough for the kernel to book steal and for a beat to read it.
const SETTLE_NS: u64 = 20_000_000;
/// No scheduler makes a gap longer than this, ns: the machine was suspended or the clock leapt.
pub(crate) const LEAP_NS: u64 = 10 * SECOND_NS;
/// Beats at this period, ns, or a shorter one, are so cheap that none is skipped.
const CHEAP_NS: u64 = 1_000_000;
/// Beats are skipped only if at least this many can be.
const WORTH_PERIODS: u64 = 2;

/// A gap whose verdict may still change.
#[derive(Clone, Copy, Debug)]
struct Pending {
    gap: Gap,
    /// The last steal reading before the gap, ns, and whether it was recent.
    steal_before_ns: Option<u64>,
    recent: bool,
    /// Whether steal was read after the kernel must have booked it.
    reread: bool,
    /// When the slice before the gap began, ns, in case the gap turns out not to end it.
    began_ns: u64,
}

/// One vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vcpu {
    last: Option<Beat>,
    /// When the next beat is due, ns.
    next_ns: u64,
    lateness: Lateness,
    slices: Slices,
    recent: Recent,
    pending: Option<Pending>,
    /// Time of the first beat of this slice, ns.
    began_ns: u64,
    /// Whether that beat followed a gap: the slice's true beginning is known.
    began_known: bool,
    /// Number of slices so far.
    slice: u64,
    steal: Steal,
    run_delay_ns: Option<u64>,
    verdicts: Verdicts,
}

impl Vcpu {
    /// Takes in a beat. Hand in beats in the order of their times.
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
        self.slice += 1;
    }

    /// Takes in a beat that is not the first: an ordinary one, or the end of a gap.
    fn follow(&mut self, last: &Beat, beat: &Beat) -> News {
        let late_ns = beat.lateness_ns();
        let steal_before_ns = self.steal.last_ns();
        let recent = self.steal.is_recent(beat.at_ns.saturating_sub(late_ns));
        let stolen_ns = self.steal.take(beat.at_ns, beat.steal_ns);
        let threshold_ns = self.lateness.threshold_ns(beat.period_ns);
        // Stolen time is a gap however short it is, and never counts as ordinary lateness.
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
            false => self.guest_or_unknown(beat, late_ns),
        };
        let gap = Gap {
            vcpu: beat.vcpu,
            last_beat_ns: last.at_ns,
            back_ns: beat.at_ns,
            late_ns,
            ordinary_late_ns: self.lateness.ordinary_ns(),
            verdict,
        };
        self.open(gap, steal_before_ns, recent);
        News::Back(gap)
    }

    /// The verdict if steal does not explain the gap: judged by the beat thread's own run delay.
    fn guest_or_unknown(&self, beat: &Beat, late_ns: u64) -> Verdict {
        let waited_ns =
            beat.run_delay_ns.zip(self.run_delay_ns).map(|(now, before)| now.saturating_sub(before));
        match waited_ns {
            Some(waited_ns) if waited_ns >= late_ns / 2 => Verdict::Guest,
            _ => Verdict::Unknown,
        }
    }

    /// Opens a gap's case; a verdict of guest or host closes it at once.
    fn open(&mut self, gap: Gap, steal_before_ns: Option<u64>, recent: bool) {
        if gap.verdict == Verdict::Guest {
            self.verdicts.guest += 1;
            return;
        }
        let began_ns = self.began_ns;
        self.pending = Some(Pending { gap, steal_before_ns, recent, reread: false, began_ns });
        if self.slices.ends_slice(gap.late_ns) {
            self.began_ns = gap.back_ns;
            self.slice += 1;
        }
        if gap.verdict == Verdict::Host {
            self.conclude();
        }
    }

    /// Judges an unexplained gap again, now that the kernel may have booked its steal.
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

    /// Closes the pending gap's case, and learns from it unless the host is cleared.
    fn conclude(&mut self) {
        let Some(Pending { gap, began_ns, steal_before_ns, reread, .. }) = self.pending.take() else {
            return;
        };
        match gap.verdict {
            Verdict::Host => self.verdicts.host += 1,
            _ => self.verdicts.unknown += 1,
        }
        // Steal would show this gap, must have been booked by now, and does not show it: the host did not cause it.
        let host_cleared = gap.verdict == Verdict::Unknown
            && steal_before_ns.is_some()
            && reread
            && self.steal.would_show(gap.late_ns);
        let ends = self.slices.ends_slice(gap.late_ns);
        if (host_cleared || !ends) && self.began_ns == gap.back_ns {
            self.began_ns = began_ns;
        }
        if host_cleared {
            return;
        }
        if ends {
            if self.began_known {
                self.slices.on(gap.last_beat_ns.saturating_sub(began_ns) + half_a_period(&gap));
            }
            self.began_known = true;
        }
        self.slices.off(gap.late_ns + half_a_period(&gap));
        self.slices.set_blur(2 * half_a_period(&gap));
        self.recent.push(gap.back_ns, gap.late_ns);
    }

    /// Whether the vCPU is on as far as beats can show: its next beat is not late yet.
    pub fn is_on(&self, now_ns: u64) -> bool {
        self.last.is_some_and(|last| {
            now_ns <= self.next_ns.saturating_add(self.lateness.threshold_ns(last.period_ns))
        })
    }

    /// If the vCPU is off now: an estimate of when it went off, ns. That was between its last beat and the next one
    /// due: at the usual end of its slices if that lies between the two, else halfway.
    pub fn off_since_ns(&self) -> Option<u64> {
        let last = self.last?;
        let between = last.at_ns..self.next_ns;
        let usual_ns = self.slices.on_median_ns().filter(|_| self.began_known);
        let usual_ns = usual_ns.map(|on_ns| self.began_ns.saturating_add(on_ns));
        let middle_ns = last.at_ns + self.next_ns.saturating_sub(last.at_ns) / 2;
        Some(usual_ns.filter(|end_ns| between.contains(end_ns)).unwrap_or(middle_ns))
    }

    /// Time since the start of this slice, ns.
    pub fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }

    /// The slice's length so far, ns, if it can be compared with past slices: the vCPU is on, and the slice's beginning
    /// is known.
    fn comparable_ns(&self, now_ns: u64) -> Option<u64> {
        (self.began_known && self.is_on(now_ns)).then(|| self.elapsed_ns(now_ns))
    }

    /// How much of this slice remains, ns, as a quantile; `None` while too little is known, and while the vCPU is off.
    pub fn remaining_at(&self, percent: u64, now_ns: u64) -> Option<u64> {
        self.slices.remaining_at(percent, self.comparable_ns(now_ns)?)
    }

    /// The odds that the vCPU goes off within the next `within_ns`; `None` as for [`remaining_at`](Self::remaining_at).
    pub fn odds(&self, now_ns: u64, within_ns: u64) -> Option<Odds> {
        self.slices.odds(self.comparable_ns(now_ns)?, within_ns)
    }

    /// The time from now, ns, by which the vCPU is back in `percent` of 100 cases; `None` while it is on, and if no
    /// known gap lasted this long.
    pub fn back_at(&self, percent: u64, now_ns: u64) -> Option<u64> {
        let since_ns = self.off_since_ns().filter(|_| !self.is_on(now_ns))?;
        self.slices.off_remaining_at(percent, now_ns.saturating_sub(since_ns))
    }

    /// Skips the beats of the next `quiet_ns`, during which the vCPU is unlikely to go off. Does so only at a long
    /// period, which shows that beats are costly here. Skips no more than the usual time off, so that no usual gap fits
    /// between two beats.
    pub fn skip_beats(&mut self, now_ns: u64, quiet_ns: u64) {
        let quiet_ns = quiet_ns.min(self.slices.off_median_ns().unwrap_or(0));
        if self.period_ns() > CHEAP_NS && quiet_ns >= WORTH_PERIODS.saturating_mul(self.period_ns()) {
            self.next_ns = self.next_ns.max(now_ns.saturating_add(quiet_ns));
        }
    }

    /// When the next beat is due, ns.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Past slices and gaps.
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// How late beats ordinarily are.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Time off in the last second, in thousandths.
    pub fn off_permille(&self, now_ns: u64) -> u64 {
        self.recent.off_permille(now_ns)
    }

    /// The number of the current slice; a new slice gets a new number.
    pub fn slice(&self) -> u64 {
        self.slice
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

/// Half the time between the last beat and the next one due, ns. The vCPU went off between the two; halfway is the best
/// guess.
fn half_a_period(gap: &Gap) -> u64 {
    (gap.back_ns - gap.last_beat_ns).saturating_sub(gap.late_ns) / 2
}

#[cfg(test)]
mod tests;
