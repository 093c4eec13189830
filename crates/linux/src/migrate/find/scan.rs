//! Scans all tasks, a few at a time, for those that do I/O: tasks that wait for I/O now, and tasks that have waited for
//! I/O, or read or written bytes, since the last look. If a whole process has read and written nothing since then, its
//! tasks are skipped.
//!
//! A look at 10,000 tasks takes a tenth of a second of CPU time, so a round is spread over many calls, each of which
//! the caller ends in time. Invariant: the scan never finds a kernel thread, a task whose affinity cannot be changed,
//! or one of the daemon's own.

use std::collections::{HashMap, HashSet};

use super::Source;
use crate::proc::{ProcRoot, TaskStat, TaskStatReader};

/// The most tasks and processes remembered between rounds. Beyond that all are forgotten, and one round has nothing to
/// compare with.
const MAX_REMEMBERED: usize = 1 << 17;

/// Re-check known kernel threads only every this many rounds, in case their PID was reused.
const KERNEL_ROUNDS: u64 = 16;

/// A task that does I/O, with its state when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub pid: i32,
    pub tid: i32,
    pub stat: TaskStat,
}

/// A scan that goes through all tasks again and again, in rounds.
#[derive(Debug)]
pub struct Scan {
    root: ProcRoot,
    source: Source,
    own_pid: i32,
    /// Processes still to be looked at in this round.
    pids: Vec<i32>,
    /// Tasks of process `pid` still to be looked at.
    tids: Vec<i32>,
    pid: i32,
    /// What the last look at each process (tid 0) and task found: its start time (0 for processes), and its wait time
    /// or bytes.
    last: HashMap<(i32, i32), (u64, u64)>,
    /// Processes that are kernel threads. They are often the majority, so most rounds skip them.
    kernel: HashSet<i32>,
    rounds: u64,
}

impl Scan {
    /// Scans the tasks below `root`, except those of process `own_pid`.
    pub fn new(root: &ProcRoot, source: Source, own_pid: i32) -> Scan {
        Scan {
            root: root.clone(),
            source,
            own_pid,
            pids: Vec::new(),
            tids: Vec::new(),
            pid: 0,
            last: HashMap::new(),
            kernel: HashSet::new(),
            rounds: 0,
        }
    }

    /// Looks at tasks while `go_on` returns true, at most to the end of the round, and returns those that do I/O.
    pub fn advance(&mut self, mut go_on: impl FnMut() -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        while go_on() {
            if let Some(tid) = self.tids.pop() {
                found.extend(self.look(tid));
            } else if let Some(pid) = self.pids.pop() {
                self.pid = pid;
                // Not idle: a process looked at for the first time, or whose bytes cannot be read.
                let idle = self.has_grown(pid, 0, 0, self.root.io_bytes(pid, None)) == Some(false);
                self.tids = if idle { Vec::new() } else { self.root.thread_ids(pid).unwrap_or_default() };
            } else {
                if self.rounds.is_multiple_of(KERNEL_ROUNDS) {
                    self.kernel.clear();
                }
                self.pids = self.root.process_ids().unwrap_or_default();
                self.pids.retain(|pid| *pid != self.own_pid && !self.kernel.contains(pid));
                if self.last.len() > MAX_REMEMBERED {
                    self.last.clear();
                }
                self.rounds += 1;
                if self.rounds > 1 {
                    break;
                }
            }
        }
        found
    }

    /// Looks at a task that is known to do I/O. Returns `None` if it has ended, or must not be managed.
    pub fn find(&self, pid: i32, tid: i32) -> Option<Found> {
        let stat = TaskStatReader::open(&self.root, pid, tid).ok()?.read().ok()?;
        (pid != self.own_pid && !stat.is_kernel && !stat.is_bound).then_some(Found { pid, tid, stat })
    }

    /// Whether two whole rounds are over, so that two looks at each task could be compared.
    pub fn has_compared(&self) -> bool {
        self.rounds > 2
    }

    fn look(&mut self, tid: i32) -> Option<Found> {
        let stat = TaskStatReader::open(&self.root, self.pid, tid).ok()?.read().ok()?;
        if stat.is_kernel {
            self.kernel.insert(self.pid);
        }
        if stat.is_kernel || stat.is_bound {
            return None;
        }
        let amount = match self.source {
            Source::Events | Source::States => self.root.io_bytes(self.pid, Some(tid)),
            Source::DelayAccounting => Some(stat.io_wait_ns),
        };
        let grew = self.has_grown(self.pid, tid, stat.start_ticks, amount) == Some(true);
        let does_io = grew || stat.state == 'D';
        does_io.then_some(Found { pid: self.pid, tid, stat })
    }

    /// Whether the wait time or bytes of a task (or process, with `tid` 0) have grown since the last look; `None` if
    /// unknown.
    fn has_grown(&mut self, pid: i32, tid: i32, start: u64, amount: Option<u64>) -> Option<bool> {
        let now = (start, amount?);
        let before = self.last.insert((pid, tid), now)?;
        // With another start time, it is another task that reuses the id.
        (before.0 == now.0).then_some(now.1 > before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    fn line(state: char, flags: u64, ticks: u64) -> String {
        format!(
            "1 (a task) {state} 1 1 1 0 -1 {flags} 9 0 0 0 1 2 0 0 20 0 1 0 777 1000 10 18446744073709551615 1 1 0 0 0 0 \
             0 0 0 0 0 0 17 1 0 0 {ticks} 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    fn put(proc: &FakeProc, pid: i32, tid: i32, line: &str) {
        proc.put(&format!("{pid}/task/{tid}/stat"), line);
    }

    fn round(scan: &mut Scan) -> Vec<i32> {
        let mut found: Vec<i32> = scan.advance(|| true).iter().map(|found| found.tid).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn waiting_tasks_are_found_and_kernel_threads_never() {
        let proc = FakeProc::new();
        put(&proc, 5, 5, &line('S', 0, 0));
        put(&proc, 5, 6, &line('D', 0, 0));
        put(&proc, 7, 7, &line('D', 0x0020_0000, 0));
        put(&proc, 8, 8, &line('D', 0x0400_0000, 0));
        put(&proc, 9, 9, &line('D', 0, 0));
        proc.put("10/task/10/stat", "nonsense").put("11/comm", "x").put("not a process/x", "");
        let mut scan = Scan::new(&proc.root, Source::States, 9);
        let named = [(5, 5), (5, 6), (7, 7), (8, 8), (9, 9), (10, 10), (12, 12)];
        let found: Vec<i32> =
            named.iter().filter_map(|(pid, tid)| Some(scan.find(*pid, *tid)?.tid)).collect();
        assert_eq!(found, [5, 6]);
        assert_eq!(round(&mut scan), [6]);
        assert_eq!(round(&mut scan), [6], "found again in the next round");
        // Kernel threads' ids are reused eventually.
        put(&proc, 7, 7, &line('D', 0, 0));
        let rounds = (0..=KERNEL_ROUNDS).find(|_| round(&mut scan).contains(&7));
        assert!(rounds.is_some_and(|rounds| rounds > 0), "{rounds:?}");
    }

    #[test]
    fn a_wait_that_grew_between_two_rounds_is_found() {
        let proc = FakeProc::new();
        put(&proc, 5, 5, &line('S', 0, 10));
        put(&proc, 6, 6, &line('S', 0, 10));
        let mut scan = Scan::new(&proc.root, Source::DelayAccounting, 1);
        assert!(round(&mut scan).is_empty());
        put(&proc, 5, 5, &line('R', 0, 12));
        // Id 6 now belongs to another task.
        put(&proc, 6, 6, &line('R', 0, 12).replace(" 777 ", " 888 "));
        assert_eq!(round(&mut scan), [5]);
        assert!(round(&mut scan).is_empty());
    }

    #[test]
    fn bytes_read_between_two_rounds_are_found() {
        let proc = FakeProc::new();
        let io = |read: u64| format!("rchar: 9\nread_bytes: {read}\nwrite_bytes: 7\n");
        for tid in [5, 6] {
            put(&proc, 5, tid, &line('S', 0, 0));
            proc.put(&format!("5/task/{tid}/io"), &io(0));
        }
        proc.put("5/io", &io(0));
        let mut scan = Scan::new(&proc.root, Source::States, 1);
        assert!(round(&mut scan).is_empty());
        proc.put("5/io", &io(4096)).put("5/task/6/io", &io(4096));
        assert_eq!(round(&mut scan), [6]);
        // A process that read and wrote nothing is skipped.
        put(&proc, 5, 5, &line('D', 0, 0));
        assert!(round(&mut scan).is_empty());
    }

    #[test]
    fn ten_thousand_tasks_are_looked_at_a_few_at_a_time() {
        let proc = FakeProc::new();
        for pid in 1..=100 {
            (0..100)
                .for_each(|i| put(&proc, pid, pid * 1000 + i, &line(if i == 50 { 'D' } else { 'S' }, 0, 0)));
        }
        let mut scan = Scan::new(&proc.root, Source::States, 0);
        let (mut found, mut calls) = (0, 0);
        while scan.rounds < 2 {
            let mut left = 60;
            found += scan
                .advance(|| {
                    left -= 1;
                    left >= 0
                })
                .len();
            calls += 1;
        }
        assert_eq!(found, 100);
        assert!(calls > 10_000 / 60, "{calls}");
    }
}
