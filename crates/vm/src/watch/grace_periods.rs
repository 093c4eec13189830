//! Turns looks at `gp_seq` and the masks into grace periods. Pure: times are handed in.

use reprieve_study::{GracePeriod, Span};

use crate::introspect::{GpState, Impossible};

/// Grace periods kept, at most: an hour of them at the most that a kernel with a tick of 4 ms has, 250 a second. One that
/// means harm could show another at every look.
pub const GRACE_PERIODS: usize = 900_000;
/// No kernel has more of them between two looks: one a microsecond, or so many.
const STEPS: u64 = 16;

/// Follows the grace periods of one guest.
///
/// A start or an end lies between two looks and is put at the later one; since both are, a duration has no
/// bias, and an error of at most one interval between looks.
#[derive(Debug, Default)]
pub struct GpTracker {
    cpus: usize,
    open: Option<Open>,
    /// Number of the last look's state, when no grace period was open.
    idle: Option<u64>,
    ended: Vec<GracePeriod>,
    missed: u64,
    last_look_ns: Option<u64>,
}

#[derive(Debug)]
struct Open {
    sequence: u64,
    start_ns: u64,
    /// Whether the start was seen; the first look may find a grace period that is open already.
    whole: bool,
    waiting: u64,
    cleared_ns: Vec<Option<u64>>,
}

impl GpTracker {
    /// A tracker for a guest with that many CPUs.
    pub fn new(cpus: usize) -> GpTracker {
        GpTracker { cpus, ..GpTracker::default() }
    }

    /// Takes one look. Gives the steps since the last one, if no kernel makes them; these count for nothing.
    pub fn see(&mut self, t_ns: u64, state: GpState) -> Option<Impossible> {
        let first_look = self.open.is_none() && self.idle.is_none();
        let since_ns = t_ns.saturating_sub(self.last_look_ns.replace(t_ns).unwrap_or(t_ns));
        let last = self.open.as_ref().map(|open| open.sequence).or(self.idle).unwrap_or(state.sequence);
        let (steps, most) = (steps(last, state.sequence), (since_ns / 1000).max(STEPS));
        let impossible = Impossible::unless("the step of rcu_state.gp_seq", steps.into(), 0, most.into());
        let steps = if impossible.is_some() { 0 } else { steps as u64 };
        if let Some(open) = self.open.take_if(|open| !state.open || open.sequence != state.sequence) {
            // The sequence steps when a grace period ends; every further step is one that nobody saw.
            self.miss(steps.saturating_sub(1));
            self.end(open, t_ns);
        } else {
            self.miss(steps);
        }
        self.idle = (!state.open).then_some(state.sequence);
        if state.open {
            self.see_open(t_ns, state, !first_look);
        }
        impossible
    }

    fn see_open(&mut self, t_ns: u64, state: GpState, whole: bool) {
        let cpus = self.cpus;
        let open = self.open.get_or_insert_with(|| Open {
            sequence: state.sequence,
            start_ns: t_ns,
            whole,
            waiting: 0,
            cleared_ns: vec![None; cpus],
        });
        open.note_cleared(!state.holdouts, t_ns);
        open.waiting |= state.holdouts;
    }

    /// How long the open grace period has lasted at `t_ns`, if one is open and its start was seen.
    pub fn open_ns(&self, t_ns: u64) -> Option<u64> {
        let open = self.open.as_ref().filter(|open| open.whole)?;
        Some(t_ns.saturating_sub(open.start_ns))
    }

    /// All grace periods whose start and end were seen, and the number of those too short to be seen.
    pub fn finish(self) -> (Vec<GracePeriod>, u64) {
        (self.ended, self.missed)
    }

    fn miss(&mut self, count: u64) {
        self.missed = self.missed.saturating_add(count);
    }

    fn end(&mut self, mut open: Open, t_ns: u64) {
        open.note_cleared(u64::MAX, t_ns);
        if open.whole && self.ended.len() == GRACE_PERIODS {
            self.miss(1);
        } else if open.whole {
            let span = Span::new(open.start_ns, t_ns);
            self.ended.push(GracePeriod { sequence: open.sequence, span, cleared_ns: open.cleared_ns });
        }
    }
}

/// How many grace periods lie from one number to a later one. Numbers have 62 bits and a booting kernel
/// begins 300 before they wrap (`RCU_SEQ_CTR_SHIFT` and `rcu_state.gp_seq`, kernel/rcu/rcu.h and tree.c), so
/// the first minute of a guest sees it happen. No kernel steps back.
fn steps(from: u64, to: u64) -> i64 {
    (to.wrapping_sub(from) << 2) as i64 >> 2
}

impl Open {
    /// Of the CPUs that were waited for, those in `clear` have reported by now.
    fn note_cleared(&mut self, clear: u64, t_ns: u64) {
        let reported = self.waiting & clear;
        for (cpu, cleared_ns) in self.cleared_ns.iter_mut().enumerate().take(64) {
            if reported >> cpu & 1 == 1 && cleared_ns.is_none() {
                *cleared_ns = Some(t_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(tracker: &mut GpTracker, t_ns: u64, sequence: u64, open: bool, holdouts: u64) {
        tracker.see(t_ns, GpState { sequence, open, holdouts });
    }

    #[test]
    fn back_to_back_grace_periods_are_told_apart() {
        let mut tracker = GpTracker::new(2);
        look(&mut tracker, 0, 7, false, 0);
        look(&mut tracker, 10, 7, true, 0b11);
        look(&mut tracker, 20, 7, true, 0b10);
        look(&mut tracker, 30, 8, true, 0b01);
        look(&mut tracker, 40, 9, false, 0);
        let (ended, missed) = tracker.finish();
        assert_eq!(missed, 0);
        let spans: Vec<_> = ended.iter().map(|gp| (gp.sequence, gp.span)).collect();
        assert_eq!(spans, [(7, Span::new(10, 30)), (8, Span::new(30, 40))]);
        assert_eq!(ended[0].cleared_ns, [Some(20), Some(30)]);
        assert_eq!(ended[1].cleared_ns, [Some(40), None]);
    }

    #[test]
    fn one_that_was_open_at_the_first_look_has_no_duration() {
        let mut tracker = GpTracker::new(1);
        look(&mut tracker, 0, 7, true, 1);
        look(&mut tracker, 10, 8, false, 0);
        assert_eq!(tracker.open_ns(15), None);
        look(&mut tracker, 20, 8, true, 1);
        assert_eq!(tracker.open_ns(50), Some(30));
        assert_eq!(tracker.finish(), (vec![], 0));
    }

    #[test]
    fn those_between_two_looks_are_counted() {
        let mut tracker = GpTracker::new(1);
        look(&mut tracker, 0, 7, false, 0);
        look(&mut tracker, 10, 9, false, 0); // 7 and 8 came and went
        look(&mut tracker, 20, 10, true, 1); // 9 too
        look(&mut tracker, 30, 13, false, 0); // 11 and 12 too
        let (ended, missed) = tracker.finish();
        assert_eq!((ended.len(), missed), (1, 5));
    }

    #[test]
    fn the_wrap_of_a_young_kernel_is_no_gap() {
        let last = u64::MAX >> 2;
        let mut tracker = GpTracker::new(1);
        look(&mut tracker, 0, last - 1, false, 0);
        look(&mut tracker, 10, last, true, 1);
        look(&mut tracker, 20, 0, true, 1);
        look(&mut tracker, 30, 1, false, 0);
        assert_eq!(tracker.missed, 1);
        look(&mut tracker, 40, last - 1, false, 0); // back: no kernel does that
        look(&mut tracker, 50, 3, false, 0); // five, over the wrap
        let (ended, missed) = tracker.finish();
        assert_eq!((ended.len(), missed), (2, 6));
    }

    #[test]
    fn steps_that_no_kernel_makes_are_told_and_count_for_nothing() {
        let mut tracker = GpTracker::new(1);
        let mut see = |t_ns, sequence| tracker.see(t_ns, GpState { sequence, open: false, holdouts: 0 });
        assert_eq!(see(0, 7), None, "the first look has no step");
        assert_eq!(see(1_000_000, 1_007), None, "one a microsecond");
        let leap = see(2_000_000, 2_008).unwrap();
        assert_eq!((leap.value, leap.most), (1_001, 1_000));
        assert_eq!(see(3_000_000, 2_007).unwrap().value, -1);
        assert_eq!(see(4_000_000, u64::MAX >> 2).unwrap().value, -2_008);
        assert_eq!(see(5_000_000, 1), None, "over the wrap");
        assert_eq!(tracker.finish().1, 1_002);
    }

    #[test]
    fn a_guest_that_shows_another_at_every_look_fills_no_memory() {
        let mut tracker = GpTracker::new(1);
        for look in 0..=GRACE_PERIODS as u64 + 10 {
            tracker.see(look, GpState { sequence: look, open: true, holdouts: 1 });
        }
        let (ended, missed) = tracker.finish();
        // Nobody saw the first one begin, nor the last one end.
        assert_eq!((ended.len(), missed), (GRACE_PERIODS, 9));
    }

    #[test]
    fn a_bit_that_is_set_again_by_no_kernel_does_no_harm() {
        let mut tracker = GpTracker::new(1);
        look(&mut tracker, 0, 0, false, 0);
        look(&mut tracker, 1, 0, true, 1);
        look(&mut tracker, 2, 0, true, 0);
        look(&mut tracker, 3, 0, true, u64::MAX);
        look(&mut tracker, 4, 1, false, 0);
        assert_eq!(tracker.finish().0[0].cleared_ns, [Some(2)]);
    }
}
