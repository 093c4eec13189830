//! Whose mask was set by somebody else, and when: what is left to know of the calls of sched_setaffinity(2).
//!
//! Pure: it takes calls in the order of time, and answers questions. It ignores calls that failed, so that a caller without
//! permission cannot fake a user's wish. If a caller dies within a call, the end of that call is never recorded; after 10 s the
//! call counts as successful, to be on the safe side.
//!
//! A call matches a task by any of the task's numbers: the caller names the number in its own PID namespace, and the record
//! does not say which namespace that is. Two tasks with the same number in different namespaces are thus taken for each other,
//! and a mask that could have been given back is left alone.
//!
//! Invariant: the answer is [`Set::Never`] only if no record since then is missing.

use std::collections::HashMap;

use super::calls::{Call, Phase};

/// How long calls are remembered, ns. Questions that reach further back get [`Set::Unknown`].
const REMEMBERED_NS: u64 = 10_000_000_000;
/// Most tasks remembered; with more, all are forgotten.
const MOST: usize = 65_536;

/// Whether somebody else has set a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
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
    /// That is not known.
    Unknown,
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    target: i32,
    began_ns: u64,
}

/// What is known of such calls.
#[derive(Debug)]
pub struct Wishes {
    own_pid: i32,
    /// By the calling thread.
    under_way: HashMap<i32, UnderWay>,
    /// The last call for each number that succeeded, or may have: when it began and ended.
    last: HashMap<i32, (u64, u64)>,
    /// Nothing since then is missing.
    complete_since_ns: u64,
    tidied_ns: u64,
}

impl Wishes {
    /// Calls are told from now on. Those of process `own_pid` are nobody's wishes.
    pub fn new(own_pid: i32, now_ns: u64) -> Wishes {
        let (under_way, last) = (HashMap::new(), HashMap::new());
        Wishes { own_pid, under_way, last, complete_since_ns: now_ns, tidied_ns: now_ns }
    }

    /// A call begins or ends.
    pub fn told(&mut self, call: &Call) {
        if call.caller_pid == self.own_pid {
            return;
        }
        match call.phase {
            Phase::Begin { target } => {
                let target = if target == 0 { call.caller_tid } else { target };
                let begun = UnderWay { target, began_ns: call.at_ns };
                // The end of its last call was lost, or it is another thread of the same number.
                if let Some(before) = self.under_way.insert(call.caller_tid, begun) {
                    self.set(before.target, before.began_ns, call.at_ns);
                }
            }
            Phase::End { succeeded } => {
                let begun = self.under_way.remove(&call.caller_tid);
                match begun.filter(|_| succeeded) {
                    Some(UnderWay { target, began_ns }) => self.set(target, began_ns, call.at_ns),
                    // It began before there were records, or that record is missing.
                    None if succeeded => self.lost(call.at_ns),
                    None => {}
                }
            }
        }
        if self.last.len().max(self.under_way.len()) > MOST {
            self.under_way.clear();
            self.lost(call.at_ns);
        }
    }

    fn set(&mut self, number: i32, began_ns: u64, ended_ns: u64) {
        self.last.insert(number, (began_ns, ended_ns));
    }

    /// Calls up to now may be missing.
    pub fn lost(&mut self, now_ns: u64) {
        // Calls that are under way may set a mask yet. If their end is among those that are missing, they are given up in time.
        self.last.clear();
        self.complete_since_ns = now_ns;
    }

    /// Forgets what is too old to be asked for.
    pub fn tidy(&mut self, now_ns: u64) {
        let from_ns = now_ns.saturating_sub(REMEMBERED_NS);
        if from_ns < self.tidied_ns {
            return;
        }
        self.tidied_ns = now_ns;
        let old: Vec<i32> =
            self.under_way.iter().filter(|(_, call)| call.began_ns < from_ns).map(|(tid, _)| *tid).collect();
        for tid in old {
            if let Some(UnderWay { target, began_ns }) = self.under_way.remove(&tid) {
                self.set(target, began_ns, now_ns);
            }
        }
        self.last.retain(|_, (_, ended_ns)| *ended_ns >= from_ns);
        self.complete_since_ns = self.complete_since_ns.max(from_ns);
    }

    /// Whether somebody has set the mask of the task with these numbers since then.
    pub fn since(&self, numbers: &[i32], since_ns: u64) -> Set {
        let last =
            numbers.iter().filter_map(|number| self.last.get(number)).max_by_key(|(_, ended_ns)| *ended_ns);
        if let Some((began_ns, ended_ns)) = last.copied().filter(|(_, ended_ns)| *ended_ns >= since_ns) {
            return Set::By { began_ns, ended_ns };
        }
        if self.under_way.values().any(|call| numbers.contains(&call.target)) {
            return Set::UnderWay;
        }
        if since_ns < self.complete_since_ns { Set::Unknown } else { Set::Never }
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

    fn told(calls: &[Call]) -> Wishes {
        let mut wishes = Wishes::new(1, 0);
        calls.iter().for_each(|call| wishes.told(call));
        wishes
    }

    #[test]
    fn a_mask_is_set_by_a_call_that_succeeds() {
        let by = |began_ns, ended_ns| Set::By { began_ns, ended_ns };
        let wishes =
            told(&[begin(7, 0, 10), end(7, 12, true), begin(8, 9, 20), end(8, 21, false), begin(8, 5, 30)]);
        assert_eq!(wishes.since(&[7], 0), by(10, 12), "itself");
        assert_eq!(wishes.since(&[3, 7], 12), by(10, 12), "by any of its numbers");
        assert_eq!(wishes.since(&[7], 13), Set::Never, "before");
        assert_eq!(wishes.since(&[9], 0), Set::Never, "refused");
        assert_eq!((wishes.since(&[5], 0), wishes.since(&[8], 0)), (Set::UnderWay, Set::Never));
        let own = told(&[begin(1, 7, 10), end(1, 12, true)]);
        assert_eq!(own.since(&[7], 0), Set::Never, "our own calls are no wishes");
    }

    #[test]
    fn what_is_not_known_is_not_taken_for_never() {
        let mut wishes = Wishes::new(1, 5 * S);
        assert_eq!((wishes.since(&[7], 5 * S - 1), wishes.since(&[7], 5 * S)), (Set::Unknown, Set::Never));
        wishes.told(&begin(7, 0, 6 * S));
        wishes.told(&begin(9, 0, 6 * S));
        wishes.lost(7 * S);
        assert_eq!((wishes.since(&[8], 6 * S), wishes.since(&[8], 7 * S)), (Set::Unknown, Set::Never));
        assert_eq!(wishes.since(&[7], 7 * S), Set::UnderWay, "its end is still to come");
        wishes.told(&end(7, 7 * S + 1, true));
        assert_eq!(wishes.since(&[7], 7 * S), Set::By { began_ns: 6 * S, ended_ns: 7 * S + 1 });
        wishes.told(&end(6, 7 * S + 2, false));
        assert_eq!(wishes.since(&[8], 7 * S + 2), Set::Never);
        wishes.told(&end(6, 7 * S + 3, true));
        assert_eq!(wishes.since(&[8], 7 * S + 2), Set::Unknown, "nobody knows whose mask that was");
        wishes.told(&begin(7, 0, 8 * S));
        wishes.tidy(18 * S + 1);
        let by = Set::By { began_ns: 8 * S, ended_ns: 18 * S + 1 };
        assert_eq!(wishes.since(&[7], 9 * S), by, "it ended within the call");
        assert_eq!(wishes.since(&[8], 8 * S), Set::Unknown, "too long ago");
        wishes.tidy(40 * S);
        assert_eq!((wishes.since(&[7], 35 * S), wishes.last.len()), (Set::Never, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let calls: Vec<Call> = (2..200_000).flat_map(|tid| [begin(tid, 0, 10), end(tid, 11, true)]).collect();
        let wishes = told(&calls);
        assert!(wishes.last.len() <= MOST + 1 && wishes.complete_since_ns == 11);
    }
}
