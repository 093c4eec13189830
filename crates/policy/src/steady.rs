//! Decides which vCPUs a guest's scheduler should use, by their steal: the time that each waited for a pCPU.
//!
//! A vCPU with much steal is avoided for a while, provided that another vCPU has little. A vCPU on which nothing runs
//! has no steal, so its steal does not show when it can be used again. It is therefore tried again after a fixed time.
//!
//! Source: the idea of IBM's preferred CPUs (kernel list, 2026) and of steady CPUs in `scx_lavd`. The constants are
//! estimates of our own.

/// When to avoid a vCPU, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A vCPU with more steal than this is avoided, in thousandths of the time.
    pub steal_permille: u64,
    /// How long a vCPU is avoided, ns.
    pub retry_ns: u64,
}

/// State of a vCPU, kept from one look to the next.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// The vCPU's steal since it started, at the last look.
    stolen_ns: u64,
    /// The vCPU is avoided until then.
    left_until_ns: Option<u64>,
}

/// Makes the decisions for one guest of at most 64 vCPUs.
#[derive(Clone, Debug)]
pub struct Steady {
    settings: Settings,
    pasts: Vec<Past>,
    looked_ns: u64,
}

impl Steady {
    /// Decisions for a guest from `now_ns` on. `stolen_ns` is the steal of each vCPU since it started.
    ///
    /// # Panics
    /// If there are more than 64 vCPUs.
    pub fn new(settings: Settings, stolen_ns: &[u64], now_ns: u64) -> Steady {
        assert!(stolen_ns.len() <= 64, "a bit for each vCPU");
        let past = |&stolen_ns| Past { stolen_ns, left_until_ns: None };
        Steady { settings, pasts: stolen_ns.iter().map(past).collect(), looked_ns: now_ns }
    }

    /// Takes each vCPU's steal since it started. Returns the vCPUs to use, a bit for each: those that are not avoided,
    /// or all if every vCPU would be avoided.
    ///
    /// # Panics
    /// If the number of vCPUs is not the number given to [`Steady::new`].
    pub fn look(&mut self, at_ns: u64, stolen_ns: &[u64]) -> u64 {
        assert_eq!(stolen_ns.len(), self.pasts.len(), "a guest's vCPUs do not change");
        let elapsed_ns = at_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, at_ns));
        let mut used = 0;
        for (v, (past, &stolen_ns)) in self.pasts.iter_mut().zip(stolen_ns).enumerate() {
            let more_ns = stolen_ns.saturating_sub(std::mem::replace(&mut past.stolen_ns, stolen_ns));
            past.left_until_ns = past.left_until_ns.filter(|until_ns| at_ns < *until_ns);
            let is_much = u128::from(more_ns) * 1000
                > u128::from(elapsed_ns) * u128::from(self.settings.steal_permille);
            if is_much {
                past.left_until_ns = Some(at_ns.saturating_add(self.settings.retry_ns));
            }
            used |= u64::from(past.left_until_ns.is_none()) << v;
        }
        if used == 0 { u64::MAX >> (64 - self.pasts.len().max(1)) } else { used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady() -> Steady {
        Steady::new(Settings { steal_permille: 100, retry_ns: 500 }, &[1_000, 7, 0], 0)
    }

    #[test]
    fn a_vcpu_with_steal_is_left_alone_for_a_while() {
        let mut steady = steady();
        assert_eq!(steady.look(100, &[1_010, 7, 0]), 0b111, "a tenth is not more than a tenth");
        assert_eq!(steady.look(200, &[1_010, 18, 0]), 0b101);
        assert_eq!(steady.look(300, &[1_010, 18, 0]), 0b101, "its silence means nothing");
        assert_eq!(steady.look(699, &[1_010, 18, 0]), 0b101);
        assert_eq!(steady.look(700, &[1_010, 18, 0]), 0b111);
    }

    #[test]
    fn where_all_have_steal_all_are_used() {
        let mut steady = steady();
        assert_eq!(steady.look(100, &[1_090, 97, 90]), 0b111);
        assert_eq!(steady.look(200, &[1_180, 187, 90]), 0b111, "nobody is free yet");
        assert_eq!(steady.look(600, &[1_580, 587, 90]), 0b100);
    }
}
