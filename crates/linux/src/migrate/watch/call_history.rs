//! Whose mask was set by somebody else, and when: what is left to know of the calls of sched_setaffinity(2).
//!
//! Pure: it takes calls in the order of time, and answers questions. It ignores calls that failed, so that a caller without
//! permission cannot fake a user's wish. If a call does not end within 10 s, or its end is missing, nobody knows what it has set.
//!
//! A call matches a task by any of the task's numbers: the caller names the number in its own PID namespace, and the record
//! does not say which namespace that is. Where the caller can be asked, the number is known ([`Whom::Task`]); else any task
//! with that number, in whatever namespace, may be meant, and nothing is known of it ([`Whom::Anybody`]).
//!
//! Invariant: the answer is [`SetByOther::Never`] only if no record since then is missing.

use std::collections::{HashMap, VecDeque};

use super::calls::{Call, Phase};

/// How long calls are remembered, ns. Questions that reach further back get [`SetByOther::Unknown`].
const REMEMBERED_NS: u64 = 10_000_000_000;
/// Most tasks remembered; with more, all are forgotten.
const MOST: usize = 65_536;

/// Whether somebody else has set a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetByOther {
    /// Nobody.
    Never,
    /// Somebody, by a call.
    By {
        /// When it began, ns.
        began_ns: u64,
        /// When it ended, ns.
        ended_ns: u64,
    },
    /// A call has begun that has not ended yet.
    UnderWay,
    /// Perhaps somebody: a call named a number of the task's, perhaps in another PID namespace, or its outcome is not known.
    Unclear {
        /// When it began, ns.
        began_ns: u64,
        /// When it ended or was given up, ns.
        noticed_ns: u64,
    },
    /// That is not known.
    Unknown,
}

/// Whose mask a call sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The task of this number in our PID namespace.
    Task(i32),
    /// A task that has this number in some PID namespace.
    Anybody(i32),
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    whom: Whom,
    began_ns: u64,
}

impl UnderWay {
    /// Whether it may be about the task with these numbers, of which the first is the one in our PID namespace.
    fn may_mean(&self, numbers: &[i32]) -> bool {
        match self.whom {
            Whom::Task(tid) => numbers.first() == Some(&tid),
            Whom::Anybody(number) => numbers.contains(&number),
        }
    }
}

/// What is known of such calls.
#[derive(Debug)]
pub struct CallHistory {
    own_pid: i32,
    /// By the calling thread; several only while the ends of the former ones are still to be told.
    under_way: HashMap<i32, VecDeque<UnderWay>>,
    /// The last call for each number that succeeded, or may have: when it began and ended.
    last: HashMap<i32, (u64, u64)>,
    /// The last call of which nobody knows whether it has set a mask, or whose, by the number that it named: when it began, and
    /// ended or was given up.
    unclear: HashMap<i32, (u64, u64)>,
    /// Nothing since then is missing.
    complete_since_ns: u64,
    tidied_ns: u64,
}

impl CallHistory {
    /// Calls are told from now on. Those of process `own_pid` are nobody's wishes.
    pub fn new(own_pid: i32, now_ns: u64) -> CallHistory {
        let (under_way, last, unclear) = (HashMap::new(), HashMap::new(), HashMap::new());
        CallHistory { own_pid, under_way, last, unclear, complete_since_ns: now_ns, tidied_ns: now_ns }
    }

    /// A call begins or ends; if it begins, for whom.
    pub fn told(&mut self, call: &Call, whom: Option<Whom>) {
        if call.caller_pid == self.own_pid {
            return;
        }
        match (call.phase, whom) {
            (Phase::Begin { .. }, Some(whom)) => {
                let calls = self.under_way.entry(call.caller_tid).or_default();
                calls.push_back(UnderWay { whom, began_ns: call.at_ns });
            }
            (Phase::Begin { .. }, None) => {}
            (Phase::End { succeeded }, _) => self.ended(call, succeeded),
        }
        if self.last.len().max(self.unclear.len()).max(self.under_way.len()) > MOST {
            self.under_way.clear();
            self.lost(call.at_ns);
        }
    }

    /// A thread makes one call after the other: an end is that of the last one that began before it.
    fn ended(&mut self, call: &Call, succeeded: bool) {
        let calls = self.under_way.entry(call.caller_tid).or_default();
        let began = calls.iter().take_while(|begun| begun.began_ns <= call.at_ns).count();
        let mut before: Vec<UnderWay> = calls.drain(..began).collect();
        if calls.is_empty() {
            self.under_way.remove(&call.caller_tid);
        }
        let ended = before.pop();
        // Their ends are missing.
        before.into_iter().for_each(|begun| self.is_unclear(begun, call.at_ns));
        match ended {
            Some(UnderWay { whom: Whom::Task(tid), began_ns }) if succeeded => {
                self.last.insert(tid, (began_ns, call.at_ns));
            }
            Some(begun) if succeeded => self.is_unclear(begun, call.at_ns),
            // It began before there were records, or that record is missing.
            None if succeeded => self.lost(call.at_ns),
            _ => {}
        }
    }

    fn is_unclear(&mut self, begun: UnderWay, noticed_ns: u64) {
        let (Whom::Task(number) | Whom::Anybody(number)) = begun.whom;
        self.unclear.insert(number, (begun.began_ns, noticed_ns));
    }

    /// Calls up to now may be missing.
    pub fn lost(&mut self, now_ns: u64) {
        // Calls that are under way may set a mask yet. If their end is among those that are missing, they are given up in time.
        self.last.clear();
        self.unclear.clear();
        self.complete_since_ns = now_ns;
    }

    /// Forgets what is too old to be asked for.
    pub fn tidy(&mut self, now_ns: u64) {
        let from_ns = now_ns.saturating_sub(REMEMBERED_NS);
        if from_ns < self.tidied_ns {
            return;
        }
        self.tidied_ns = now_ns;
        let mut given_up = Vec::new();
        self.under_way.retain(|_, calls| {
            while calls.front().is_some_and(|begun| begun.began_ns < from_ns) {
                given_up.extend(calls.pop_front());
            }
            !calls.is_empty()
        });
        given_up.into_iter().for_each(|begun| self.is_unclear(begun, now_ns));
        self.unclear.retain(|_, (_, noticed_ns)| *noticed_ns >= from_ns);
        self.last.retain(|_, (_, ended_ns)| *ended_ns >= from_ns);
        self.complete_since_ns = self.complete_since_ns.max(from_ns);
    }

    /// Whether somebody has set the mask of the task with these numbers since then. The first is its number in our PID
    /// namespace.
    pub fn since(&self, numbers: &[i32], since_ns: u64) -> SetByOther {
        let last = numbers.first().and_then(|tid| self.last.get(tid)).copied();
        if let Some((began_ns, ended_ns)) = last.filter(|(_, ended_ns)| *ended_ns >= since_ns) {
            return SetByOther::By { began_ns, ended_ns };
        }
        if self.under_way.values().flatten().any(|call| call.may_mean(numbers)) {
            return SetByOther::UnderWay;
        }
        let unclear = numbers.iter().filter_map(|number| self.unclear.get(number)).max().copied();
        match unclear.filter(|(_, noticed_ns)| *noticed_ns >= since_ns) {
            Some((began_ns, noticed_ns)) => SetByOther::Unclear { began_ns, noticed_ns },
            None if since_ns < self.complete_since_ns => SetByOther::Unknown,
            None => SetByOther::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn begin(caller: i32, target: i32, at_ns: u64) -> Call {
        Call { caller_pid: caller, caller_tid: caller, at_ns, phase: Phase::Begin { target } }
    }

    fn end(caller: i32, at_ns: u64, succeeded: bool) -> Call {
        Call { caller_pid: caller, caller_tid: caller, at_ns, phase: Phase::End { succeeded } }
    }

    /// All in one PID namespace.
    fn tell(history: &mut CallHistory, call: Call) {
        let whom = match call.phase {
            Phase::Begin { target: 0 } => Some(Whom::Task(call.caller_tid)),
            Phase::Begin { target } => Some(Whom::Task(target)),
            Phase::End { .. } => None,
        };
        history.told(&call, whom);
    }

    fn told(calls: &[Call]) -> CallHistory {
        let mut history = CallHistory::new(1, 0);
        calls.iter().for_each(|call| tell(&mut history, *call));
        history
    }

    /// Ends are read before begins, so that an end may be told only after the thread's next begin.
    #[test]
    fn an_end_that_is_told_late_is_that_of_its_own_call() {
        let refused_then_done =
            told(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 15, false), end(7, 25, true)]);
        assert_eq!(refused_then_done.since(&[9], 0), SetByOther::Never);
        assert_eq!(refused_then_done.since(&[5], 0), SetByOther::By { began_ns: 20, ended_ns: 25 });
        let done_then_refused =
            told(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 15, true), end(7, 25, false)]);
        assert_eq!(done_then_refused.since(&[9], 0), SetByOther::By { began_ns: 10, ended_ns: 15 });
        assert_eq!(done_then_refused.since(&[5], 0), SetByOther::Never);
        let missing = told(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 25, true)]);
        assert_eq!(
            (missing.since(&[9], 0), missing.since(&[5], 0)),
            (
                SetByOther::Unclear { began_ns: 10, noticed_ns: 25 },
                SetByOther::By { began_ns: 20, ended_ns: 25 }
            )
        );
    }

    /// Who has a number in a PID namespace of his own must not be taken for the task that has it here, nor bind that.
    #[test]
    fn a_number_of_another_namespace_says_nothing_for_sure() {
        let mut history = CallHistory::new(1, 0);
        history.told(&begin(7, 9, 10), Some(Whom::Anybody(9)));
        assert_eq!(
            (history.since(&[9], 0), history.since(&[3, 9], 0)),
            (SetByOther::UnderWay, SetByOther::UnderWay)
        );
        history.told(&end(7, 12, true), None);
        let unclear = SetByOther::Unclear { began_ns: 10, noticed_ns: 12 };
        assert_eq!((history.since(&[9], 0), history.since(&[3, 9], 0)), (unclear, unclear));
        assert_eq!((history.since(&[9], 13), history.since(&[3], 0)), (SetByOther::Never, SetByOther::Never));
        let here = told(&[begin(7, 9, 10), end(7, 12, true)]);
        assert_eq!(
            here.since(&[3, 9], 0),
            SetByOther::Never,
            "a task with that number elsewhere is not meant"
        );
    }

    #[test]
    fn a_mask_is_set_by_a_call_that_succeeds() {
        let by = |began_ns, ended_ns| SetByOther::By { began_ns, ended_ns };
        let history =
            told(&[begin(7, 0, 10), end(7, 12, true), begin(8, 9, 20), end(8, 21, false), begin(8, 5, 30)]);
        assert_eq!(history.since(&[7], 0), by(10, 12), "itself");
        assert_eq!(history.since(&[7, 3], 12), by(10, 12), "whatever numbers it has besides");
        assert_eq!(history.since(&[7], 13), SetByOther::Never, "before");
        assert_eq!(history.since(&[9], 0), SetByOther::Never, "refused");
        assert_eq!(
            (history.since(&[5], 0), history.since(&[8], 0)),
            (SetByOther::UnderWay, SetByOther::Never)
        );
        let own = told(&[begin(1, 7, 10), end(1, 12, true)]);
        assert_eq!(own.since(&[7], 0), SetByOther::Never, "our own calls are no wishes");
    }

    #[test]
    fn what_is_not_known_is_not_taken_for_never() {
        let mut history = CallHistory::new(1, 5 * S);
        assert_eq!(
            (history.since(&[7], 5 * S - 1), history.since(&[7], 5 * S)),
            (SetByOther::Unknown, SetByOther::Never)
        );
        tell(&mut history, begin(7, 0, 6 * S));
        tell(&mut history, begin(9, 0, 6 * S));
        history.lost(7 * S);
        assert_eq!(
            (history.since(&[8], 6 * S), history.since(&[8], 7 * S)),
            (SetByOther::Unknown, SetByOther::Never)
        );
        assert_eq!(history.since(&[7], 7 * S), SetByOther::UnderWay, "its end is still to come");
        tell(&mut history, end(7, 7 * S + 1, true));
        assert_eq!(history.since(&[7], 7 * S), SetByOther::By { began_ns: 6 * S, ended_ns: 7 * S + 1 });
        tell(&mut history, end(6, 7 * S + 2, false));
        assert_eq!(history.since(&[8], 7 * S + 2), SetByOther::Never);
        tell(&mut history, end(6, 7 * S + 3, true));
        assert_eq!(history.since(&[8], 7 * S + 2), SetByOther::Unknown, "nobody knows whose mask that was");
        tell(&mut history, begin(7, 0, 8 * S));
        history.tidy(18 * S + 1);
        let given_up = SetByOther::Unclear { began_ns: 8 * S, noticed_ns: 18 * S + 1 };
        assert_eq!(history.since(&[7], 9 * S), given_up, "it does not end");
        assert_eq!(history.since(&[8], 8 * S), SetByOther::Unknown, "too long ago");
        history.tidy(40 * S);
        assert_eq!((history.since(&[7], 35 * S), history.last.len()), (SetByOther::Never, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let calls: Vec<Call> = (2..200_000).flat_map(|tid| [begin(tid, 0, 10), end(tid, 11, true)]).collect();
        let history = told(&calls);
        assert!(history.last.len() <= MOST + 1 && history.complete_since_ns == 11);
    }
}
