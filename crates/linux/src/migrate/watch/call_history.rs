//! The history of sched_setaffinity(2) calls: answers whether, and when, somebody else set a task's mask.
//!
//! It does no I/O: it takes calls in the order of time, and answers questions. Failed calls are ignored, so a caller
//! without permission cannot pretend that a user chose a mask. If a call does not end within 10 s, or the record of its
//! end is missing, it is unknown what the call has set.
//!
//! The caller names a task by its id in the caller's own PID namespace, and the record does not say which namespace
//! that is. If the caller can still be inspected, the task is known ([`CallTarget::Task`]). Otherwise any task that has
//! this id in some namespace may be meant ([`CallTarget::Number`]).
//!
//! Invariant: the answer is [`SetByOther::Never`] only if no record since then is missing.

use std::collections::{HashMap, VecDeque};

use reprieve_policy::SECOND_NS;

use super::{Call, Phase};

/// How long calls are remembered, ns. Questions that reach further back get [`SetByOther::Unknown`].
const REMEMBERED_NS: u64 = 10 * SECOND_NS;
/// The most tasks remembered. With more, all are forgotten.
const MOST: usize = 65_536;

/// The answer to whether somebody else has set a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say what the fields are")]
pub enum SetByOther {
    /// Nobody has.
    Never,
    /// Somebody has, by a call.
    By { began_ns: u64, ended_ns: u64 },
    /// A call for this task has begun and not ended yet.
    UnderWay,
    /// Perhaps: the outcome of a call is unknown, or it named an id of the task's that may belong to another namespace. The
    /// call ended, or was given up, at `noticed_ns`.
    Unclear { began_ns: u64, noticed_ns: u64 },
    /// Unknown: records are missing.
    Unknown,
}

/// The task whose mask a call sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// The task with this id in the daemon's PID namespace.
    Task(i32),
    /// Some task that has this id in some PID namespace.
    Number(i32),
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    target: CallTarget,
    began_ns: u64,
}

impl UnderWay {
    /// Whether the call may be for the task with these ids, the first of which is the one in the daemon's PID
    /// namespace.
    fn may_mean(&self, numbers: &[i32]) -> bool {
        match self.target {
            CallTarget::Task(tid) => numbers.first() == Some(&tid),
            CallTarget::Number(number) => numbers.contains(&number),
        }
    }
}

/// The calls of the last ten seconds, in summary.
#[derive(Debug)]
pub struct CallHistory {
    own_pid: i32,
    /// Calls that have not ended, by calling thread. A thread has several only while records of ends are still to come.
    under_way: HashMap<i32, VecDeque<UnderWay>>,
    /// For each task, when its last successful call began and ended.
    last: HashMap<i32, (u64, u64)>,
    /// For each id that a call named, the last call whose outcome or task is unknown: when it began, and when it ended
    /// or was given up.
    unclear: HashMap<i32, (u64, u64)>,
    /// No record since then is missing.
    complete_since_ns: u64,
    tidied_ns: u64,
}

impl CallHistory {
    /// A history that starts now. Calls of process `own_pid` do not count.
    pub fn new(own_pid: i32, now_ns: u64) -> CallHistory {
        let (under_way, last, unclear) = (HashMap::new(), HashMap::new(), HashMap::new());
        CallHistory { own_pid, under_way, last, unclear, complete_since_ns: now_ns, tidied_ns: now_ns }
    }

    /// Takes in the begin or end of a call; a begin with its target.
    pub fn take(&mut self, call: &Call, target: Option<CallTarget>) {
        if call.caller_pid == self.own_pid {
            return;
        }
        match (call.phase, target) {
            (Phase::Begin { .. }, Some(target)) => {
                let calls = self.under_way.entry(call.caller_tid).or_default();
                calls.push_back(UnderWay { target, began_ns: call.at_ns });
            }
            (Phase::Begin { .. }, None) => {}
            (Phase::End { succeeded }, _) => self.ended(call, succeeded),
        }
        if self.last.len().max(self.unclear.len()).max(self.under_way.len()) > MOST {
            self.under_way.clear();
            self.lost(call.at_ns);
        }
    }

    /// Takes in the end of a call. A thread makes one call at a time, so the end belongs to the last call that began
    /// before it.
    fn ended(&mut self, call: &Call, succeeded: bool) {
        let calls = self.under_way.entry(call.caller_tid).or_default();
        let began = calls.iter().take_while(|begun| begun.began_ns <= call.at_ns).count();
        let mut before: Vec<UnderWay> = calls.drain(..began).collect();
        if calls.is_empty() {
            self.under_way.remove(&call.caller_tid);
        }
        let ended = before.pop();
        // The records of the earlier calls' ends are missing.
        before.into_iter().for_each(|begun| self.set_unclear(begun, call.at_ns));
        match ended {
            Some(UnderWay { target: CallTarget::Task(tid), began_ns }) if succeeded => {
                self.last.insert(tid, (began_ns, call.at_ns));
            }
            Some(begun) if succeeded => self.set_unclear(begun, call.at_ns),
            // It began before the first record, or the record of its begin is missing.
            None if succeeded => self.lost(call.at_ns),
            _ => {}
        }
    }

    fn set_unclear(&mut self, begun: UnderWay, noticed_ns: u64) {
        let (CallTarget::Task(number) | CallTarget::Number(number)) = begun.target;
        self.unclear.insert(number, (begun.began_ns, noticed_ns));
    }

    /// Records of calls up to now may be missing.
    pub fn lost(&mut self, now_ns: u64) {
        // Keep calls under way, which may yet set a mask. If the record of their end is lost, they are given up after
        // 10 s.
        self.last.clear();
        self.unclear.clear();
        self.complete_since_ns = now_ns;
    }

    /// Forgets old calls, and gives up those that have not ended.
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
        given_up.into_iter().for_each(|begun| self.set_unclear(begun, now_ns));
        self.unclear.retain(|_, (_, noticed_ns)| *noticed_ns >= from_ns);
        self.last.retain(|_, (_, ended_ns)| *ended_ns >= from_ns);
        self.complete_since_ns = self.complete_since_ns.max(from_ns);
    }

    /// Whether somebody else has set the mask of the task with these ids since then. The first id is the one in the
    /// daemon's PID namespace.
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

    const S: u64 = SECOND_NS;

    fn begin(caller: i32, target: i32, at_ns: u64) -> Call {
        Call { caller_pid: caller, caller_tid: caller, at_ns, phase: Phase::Begin { target } }
    }

    fn end(caller: i32, at_ns: u64, succeeded: bool) -> Call {
        Call { caller_pid: caller, caller_tid: caller, at_ns, phase: Phase::End { succeeded } }
    }

    /// Takes in a call, all in one PID namespace.
    fn take(history: &mut CallHistory, call: Call) {
        let target = match call.phase {
            Phase::Begin { target: 0 } => Some(CallTarget::Task(call.caller_tid)),
            Phase::Begin { target } => Some(CallTarget::Task(target)),
            Phase::End { .. } => None,
        };
        history.take(&call, target);
    }

    fn history_of(calls: &[Call]) -> CallHistory {
        let mut history = CallHistory::new(1, 0);
        calls.iter().for_each(|call| take(&mut history, *call));
        history
    }

    /// Ends are read before begins, so an end may come after the thread's next begin.
    #[test]
    fn an_end_that_comes_late_belongs_to_its_own_call() {
        let refused_then_done =
            history_of(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 15, false), end(7, 25, true)]);
        assert_eq!(refused_then_done.since(&[9], 0), SetByOther::Never);
        assert_eq!(refused_then_done.since(&[5], 0), SetByOther::By { began_ns: 20, ended_ns: 25 });
        let done_then_refused =
            history_of(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 15, true), end(7, 25, false)]);
        assert_eq!(done_then_refused.since(&[9], 0), SetByOther::By { began_ns: 10, ended_ns: 15 });
        assert_eq!(done_then_refused.since(&[5], 0), SetByOther::Never);
        let missing = history_of(&[begin(7, 9, 10), begin(7, 5, 20), end(7, 25, true)]);
        assert_eq!(
            (missing.since(&[9], 0), missing.since(&[5], 0)),
            (
                SetByOther::Unclear { began_ns: 10, noticed_ns: 25 },
                SetByOther::By { began_ns: 20, ended_ns: 25 }
            )
        );
    }

    /// A call for an id in another PID namespace must not count as one for the task that has this id here.
    #[test]
    fn an_id_of_another_namespace_proves_nothing() {
        let mut history = CallHistory::new(1, 0);
        history.take(&begin(7, 9, 10), Some(CallTarget::Number(9)));
        assert_eq!(
            (history.since(&[9], 0), history.since(&[3, 9], 0)),
            (SetByOther::UnderWay, SetByOther::UnderWay)
        );
        history.take(&end(7, 12, true), None);
        let unclear = SetByOther::Unclear { began_ns: 10, noticed_ns: 12 };
        assert_eq!((history.since(&[9], 0), history.since(&[3, 9], 0)), (unclear, unclear));
        assert_eq!((history.since(&[9], 13), history.since(&[3], 0)), (SetByOther::Never, SetByOther::Never));
        let here = history_of(&[begin(7, 9, 10), end(7, 12, true)]);
        assert_eq!(
            here.since(&[3, 9], 0),
            SetByOther::Never,
            "the call is not for a task with that id elsewhere"
        );
    }

    #[test]
    fn a_mask_is_set_by_a_call_that_succeeds() {
        let by = |began_ns, ended_ns| SetByOther::By { began_ns, ended_ns };
        let history = history_of(&[
            begin(7, 0, 10),
            end(7, 12, true),
            begin(8, 9, 20),
            end(8, 21, false),
            begin(8, 5, 30),
        ]);
        assert_eq!(history.since(&[7], 0), by(10, 12), "its own mask");
        assert_eq!(history.since(&[7, 3], 12), by(10, 12), "whatever other ids it has");
        assert_eq!(history.since(&[7], 13), SetByOther::Never, "the call was before");
        assert_eq!(history.since(&[9], 0), SetByOther::Never, "refused");
        assert_eq!(
            (history.since(&[5], 0), history.since(&[8], 0)),
            (SetByOther::UnderWay, SetByOther::Never)
        );
        let own = history_of(&[begin(1, 7, 10), end(1, 12, true)]);
        assert_eq!(own.since(&[7], 0), SetByOther::Never, "the daemon's own calls do not count");
    }

    #[test]
    fn the_answer_is_never_only_if_no_record_is_missing() {
        let mut history = CallHistory::new(1, 5 * S);
        assert_eq!(
            (history.since(&[7], 5 * S - 1), history.since(&[7], 5 * S)),
            (SetByOther::Unknown, SetByOther::Never)
        );
        take(&mut history, begin(7, 0, 6 * S));
        take(&mut history, begin(9, 0, 6 * S));
        history.lost(7 * S);
        assert_eq!(
            (history.since(&[8], 6 * S), history.since(&[8], 7 * S)),
            (SetByOther::Unknown, SetByOther::Never)
        );
        assert_eq!(history.since(&[7], 7 * S), SetByOther::UnderWay, "its end is still to come");
        take(&mut history, end(7, 7 * S + 1, true));
        assert_eq!(history.since(&[7], 7 * S), SetByOther::By { began_ns: 6 * S, ended_ns: 7 * S + 1 });
        take(&mut history, end(6, 7 * S + 2, false));
        assert_eq!(history.since(&[8], 7 * S + 2), SetByOther::Never);
        take(&mut history, end(6, 7 * S + 3, true));
        assert_eq!(history.since(&[8], 7 * S + 2), SetByOther::Unknown, "that call may have set any mask");
        take(&mut history, begin(7, 0, 8 * S));
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
        let history = history_of(&calls);
        assert!(history.last.len() <= MOST + 1 && history.complete_since_ns == 11);
    }
}
