//! Back-pressure: decides how long a caller that defers frees has to wait, so that the memory that waits for grace
//! periods stays bounded.
//!
//! Deferred frees are unbounded by nature: the caller returns at once, and the memory comes back when a grace period
//! ends. Below a low mark of outstanding bytes, no caller waits. Above it, a caller waits in proportion to the
//! outstanding bytes and to its own share of them. So callers with equal shares wait equally long, and a caller that
//! defers nothing never waits. From a high mark on, a caller with at least an equal share waits for a whole grace
//! period instead. A caller in atomic context cannot sleep, so it never waits.
//!
//! Bounds: a wait is at most [`Settings::longest_ns`], and so are the waits of all callers together.

/// When callers wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Outstanding bytes up to which no caller waits.
    pub low_bytes: u64,
    /// Outstanding bytes from which on waits are longest. At least `low_bytes`.
    pub high_bytes: u64,
    /// The longest wait, ns: that of a caller to which all the bytes of the high mark belong.
    pub longest_ns: u64,
    /// From `high_bytes` on, callers with at least an equal share wait for a grace period.
    pub synchronize: bool,
}

/// The caller that frees, and how many bytes wait for grace periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Outstanding bytes of all callers.
    pub total_bytes: u64,
    /// Outstanding bytes of this caller.
    pub own_bytes: u64,
    /// Number of callers with outstanding bytes, including this one.
    pub callers: u64,
    /// Whether the caller must not sleep, because it holds a spinlock, or interrupts or preemption are off.
    pub is_atomic: bool,
}

/// What the caller has to do before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on at once.
    Go,
    /// Sleep for this time, ns.
    Wait(u64),
    /// Wait for a grace period (`synchronize_rcu`).
    Synchronize,
}

impl Settings {
    /// What the caller has to do after it has deferred frees.
    pub fn answer(&self, caller: &Caller) -> Answer {
        let Caller { total_bytes, own_bytes, callers, is_atomic } = *caller;
        if is_atomic || own_bytes == 0 || total_bytes <= self.low_bytes {
            return Answer::Go;
        }
        let own = u128::from(own_bytes.min(total_bytes));
        let has_equal_share = own * u128::from(callers) >= u128::from(total_bytes);
        if self.synchronize && total_bytes >= self.high_bytes && has_equal_share {
            return Answer::Synchronize;
        }
        let span = self.high_bytes.saturating_sub(self.low_bytes).max(1);
        let over = (total_bytes - self.low_bytes).min(span);
        // In two steps, so that no product exceeds 128 bits.
        let urgent_ns = u128::from(self.longest_ns) * u128::from(over) / u128::from(span);
        let wait_ns = urgent_ns * own / u128::from(total_bytes);
        // At most longest_ns, so it fits.
        if wait_ns == 0 { Answer::Go } else { Answer::Wait(wait_ns as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings =
        Settings { low_bytes: 1_000, high_bytes: 3_000, longest_ns: 8_000_000, synchronize: true };

    fn answer(total_bytes: u64, own_bytes: u64, callers: u64) -> Answer {
        SETTINGS.answer(&Caller { total_bytes, own_bytes, callers, is_atomic: false })
    }

    fn wait_ns(answer: Answer) -> u64 {
        match answer {
            Answer::Go => 0,
            Answer::Wait(ns) => ns,
            Answer::Synchronize => panic!("a whole grace period"),
        }
    }

    #[test]
    fn nobody_waits_up_to_the_low_mark() {
        assert_eq!(answer(0, 0, 0), Answer::Go);
        assert_eq!(answer(1_000, 1_000, 1), Answer::Go);
        assert_eq!(answer(1_001, 1_001, 1), Answer::Wait(4_000));
    }

    #[test]
    fn waits_grow_with_what_is_outstanding_and_with_the_share_of_it() {
        assert_eq!(answer(2_000, 2_000, 1), Answer::Wait(4_000_000));
        assert_eq!(answer(2_000, 1_000, 2), Answer::Wait(2_000_000));
        assert_eq!(answer(2_000, 500, 2), Answer::Wait(1_000_000));
        assert_eq!(answer(2_000, 0, 2), Answer::Go, "it has deferred nothing");
        assert_eq!(answer(2_900, 1, 2), Answer::Wait(2_620));
    }

    #[test]
    fn from_the_high_mark_on_the_offenders_wait_for_a_grace_period_and_the_others_do_not() {
        assert_eq!(answer(3_000, 1_500, 2), Answer::Synchronize);
        assert_eq!(answer(3_000, 1_499, 2), Answer::Wait(3_997_333));
        assert_eq!(answer(2_999, 2_999, 1), Answer::Wait(7_996_000));
        let waits = Settings { synchronize: false, ..SETTINGS };
        let caller = Caller { total_bytes: 9_000, own_bytes: 9_000, callers: 1, is_atomic: false };
        assert_eq!(waits.answer(&caller), Answer::Wait(8_000_000), "bounded, whatever is outstanding");
    }

    #[test]
    fn who_must_not_sleep_never_waits() {
        let caller = Caller { total_bytes: u64::MAX, own_bytes: u64::MAX, callers: 1, is_atomic: true };
        assert_eq!(SETTINGS.answer(&caller), Answer::Go);
    }

    #[test]
    fn all_callers_together_wait_no_longer_than_one_to_whom_everything_belongs() {
        let waits = Settings { synchronize: false, longest_ns: u64::MAX, ..SETTINGS };
        for total in [1_001, 1_500, 2_999, 3_000, 1 << 60] {
            let shares = [total / 2, total / 3, total / 7, total - total / 2 - total / 3 - total / 7];
            let each = shares.map(|own| {
                wait_ns(waits.answer(&Caller {
                    total_bytes: total,
                    own_bytes: own,
                    callers: 4,
                    is_atomic: false,
                }))
            });
            let alone = wait_ns(waits.answer(&Caller {
                total_bytes: total,
                own_bytes: total,
                callers: 1,
                is_atomic: false,
            }));
            let sum: u128 = each.iter().map(|ns| u128::from(*ns)).sum();
            assert!(sum <= u128::from(alone) && u128::from(alone) < sum + 4, "{total}: {each:?}, {alone}");
            assert!(each.is_sorted_by(|a, b| a >= b) || shares[3] > shares[2], "a larger share waits longer");
        }
    }

    #[test]
    fn marks_that_coincide_are_one_step() {
        let step = Settings { high_bytes: 1_000, synchronize: false, ..SETTINGS };
        let caller =
            |total_bytes| Caller { total_bytes, own_bytes: total_bytes, callers: 1, is_atomic: false };
        assert_eq!(step.answer(&caller(1_000)), Answer::Go);
        assert_eq!(step.answer(&caller(1_001)), Answer::Wait(8_000_000));
    }
}
