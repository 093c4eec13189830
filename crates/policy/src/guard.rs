//! Judges by throughput whether moving tasks pays, and advises to stop if it does not.
//!
//! First it measures throughput for a while without moves, under the same disturbance; then with moves, and compares.
//! It compares medians of readings, so a burst decides nothing. If throughput falls because the workload ended, it
//! advises to stop as well, which does no harm. After a failure it tries again later, and doubles the wait each time.
//! The measure without moves grows old, so it is taken again once a minute.
//!
//! The caller must hand in rates (the work done divided by the time since the last reading), because its readings come
//! late on a machine short of CPU. It should read at regular intervals; the times named below assume 250 ms.

use crate::window::Window;

/// Readings that make a measure without moves.
const WATCHED: usize = 4;
/// Readings that make a measure with moves.
const READINGS: usize = 8;
/// Readings with moves after which the measure without moves is taken again: one minute, of which one second is
/// without.
const AGAIN: u64 = 240;
/// Throughput has fallen if it is below this share of the measure without moves, in thousandths. Smaller losses are
/// noise.
const FALLEN_PERMILLE: u128 = 850;
/// Readings to wait after the first failure; doubled after each further one.
const FIRST_WAIT: u64 = 32;
/// The longest wait, in readings.
const LONGEST_WAIT: u64 = 2048;

/// What to do, judged by throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Move nothing: throughput without moves is being measured.
    Watch,
    /// Move tasks.
    Act,
    /// Move nothing: moves did not pay.
    Rest,
}

/// Judges throughput with moves against throughput without.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    without: Window,
    with: Window,
    advice: Advice,
    /// The next wait after a failure, in readings.
    wait: u64,
    /// What is left of the current wait, in readings.
    left: u64,
    /// Readings since the last measure without moves.
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
    /// Takes in the rate since the last reading (I/Os or bytes a second), and whether vCPUs are being descheduled
    /// (`wrong`). Readings while nothing is wrong are not compared.
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

    /// How often moves did not pay.
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
    fn throughput_without_moves_is_measured_again_and_replaces_the_old_measure() {
        let mut guard = Guard::default();
        feed(&mut guard, WATCHED, 100);
        let watching =
            |guard: &mut Guard| (1..10 * AGAIN).find(|_| guard.reading(180, true) == Advice::Watch).unwrap();
        assert_eq!(watching(&mut guard), AGAIN);
        // The workload has become faster by itself: the former gain is now a loss.
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
