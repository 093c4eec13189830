//! The share of the last second for which a vCPU was off.
//!
//! A share, not a count of gaps: one late beat a second is harmless, 25 ms out of every 60 ms are not. The second is
//! kept in parts, so the cost does not depend on the number of gaps.

use crate::SECOND_NS;

/// The past that counts, ns.
const SPAN_NS: u64 = SECOND_NS;
/// Length of a part, ns.
const PART_NS: u64 = SPAN_NS / 16;
/// Parts kept: a whole second and the part that has just begun, so an event that occurs once a second is always in
/// them.
const PARTS: usize = 17;

/// The recent time off of a vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    /// For each part: its number since time 0, and the time off of the gaps that ended in it, ns.
    parts: [(u64, u64); PARTS],
}

impl Recent {
    /// Takes in a gap that ended at `back_ns` and lasted `off_ns`.
    pub fn push(&mut self, back_ns: u64, off_ns: u64) {
        let number = back_ns / PART_NS;
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.0 != number {
            *part = (number, 0);
        }
        part.1 = part.1.saturating_add(off_ns).min(SPAN_NS);
    }

    /// Time off in the last second, in thousandths. Counts up to a sixteenth of a second more.
    pub fn off_permille(&self, now_ns: u64) -> u64 {
        let now = now_ns / PART_NS;
        let recent = self.parts.iter().filter(|(number, _)| now.saturating_sub(*number) < PARTS as u64);
        let off_ns: u64 = recent.map(|(_, off_ns)| *off_ns).sum();
        (off_ns.saturating_mul(1000) / SPAN_NS).min(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_counts_time_and_forgets() {
        let mut recent = Recent::default();
        (1..=16).for_each(|i| recent.push(i * 60_000_000, 25_000_000));
        assert_eq!(recent.off_permille(SECOND_NS), 400);
        assert_eq!(recent.off_permille(3 * SECOND_NS), 0);
    }

    #[test]
    fn a_gap_once_a_second_is_always_counted() {
        let mut recent = Recent::default();
        for ms in 1..5_000 {
            if ms % 1_000 == 1 {
                recent.push(ms * 1_000_000, 7_000_000);
            }
            let share = recent.off_permille(ms * 1_000_000);
            assert!((7..=14).contains(&share), "{ms}: {share}");
        }
    }

    #[test]
    fn many_gaps_count_as_much_as_few() {
        let mut recent = Recent::default();
        (1..=2_000).for_each(|i| recent.push(i * 2_000_000, 1_000_000));
        let share = recent.off_permille(4 * SECOND_NS);
        assert!((490..=540).contains(&share), "{share}");
    }

    #[test]
    fn a_gap_of_hours_does_not_overflow() {
        let mut recent = Recent::default();
        (0..3).for_each(|_| recent.push(u64::MAX, u64::MAX));
        assert_eq!(recent.off_permille(u64::MAX), 1000);
    }
}
