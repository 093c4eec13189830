//! Which runs there are, and in which guest each happens.

use rand::seq::SliceRandom;
use reprieve_study::statistics;

use crate::causes::{Cause, FINGERPRINTS, GRACE_SETTINGS, MATRIX, STRENGTHS};
use crate::draw::{Case, SETTINGS};

/// Repetitions of each setting of the fingerprint.
pub const FINGERPRINT_REPEAT: usize = 10;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Repetitions of each strength of each cause, over all guests.
    pub repeat: usize,
    /// Repetitions of each setting of the fingerprint.
    pub fingerprint_repeat: usize,
    /// The causes; all if empty.
    pub causes: Vec<Cause>,
    /// Of the order.
    pub seed: u64,
}

/// The runs of each of so many guests, in an order that follows from the seed, so that no cause has a part of the day to itself.
pub fn plan(wanted: &Wanted, guests: usize) -> Vec<Vec<Case>> {
    let mut plan = vec![Vec::new(); guests];
    for (number, row) in MATRIX.iter().chain(&FINGERPRINTS).enumerate() {
        if !wanted.causes.is_empty() && !wanted.causes.contains(&row.cause) {
            continue;
        }
        let (strengths, repeat) = match row.cause {
            Cause::FingerprintQuota => (SETTINGS.len(), wanted.fingerprint_repeat),
            Cause::FingerprintSlice => (STRENGTHS, wanted.fingerprint_repeat),
            Cause::GracePeriods => (GRACE_SETTINGS.len(), wanted.fingerprint_repeat),
            _ => (STRENGTHS, wanted.repeat),
        };
        for strength in 0..strengths {
            for repetition in 0..repeat {
                // Each guest and each strength has busy and half-idle runs.
                let is_busy = (repetition + repetition / guests + strength).is_multiple_of(2);
                let case = Case { cause: row.cause, strength, repetition, is_busy };
                plan[(repetition + strength + number) % guests].push(case);
            }
        }
    }
    for (guest, cases) in plan.iter_mut().enumerate() {
        cases.shuffle(&mut statistics::stream(wanted.seed, &format!("order {guest}")));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_dealt_once_and_half_of_them_are_busy() {
        let wanted = Wanted { repeat: 20, fingerprint_repeat: 10, causes: Vec::new(), seed: 1 };
        let plan = plan(&wanted, 4);
        let of = |cause: Cause| plan.iter().flatten().filter(move |case| case.cause == cause);
        for row in &MATRIX {
            assert_eq!(of(row.cause).count(), 60);
            assert_eq!(of(row.cause).filter(|case| case.is_busy).count(), 30);
        }
        assert_eq!(of(Cause::FingerprintQuota).count(), 60);
        assert!(plan.iter().all(|cases| cases.iter().filter(|case| case.is_busy).count() * 3 > cases.len()));
    }
}
