//! Where the knowledge about tasks' I/O comes from, the best that this machine has.
//!
//! | source | what it sees | resolution |
//! |---|---|---|
//! | events | each task's I/Os at the block layer, asynchronous ones too, as they begin and end | a beat, 1 ms |
//! | delay accounting | time that a task waited for block I/O | a clock tick, 10 ms |
//! | states | whether a task waits for I/O (`D`) at each look | the time between two looks, 20 ms |
//!
//! The last two see only a task that waits for its I/O itself. Events come as [`Signal::IoBegin`] and [`Signal::IoEnd`]
//! ([`Events`] is the seam), the others as samples; the policy takes either, and the rest of the daemon hardly knows
//! which.
//!
//! Source: the kernel's Documentation/accounting/delay-accounting.rst; proc_pid_stat(5), fields 3 and 42.

use reprieve_policy::signal::Signal;

use super::io_events::Events;
use crate::proc::{ProcRoot, TaskStat};

/// What tells I/O tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each I/O at the block layer, by eBPF.
    Events,
    /// Time waited for block I/O, as the kernel books it.
    DelayAccounting,
    /// The state of each task at each look.
    States,
}

impl Source {
    /// The best of this machine that only needs to be read.
    pub fn detect(root: &ProcRoot) -> Source {
        if root.counts_io_delay() { Source::DelayAccounting } else { Source::States }
    }

    /// The best of this machine, with its events if there are any; and why there are none, if this program could have
    /// them.
    pub fn open(root: &ProcRoot) -> (Source, Option<Box<dyn Events>>, Option<String>) {
        match open_events() {
            Some(Ok(events)) => (Source::Events, Some(events), None),
            Some(Err(why)) => (Source::detect(root), None, Some(why)),
            None => (Source::detect(root), None, None),
        }
    }

    /// Its name, for people and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Source::Events => "events of the block layer (eBPF)",
            Source::DelayAccounting => "delay accounting",
            Source::States => "task states",
        }
    }

    /// How to get a better one.
    pub fn hint(self) -> &'static str {
        match self {
            Source::Events => "asynchronous I/O is seen, too",
            Source::DelayAccounting => "asynchronous I/O is not seen",
            Source::States => {
                "asynchronous I/O is not seen; `sysctl kernel.task_delayacct=1` makes the kernel book waits, which is more exact"
            }
        }
    }
}

/// Events, if this program was built for them; else nothing.
fn open_events() -> Option<Result<Box<dyn Events>, String>> {
    #[cfg(feature = "ebpf")]
    return Some(crate::migrate::find::ebpf::Ebpf::open().map(|events| Box::new(events) as Box<dyn Events>));
    #[cfg(not(feature = "ebpf"))]
    None
}

/// The outstanding time of one task, from looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    last_ns: Option<u64>,
    /// Whether it waited at the last look.
    waited: bool,
    first_wait_ns: u64,
    outstanding_ns: u64,
}

impl Sampler {
    /// Takes in a look at the task in a slot; what the policy is told of it, if anything.
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
                // All of the time between two looks that find it waiting, half of it if only one does.
                let halves = u64::from(waits) + u64::from(self.waited);
                self.outstanding_ns += since_ns * halves / 2;
                self.waited = waits;
            }
        }
        Some(Signal::IoSampled { task, at_ns: now_ns, outstanding_ns: self.outstanding_ns })
    }

    /// Time with I/O outstanding seen so far, ns.
    pub fn outstanding_ns(&self) -> u64 {
        self.outstanding_ns
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
    fn the_better_source_is_taken_where_it_is() {
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
            assert_eq!(sampler.outstanding_ns(), outstanding_ns, "{now_ns}");
        }
    }

    #[test]
    fn where_there_are_events_looks_tell_nothing() {
        assert_eq!(Sampler::default().look(Source::Events, 0, &stat('D', 5), 10), None);
    }
}
