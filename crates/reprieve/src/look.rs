//! A look at this VM from inside, a sample a second: frugal while nothing is wrong, close once something is. For every verb that
//! watches all the time.

use reprieve_linux::clock;
use reprieve_linux::observe::{Collector, Pace};
use reprieve_linux::proc::{self, ProcRoot};
use reprieve_linux::signals::Interrupt;
use reprieve_policy::explain::Recent;
use reprieve_policy::sample::Tier;
use reprieve_study::units::SECOND_NS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;

/// The collector, and the last seconds.
pub struct Look {
    collector: Collector,
    recent: Recent,
}

impl Look {
    /// Begins on all CPUs that this process may use, with no tier above this one.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn begin(root: &ProcRoot, highest: Tier) -> Result<Look, Failure> {
        let collector = Collector::begin_in(root, &proc::allowed_cpus()?, Pace::Frugal, highest)?;
        Ok(Look { collector, recent: Recent::default() })
    }

    /// Takes a sample, and looks as closely as it asks for from now on.
    pub fn sample(&mut self) {
        self.recent.push_with(|sample| self.collector.sample(sample));
        let pace = if self.recent.is_close() { Pace::Close } else { Pace::Frugal };
        if pace != self.collector.pace() {
            self.collector.set_pace(pace);
        }
    }

    /// True if `membarrier` can time grace periods on this machine.
    pub fn times_grace_periods(&self) -> bool {
        self.collector.times_grace_periods()
    }

    /// The last seconds.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }
}

/// When samples are due: a second after the last one was, and half a second from now at least, so that none is short after a delay.
pub struct Seconds {
    due_ns: u64,
}

impl Seconds {
    /// From now on.
    pub fn begin() -> Seconds {
        Seconds { due_ns: clock::now_ns() }
    }

    /// When the next one is due, ns.
    pub fn next_ns(&mut self) -> u64 {
        self.due_ns = (self.due_ns + SECOND_NS).max(clock::now_ns() + SECOND_NS / 2);
        self.due_ns
    }
}

/// Waits until this time, or the end.
pub fn wait(until_ns: u64, interrupt: &Interrupt) {
    loop {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        if left_ns == 0 || interrupt.is_raised() {
            return;
        }
        let _ = poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&timeout(left_ns)));
    }
}

/// So much time, for poll(2).
pub fn timeout(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_due_a_second_after_the_last_one_and_never_soon_after_a_delay() {
        let mut seconds = Seconds::begin();
        let first_ns = seconds.next_ns();
        assert_eq!(seconds.next_ns(), first_ns + SECOND_NS);
        seconds.due_ns = 0;
        let asked_ns = clock::now_ns();
        let due_ns = seconds.next_ns();
        assert!((asked_ns + SECOND_NS / 2..=clock::now_ns() + SECOND_NS / 2).contains(&due_ns));
    }
}
