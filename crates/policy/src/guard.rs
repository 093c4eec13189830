//! Whether acting pays: gives up when throughput falls.
//!
//! Before anything is moved throughput is watched for a while under the same disturbance; then it is acted, and compared.
//! Medians of readings are compared, so a burst decides nothing. What falls because the workload ended falls, too, and acting
//! stops then: nothing is lost by that. After a while it is tried again, later each time it fails. And since what throughput
//! is without acting grows old, it is watched again now and then.
//!
//! What the caller must do: hand in rates, what was done over the time since the last reading, for its own readings come late
//! on a machine that is short of CPU; and read at equal distances of time, more or less, 250 ms for what is said below.

use crate::window::Window;

/// Readings that say what throughput is without acting...
const WATCHED: usize = 4;
/// ... and as many with it make a judgement.
const READINGS: usize = 8;
/// After so many readings with it throughput without is watched again: a minute of 250 ms each, a second of which is watched.
const AGAIN: u64 = 240;
/// Below this share of what it was without acting, in thousandths, throughput has fallen: less is within its noise.
const FALLEN_PERMILLE: u128 = 850;
/// Readings to wait after the first failure; doubled after each further one.
const FIRST_WAIT: u64 = 32;
/// The longest wait, in readings.
const LONGEST_WAIT: u64 = 2048;

/// What to do, as far as throughput tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Do not act: it is being learnt what throughput is without.
    Watch,
    /// Act.
    Act,
    /// Do not act: it did not pay.
    Rest,
}

/// The judge of throughput.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    without: Window,
    with: Window,
    advice: Advice,
    wait: u64,
    left: u64,
    /// Readings since it acts.
    acted: u64,
    failures: u64,
}

impl Default for Guard {
    fn default() -> Guard {
        Guard {
            without: Window::default(),
            with: Window::default(),
            advice: Advice::Watch,
            wait: FIRST_WAIT,
            left: 0,
            acted: 0,
            failures: 0,
        }
    }
}

impl Guard {
    /// Takes in the rate at which things were done since the last reading (I/Os or bytes a second), and whether something is
    /// wrong that acting could help with. Readings where nothing is wrong are not compared.
    pub fn reading(&mut self, rate: u64, wrong: bool) -> Advice {
        match self.advice {
            Advice::Rest => {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    self.begin(Advice::Watch);
                }
            }
            _ if !wrong => {}
            Advice::Watch => {
                self.without.push(rate);
                if self.without.len() >= WATCHED {
                    (self.advice, self.acted) = (Advice::Act, 0);
                }
            }
            Advice::Act => {
                self.with.push(rate);
                self.acted += 1;
                if self.with.len() >= READINGS {
                    self.judge();
                }
            }
        }
        self.advice
    }

    fn judge(&mut self) {
        let (with, without) = (self.with.quantile(50).unwrap_or(0), self.without.quantile(50).unwrap_or(0));
        self.with.clear();
        if u128::from(with) * 1000 >= u128::from(without) * FALLEN_PERMILLE {
            self.wait = FIRST_WAIT;
            if self.acted >= AGAIN {
                self.begin(Advice::Watch);
            }
            return;
        }
        self.failures += 1;
        self.left = self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        self.begin(Advice::Rest);
    }

    fn begin(&mut self, advice: Advice) {
        self.without.clear();
        self.with.clear();
        self.advice = advice;
    }

    /// What to do now.
    pub fn advice(&self) -> Advice {
        self.advice
    }

    /// How often it was given up.
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(guard: &mut Guard, times: usize, rate: u64) -> Advice {
        (0..times).map(|_| guard.reading(rate, true)).last().unwrap()
    }

    #[test]
    fn it_watches_then_acts_and_goes_on_while_it_pays() {
        let mut guard = Guard::default();
        assert_eq!(feed(&mut guard, WATCHED - 1, 100), Advice::Watch);
        assert_eq!(feed(&mut guard, 1, 100), Advice::Act);
        assert_eq!(feed(&mut guard, 100, 180), Advice::Act);
        assert_eq!(guard.failures(), 0);
    }

    #[test]
    fn it_gives_up_when_throughput_falls_and_waits_longer_each_time() {
        let mut guard = Guard::default();
        let mut rests = Vec::new();
        for _ in 0..3 {
            feed(&mut guard, WATCHED, 100);
            assert_eq!(feed(&mut guard, READINGS, 60), Advice::Rest);
            let rest = (1..2 * LONGEST_WAIT).find(|_| guard.reading(100, true) == Advice::Watch).unwrap();
            rests.push(rest);
        }
        assert_eq!(rests, [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]);
        assert_eq!(guard.failures(), 3);
    }

    #[test]
    fn what_it_is_without_is_watched_again_and_counts_from_then_on() {
        let mut guard = Guard::default();
        feed(&mut guard, WATCHED, 100);
        let watching =
            |guard: &mut Guard| (1..10 * AGAIN).find(|_| guard.reading(180, true) == Advice::Watch).unwrap();
        assert_eq!(watching(&mut guard), AGAIN);
        // The workload has become faster by itself: what was a gain is a loss now.
        feed(&mut guard, WATCHED, 400);
        assert_eq!(feed(&mut guard, READINGS, 180), Advice::Rest);
    }

    #[test]
    fn rates_at_the_end_of_the_range_do_not_overflow() {
        let mut guard = Guard::default();
        feed(&mut guard, WATCHED, u64::MAX);
        assert_eq!(feed(&mut guard, READINGS, u64::MAX), Advice::Act);
    }

    #[test]
    fn a_bad_moment_and_a_calm_time_decide_nothing() {
        let mut guard = Guard::default();
        feed(&mut guard, WATCHED, 100);
        for i in 0..80 {
            assert_eq!(guard.reading(if i % 3 == 0 { 0 } else { 100 }, true), Advice::Act);
        }
        assert_eq!((0..100).map(|_| guard.reading(0, false)).last(), Some(Advice::Act));
    }
}
