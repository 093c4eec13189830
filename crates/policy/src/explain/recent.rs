//! A VM's last seconds: keeps their samples, says how closely to look, and judges them. For everything that watches a VM all
//! the time.

use std::collections::VecDeque;

use super::{Evidence, Verdict, judge};
use crate::canary::{CLOSE_BEAT_NS, CLOSE_NS, Canary};
use crate::sample::Sample;

/// A verdict needs this much of close looks, ns: eight periods of a quota of half a second. It then comes within 10 s of the
/// incident: up to 1 s until the canary sees it, and these.
pub const ENOUGH_NS: u64 = 4_000_000_000;

/// What is known of now.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nothing is wrong.
    Quiet,
    /// Something is wrong, and it is being looked at, for so long by now.
    Looking {
        /// For so long, ns.
        for_ns: u64,
    },
    /// What is wrong. It can still change while more is seen.
    Known(Verdict),
}

/// The last seconds.
#[derive(Debug, Default)]
pub struct Recent {
    samples: VecDeque<Sample>,
    canary: Canary,
    is_close: bool,
}

impl Recent {
    /// Takes in the next sample, which `fill` makes in place of an old one. Allocates nothing once ten seconds are kept.
    pub fn push_with(&mut self, fill: impl FnOnce(&mut Sample)) {
        let newest_ns = self.last().map_or(0, |sample| sample.at_ns);
        let oldest_ns = self.samples.front().map_or(newest_ns, |sample| sample.at_ns);
        let mut sample = match newest_ns.saturating_sub(oldest_ns) >= CLOSE_NS {
            true => self.samples.pop_front().unwrap_or_default(),
            false => Sample::default(),
        };
        fill(&mut sample);
        self.is_close = self.canary.is_close_after(&sample);
        self.samples.push_back(sample);
    }

    /// The newest sample.
    pub fn last(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// The samples, in the order of time.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.samples.iter()
    }

    /// Whether to look closely from now on.
    pub fn is_close(&self) -> bool {
        self.is_close
    }

    /// What is known of now.
    pub fn state(&self) -> State {
        if !self.is_close {
            return State::Quiet;
        }
        let close: Vec<&Sample> =
            self.samples.iter().rev().take_while(|sample| sample.beat_ns <= CLOSE_BEAT_NS).collect();
        let for_ns = close.iter().fold(0_u64, |sum, sample| sum.saturating_add(sample.span_ns));
        if for_ns < ENOUGH_NS {
            return State::Looking { for_ns };
        }
        let verdict = judge(&Evidence::of(close.into_iter().rev()));
        if verdict.is_quiet() { State::Quiet } else { State::Known(verdict) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Cause;

    const SECOND: u64 = 1_000_000_000;

    fn fill(at_s: u64, beat_ms: u64, waits: bool) -> impl FnOnce(&mut Sample) {
        move |sample| {
            *sample = Sample {
                at_ns: at_s * SECOND,
                span_ns: SECOND,
                beat_ns: beat_ms * 1_000_000,
                memory_wait_ns: Some(if waits { SECOND / 2 } else { 0 }),
                ..Sample::default()
            }
        }
    }

    #[test]
    fn trouble_is_looked_at_and_then_known() {
        let mut recent = Recent::default();
        recent.push_with(fill(1, 50, false));
        assert_eq!((recent.state(), recent.is_close()), (State::Quiet, false));
        recent.push_with(fill(2, 50, true));
        assert_eq!((recent.state(), recent.is_close()), (State::Looking { for_ns: 0 }, true));
        (3..6).for_each(|at_s| recent.push_with(fill(at_s, 1, true)));
        assert_eq!(recent.state(), State::Looking { for_ns: 3 * SECOND });
        recent.push_with(fill(6, 1, true));
        let State::Known(verdict) = recent.state() else { panic!("{:?}", recent.state()) };
        assert_eq!(verdict.findings[0].cause, Cause::OwnMemory);
        (7..20).for_each(|at_s| recent.push_with(fill(at_s, 1, false)));
        assert_eq!((recent.state(), recent.is_close()), (State::Quiet, false));
        assert!(recent.samples.len() <= 12, "{}", recent.samples.len());
    }
}
