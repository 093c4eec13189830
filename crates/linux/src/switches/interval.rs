//! Turns the switch events of a thread into intervals, without I/O.
//!
//! Invariants: the intervals of a window cover it exactly, without gap or overlap. The state is [`State::Unknown`]
//! before the first event (unless the caller gives a state), where records were lost, and where two events contradict
//! each other (a switch in while running).

use super::{SwitchEvent, SwitchKind};

/// What a thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// On a CPU.
    Running,
    /// Runnable but not on a CPU: preempted or throttled.
    Preempted,
    /// Asleep or waiting. Includes the wait for a CPU after the wake-up, which switch records do not show.
    Blocked,
    /// Unknown.
    Unknown,
}

/// A period of time in one state, never empty. `cpu` is the one it ran on, or last ran on; `None` if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub struct Interval {
    pub start_ns: u64,
    pub end_ns: u64,
    pub state: State,
    pub cpu: Option<u32>,
}

/// Turns the events of one thread into the intervals of one window.
#[derive(Clone, Debug)]
pub struct IntervalBuilder {
    intervals: Vec<Interval>,
    /// The open interval.
    start_ns: u64,
    state: State,
    cpu: Option<u32>,
}

impl IntervalBuilder {
    /// Starts a window at `start_ns`; `initial` is the thread's state then, if known.
    pub fn new(start_ns: u64, initial: Option<State>) -> IntervalBuilder {
        let state = initial.unwrap_or(State::Unknown);
        IntervalBuilder { intervals: Vec::new(), start_ns, state, cpu: None }
    }

    /// Takes the thread's next event. Events from before the window only set its initial state. An event with an
    /// earlier time than its predecessor counts as simultaneous with it.
    pub fn push(&mut self, event: &SwitchEvent) {
        let next = match event.kind {
            SwitchKind::In => State::Running,
            SwitchKind::OutPreempted => State::Preempted,
            SwitchKind::OutVoluntary => State::Blocked,
            SwitchKind::Lost => State::Unknown,
        };
        let is_in = next == State::Running;
        let contradicts = match self.state {
            State::Unknown => false,
            State::Running => is_in,
            State::Preempted | State::Blocked => !is_in,
        };
        if contradicts || event.kind == SwitchKind::Lost {
            (self.state, self.cpu) = (State::Unknown, None);
        } else if matches!(next, State::Preempted | State::Blocked) && self.state == State::Running {
            // It ran on the CPU of its switch out, even if the switch in was before the window.
            self.cpu = event.cpu;
        }
        self.close_at(event.time_ns);
        (self.state, self.cpu) = (next, if next == State::Unknown { None } else { event.cpu });
    }

    /// Ends the window at `end_ns` and returns its intervals. Later events are cut off.
    pub fn finish(mut self, end_ns: u64) -> Vec<Interval> {
        self.close_at(end_ns);
        self.intervals.retain_mut(|interval| {
            interval.end_ns = interval.end_ns.min(end_ns);
            interval.start_ns < interval.end_ns
        });
        self.intervals
    }

    /// Ends the open interval, merging it with the one before if both are alike.
    fn close_at(&mut self, end_ns: u64) {
        if end_ns <= self.start_ns {
            return;
        }
        let (start_ns, state, cpu) = (self.start_ns, self.state, self.cpu);
        match self.intervals.last_mut() {
            Some(last) if last.state == state && last.cpu == cpu => last.end_ns = end_ns,
            _ => self.intervals.push(Interval { start_ns, end_ns, state, cpu }),
        }
        self.start_ns = end_ns;
    }
}

#[cfg(test)]
mod tests;
