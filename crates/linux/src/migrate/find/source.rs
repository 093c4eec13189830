//! The source of knowledge about tasks' I/O: the best one that this machine has.
//!
//! | source | what it sees | resolution |
//! |---|---|---|
//! | events | the beginning and end of each task's I/Os at the block layer, including asynchronous ones | a beat, 1 ms |
//! | delay accounting | time that a task has waited for block I/O | a clock tick, 10 ms |
//! | states | whether a task waits for I/O (state `D`) at each look | the time between two looks, 20 ms |
//!
//! The last two do not see asynchronous I/O. Events ([`Events`]) become [`Signal::IoBegin`] and [`Signal::IoEnd`], the
//! others samples; the policy takes either.
//!
//! Source: the kernel's Documentation/accounting/delay-accounting.rst; proc_pid_stat(5), fields 3 and 42.

use reprieve_policy::signal::Signal;

use super::Events;
use crate::proc::{ProcRoot, TaskStat};

/// A source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each I/O at the block layer, by eBPF.
    Events,
    /// Time waited for block I/O, as the kernel counts it.
    DelayAccounting,
    /// The state of each task at each look.
    States,
}

impl Source {
    /// The best source on this machine that needs only `/proc`.
    pub fn detect(root: &ProcRoot) -> Source {
        if root.counts_io_delay() { Source::DelayAccounting } else { Source::States }
    }

    /// The best source on this machine, and its events if it is [`Source::Events`]. If this program was built with
    /// events but they do not work, the last value is the reason.
    pub fn open(root: &ProcRoot) -> (Source, Option<Box<dyn Events>>, Option<String>) {
        match open_events() {
            Some(Ok(events)) => (Source::Events, Some(events), None),
            Some(Err(why)) => (Source::detect(root), None, Some(why)),
            None => (Source::detect(root), None, None),
        }
    }

    /// The source's name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Source::Events => "events of the block layer (eBPF)",
            Source::DelayAccounting => "delay accounting",
            Source::States => "task states",
        }
    }

    /// What the source sees, and how to get a better one.
    pub fn hint(self) -> &'static str {
        match self {
            Source::Events => "sees asynchronous I/O too",
            Source::DelayAccounting => "does not see asynchronous I/O",
            Source::States => {
                "does not see asynchronous I/O; more exact with `sysctl kernel.task_delayacct=1`, which makes the kernel \
                 count waits"
            }
        }
    }
}

/// Opens the source of events; `None` if this program was built without events.
fn open_events() -> Option<Result<Box<dyn Events>, String>> {
    #[cfg(feature = "ebpf")]
    return Some(super::ebpf::Ebpf::open().map(|events| Box::new(events) as Box<dyn Events>));
    #[cfg(not(feature = "ebpf"))]
    None
}

/// Counts the time that one task has I/O outstanding, from looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    last_ns: Option<u64>,
    /// Whether it waited at the last look.
    waited: bool,
    first_wait_ns: u64,
    /// Time with I/O outstanding so far, ns.
    pub outstanding_ns: u64,
}

impl Sampler {
    /// Takes in a look at the task in a slot. Returns the sample for the policy, if the source has samples.
    pub fn look(&mut self, source: Source, task: usize, stat: &TaskStat, now_ns: u64) -> Option<Signal> {
        let before_ns = self.last_ns.replace(now_ns);
        match (source, before_ns) {
            (Source::Events, _) => return None,
            (Source::DelayAccounting, None) => self.first_wait_ns = stat.io_wait_ns,
            (Source::DelayAccounting, Some(_)) => {
                // The kernel's count never falls for one task.
                let waited_ns = stat.io_wait_ns.saturating_sub(self.first_wait_ns);
                self.outstanding_ns = self.outstanding_ns.max(waited_ns);
            }
            (Source::States, before_ns) => {
                let waits = stat.state == 'D';
                let since_ns = now_ns.saturating_sub(before_ns.unwrap_or(now_ns));
                // Time between two looks counts in full if both find the task waiting, and half if one does.
                let halves = u64::from(waits) + u64::from(self.waited);
                self.outstanding_ns += since_ns * halves / 2;
                self.waited = waits;
            }
        }
        Some(Signal::IoSampled { task, at_ns: now_ns, outstanding_ns: self.outstanding_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    fn stat(state: char, io_wait_ns: u64) -> TaskStat {
        TaskStat {
            state,
            is_kernel: false,
            is_io_worker: false,
            is_bound: false,
            start_ticks: 1,
            cpu: 0,
            io_wait_ns,
        }
    }

    #[test]
    fn the_better_source_is_chosen() {
        let proc = FakeProc::new();
        assert_eq!(Source::detect(&proc.root), Source::States);
        proc.put("sys/kernel/task_delayacct", "1\n");
        assert_eq!(Source::detect(&proc.root), Source::DelayAccounting);
    }

    #[test]
    fn waits_are_counted_from_the_first_look_on_and_never_fall() {
        let mut sampler = Sampler::default();
        for (now_ns, wait_ns, outstanding_ns) in [(0, 500, 0), (10, 507, 7), (20, 400, 7), (30, 510, 10)] {
            let signal = sampler.look(Source::DelayAccounting, 3, &stat('S', wait_ns), now_ns);
            assert_eq!(signal, Some(Signal::IoSampled { task: 3, at_ns: now_ns, outstanding_ns }));
        }
    }

    #[test]
    fn one_look_at_a_waiting_task_counts_half_and_two_count_all() {
        let mut sampler = Sampler::default();
        let looks = [(0, 'D', 0), (10, 'D', 10), (20, 'R', 15), (30, 'R', 15), (40, 'D', 20), (35, 'D', 20)];
        for (now_ns, state, outstanding_ns) in looks {
            sampler.look(Source::States, 0, &stat(state, 0), now_ns);
            assert_eq!(sampler.outstanding_ns, outstanding_ns, "{now_ns}");
        }
    }

    #[test]
    fn with_events_looks_give_no_samples() {
        assert_eq!(Sampler::default().look(Source::Events, 0, &stat('D', 5), 10), None);
    }
}
