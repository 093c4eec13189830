//! How the guest's clock and the host's are related, so that an oracle in the guest can be told what the host is going to do.
//!
//! Under emulation the guest's time stamp counter is the host's plus a constant (QEMU's `cpu_get_ticks`); but each kernel has
//! measured its frequency for itself, and they differ by up to some hundred millionths. So the relation is a line, through two
//! fixes that lie seconds apart. A fix is the fastest of some exchanges: the guest's time lies between the host's before and
//! after.

use reprieve_study::units::SECOND_NS;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Of the host, ns.
    pub host_ns: u64,
    /// Of the guest, ns.
    pub guest_ns: u64,
    /// By how much it may be off, either way, ns.
    pub within_ns: u64,
}

impl Fix {
    /// The best of some exchanges: the host's time before, the guest's, the host's after.
    pub fn best(exchanges: &[(u64, u64, u64)]) -> Option<Fix> {
        let took_ns = |exchange: &&(u64, u64, u64)| exchange.2.saturating_sub(exchange.0);
        let (before_ns, guest_ns, after_ns) = *exchanges.iter().min_by_key(took_ns)?;
        let within_ns = after_ns.saturating_sub(before_ns) / 2;
        Some(Fix { host_ns: before_ns + within_ns, guest_ns, within_ns })
    }
}

/// Fixes closer than this tell less of the frequencies than that these are equal, ns.
const APART_NS: u64 = SECOND_NS;

/// The line.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    first: Fix,
    last: Fix,
}

impl Clocks {
    /// From one fix: the clocks are taken to be equally fast.
    pub fn new(first: Fix) -> Clocks {
        Clocks { first, last: first }
    }

    /// With a later fix. One that does not lie on the line starts a new one: a kernel measures the frequency of its counter
    /// again soon after it has booted, and its clock goes otherwise from then on.
    pub fn fix(&mut self, next: Fix) {
        let off_ns = self.guest_ns(next.host_ns).abs_diff(next.guest_ns);
        let has_line = self.apart_ns() >= APART_NS;
        if has_line && off_ns > self.within_ns(next.host_ns) + next.within_ns {
            self.first = self.last;
        }
        self.last = next;
    }

    fn apart_ns(&self) -> u64 {
        self.last.host_ns.saturating_sub(self.first.host_ns)
    }

    /// How much faster the guest's clock is, 1 for as fast.
    fn rate(&self) -> f64 {
        if self.apart_ns() < APART_NS {
            return 1.0;
        }
        self.last.guest_ns.saturating_sub(self.first.guest_ns) as f64 / self.apart_ns() as f64
    }

    /// The guest's time at a time of the host's, not before the last fix.
    pub fn guest_ns(&self, host_ns: u64) -> u64 {
        let since_ns = host_ns.saturating_sub(self.last.host_ns);
        // The guest's time is any number that it says.
        self.last.guest_ns.saturating_add((since_ns as f64 * self.rate()) as u64)
    }

    /// By how much that may be off at a time of the host's, ns; not known, and `u64::MAX`, without two fixes that lie apart.
    pub fn within_ns(&self, host_ns: u64) -> u64 {
        if self.apart_ns() < APART_NS {
            return u64::MAX;
        }
        let both_ns = (self.first.within_ns + self.last.within_ns) as f64;
        let since_ns = host_ns.saturating_sub(self.last.host_ns) as f64;
        self.last.within_ns + (both_ns * since_ns / self.apart_ns() as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_of_a_guest_s_is_borne_and_times_stay_in_order() {
        let second = SECOND_NS;
        for (first_ns, last_ns) in [(u64::MAX, u64::MAX - 5), (0, u64::MAX), (u64::MAX, 0)] {
            let mut clocks = Clocks::new(Fix { host_ns: second, guest_ns: first_ns, within_ns: 1_000 });
            clocks.fix(Fix { host_ns: 3 * second, guest_ns: last_ns, within_ns: 1_000 });
            assert!(clocks.guest_ns(4 * second) <= clocks.guest_ns(5 * second));
            assert!(clocks.guest_ns(4 * second) >= last_ns);
        }
    }

    #[test]
    fn the_fastest_exchange_is_the_fix() {
        let fix = Fix::best(&[(100, 5_000, 900), (1_000, 5_900, 1_200), (2_000, 7_000, 2_900)]).unwrap();
        assert_eq!(fix, Fix { host_ns: 1_100, guest_ns: 5_900, within_ns: 100 });
        assert_eq!(Fix::best(&[]), None);
    }

    #[test]
    fn clocks_of_different_speed_are_followed() {
        let second = SECOND_NS;
        let at = |host_ns: u64, guest_ns: u64| Fix { host_ns, guest_ns, within_ns: 1_000 };
        let mut clocks = Clocks::new(at(10 * second, 0));
        assert_eq!(clocks.guest_ns(12 * second), 2 * second);
        // The guest's clock gains 500 us a second.
        clocks.fix(at(14 * second, 4 * second + 2_000_000));
        assert_eq!(clocks.guest_ns(24 * second), 14 * second + 7_000_000);
        assert_eq!((clocks.within_ns(14 * second), clocks.within_ns(18 * second)), (1_000, 3_000));
        // From 20 s on it does not gain any more, as a fix 2 s later shows.
        clocks.fix(at(20 * second, 10 * second + 5_000_000));
        clocks.fix(at(22 * second, 12 * second + 5_000_000));
        assert_eq!(clocks.guest_ns(32 * second), 22 * second + 5_000_000);
        // Fixes that lie close together tell nothing of the speed.
        let mut close = Clocks::new(at(10 * second, 0));
        close.fix(at(10 * second + 1_000, 1_500));
        assert_eq!(close.guest_ns(11 * second + 1_000), second + 1_500);
        assert_eq!(close.within_ns(11 * second), u64::MAX);
    }
}
