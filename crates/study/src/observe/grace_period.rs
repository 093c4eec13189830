//! Grace periods, and which descheduled vCPUs held them up.
//!
//! An RCU-reader preemption extends a grace period when the host deschedules a vCPU whose bit is still set in the
//! grace period's quiescent-state mask. Two counts are given: all such events, and those of the last holdout alone,
//! which set the grace period's end. Both are pure functions of spans, so every ground counts in the same way.

use serde::{Deserialize, Serialize};

/// A stretch of time, `start_ns` inclusive to `end_ns` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Where it starts.
    pub start_ns: u64,
    /// Where it ends; never before the start.
    pub end_ns: u64,
}

impl Span {
    /// A span between two times.
    pub fn new(start_ns: u64, end_ns: u64) -> Span {
        debug_assert!(start_ns <= end_ns);
        Span { start_ns, end_ns }
    }

    /// Its length.
    pub fn length_ns(self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The part that lies in both, if it is not empty.
    pub fn overlap(self, other: Span) -> Option<Span> {
        let (start_ns, end_ns) = (self.start_ns.max(other.start_ns), self.end_ns.min(other.end_ns));
        (start_ns < end_ns).then_some(Span { start_ns, end_ns })
    }
}

/// One grace period that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GracePeriod {
    /// Its number: `gp_seq` without the two state bits.
    pub sequence: u64,
    /// From its start to its end.
    pub span: Span,
    /// For each vCPU, when its bit was first seen clear; `None` when the grace period never waited for it.
    pub cleared_ns: Vec<Option<u64>>,
}

impl GracePeriod {
    /// The time during which the grace period waited for that vCPU.
    pub fn holdout(&self, vcpu: usize) -> Option<Span> {
        let cleared_ns = (*self.cleared_ns.get(vcpu)?)?;
        Some(Span::new(self.span.start_ns, cleared_ns.clamp(self.span.start_ns, self.span.end_ns)))
    }
}

/// What descheduled vCPUs did to a run's grace periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderPreemptions {
    /// Preemptions that overlap a holdout of the same vCPU.
    pub any: u64,
    /// Of these, preemptions of the vCPU whose bit was the last to clear, or of several if their bits cleared in the
    /// same sample.
    pub last: u64,
    /// Time within grace periods during which at least one holdout was descheduled.
    pub held_ns: u64,
}

impl ReaderPreemptions {
    /// Counts over a run. `descheduled[v]` are the spans in which vCPU `v` was runnable but not on a pCPU, in
    /// order of time; `grace_periods` are in order of time and do not overlap.
    pub fn count(grace_periods: &[GracePeriod], descheduled: &[Vec<Span>]) -> ReaderPreemptions {
        let mut total = ReaderPreemptions::default();
        let mut next = vec![0; descheduled.len()];
        for period in grace_periods {
            let last_ns = period.cleared_ns.iter().flatten().copied().max();
            let mut held = Vec::new();
            for (vcpu, spans) in descheduled.iter().enumerate() {
                let Some(holdout) = period.holdout(vcpu) else { continue };
                while spans.get(next[vcpu]).is_some_and(|span| span.end_ns <= period.span.start_ns) {
                    next[vcpu] += 1;
                }
                let here = spans[next[vcpu]..].iter().take_while(|span| span.start_ns < holdout.end_ns);
                let overlaps: Vec<Span> = here.filter_map(|span| span.overlap(holdout)).collect();
                total.any += overlaps.len() as u64;
                if period.cleared_ns[vcpu] == last_ns {
                    total.last += overlaps.len() as u64;
                }
                held.extend(overlaps);
            }
            total.held_ns += union_ns(held);
        }
        total
    }
}

/// Length of the union of spans.
pub fn union_ns(mut spans: Vec<Span>) -> u64 {
    spans.sort_by_key(|span| span.start_ns);
    let mut covered_ns = 0;
    let mut reached_ns = 0;
    for span in spans {
        let start_ns = span.start_ns.max(reached_ns);
        covered_ns += span.end_ns.saturating_sub(start_ns);
        reached_ns = reached_ns.max(span.end_ns);
    }
    covered_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(sequence: u64, start_ns: u64, end_ns: u64, cleared_ns: &[Option<u64>]) -> GracePeriod {
        GracePeriod { sequence, span: Span::new(start_ns, end_ns), cleared_ns: cleared_ns.to_vec() }
    }

    #[test]
    fn a_preemption_counts_only_while_the_bit_is_set() {
        let periods = [period(1, 100, 200, &[Some(120), Some(190)])];
        // vCPU 0 is descheduled after it reported, vCPU 1 before.
        let spans = [vec![Span::new(130, 180)], vec![Span::new(130, 180)]];
        let found = ReaderPreemptions::count(&periods, &spans);
        assert_eq!(found, ReaderPreemptions { any: 1, last: 1, held_ns: 50 });
    }

    #[test]
    fn only_the_last_holdout_sets_the_end() {
        let periods = [period(1, 100, 200, &[Some(150), Some(190)])];
        let spans = [vec![Span::new(90, 140)], vec![]];
        let found = ReaderPreemptions::count(&periods, &spans);
        assert_eq!(found, ReaderPreemptions { any: 1, last: 0, held_ns: 40 });
    }

    #[test]
    fn one_long_preemption_can_extend_two_grace_periods_but_not_a_third_of_another_vcpu() {
        let periods = [
            period(1, 0, 100, &[Some(100), None]),
            period(2, 100, 200, &[Some(150), None]),
            period(3, 200, 300, &[None, Some(210)]),
        ];
        let spans = [vec![Span::new(50, 150)], vec![]];
        let found = ReaderPreemptions::count(&periods, &spans);
        assert_eq!(found, ReaderPreemptions { any: 2, last: 2, held_ns: 100 });
    }

    #[test]
    fn vcpus_descheduled_together_hold_the_time_once() {
        let periods = [period(1, 0, 100, &[Some(90), Some(90)])];
        let spans = [vec![Span::new(10, 50)], vec![Span::new(30, 60), Span::new(60, 95)]];
        let found = ReaderPreemptions::count(&periods, &spans);
        assert_eq!(found, ReaderPreemptions { any: 3, last: 3, held_ns: 80 });
    }

    #[test]
    fn nothing_descheduled_is_nothing_found() {
        let periods = [period(1, 0, 100, &[Some(90)])];
        assert_eq!(ReaderPreemptions::count(&periods, &[vec![]]), ReaderPreemptions::default());
        assert_eq!(ReaderPreemptions::count(&[], &[vec![Span::new(0, 9)]]), ReaderPreemptions::default());
    }
}
