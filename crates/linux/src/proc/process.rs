//! What `/proc` says about one process: its identity, its threads, their CPU time, their names.
//!
//! A process is identified by its PID and its start time together: PIDs are used again, the pair is not
//! (within one boot, at the resolution of a clock tick). Source: proc_pid_stat(5).

use super::{ProcRoot, tick_ns};
use crate::{Error, Result};

/// The most threads of one process that are listed.
pub const MAX_THREADS: usize = 65_536;

/// Positions in `/proc/PID/stat`, counted from the state, which is field 3 and follows the name.
const USER_TIME_AFTER_NAME: usize = 14 - 3;
const START_TIME_AFTER_NAME: usize = 22 - 3;

impl ProcRoot {
    /// When process `pid` started, in clock ticks since boot. Together with the PID this identifies a process.
    pub fn start_time_ticks(&self, pid: i32) -> Result<u64> {
        self.stat_fields(pid, START_TIME_AFTER_NAME, "a start time in field 22", |[ticks]| ticks)
    }

    /// Whether process `pid` has ended and only waits for its parent to reap it. Some parents never do.
    pub fn is_zombie(&self, pid: i32) -> Result<bool> {
        let text = self.read_task(&format!("{pid}/stat"))?;
        let has_ended = matches!(after_name(&text).trim_start().chars().next(), Some('Z' | 'X' | 'x'));
        // The first thread may have ended while others still run.
        Ok(has_ended && self.thread_ids(pid).is_ok_and(|threads| threads.len() <= 1))
    }

    /// CPU time of process `pid` since its start, including ended threads, ns, to a clock tick. It can still be read
    /// after the process has ended, until its parent reaps it.
    pub fn whole_cpu_ns(&self, pid: i32) -> Result<u64> {
        let sum = |[user, system]: [u64; 2]| user.saturating_add(system).saturating_mul(tick_ns());
        self.stat_fields(pid, USER_TIME_AFTER_NAME, "CPU times in fields 14 and 15", sum)
    }

    /// Computes a value from `N` neighbouring fields of `/proc/PID/stat`; `first` is the position after the state.
    fn stat_fields<const N: usize>(
        &self,
        pid: i32,
        first: usize,
        expected: &'static str,
        value: impl Fn([u64; N]) -> u64,
    ) -> Result<u64> {
        let relative = format!("{pid}/stat");
        let text = self.read_task(&relative)?;
        let fields = after_name(&text).split_ascii_whitespace().skip(first).take(N);
        let numbers: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
        numbers
            .and_then(|numbers| Some(value(numbers.try_into().ok()?)))
            .ok_or_else(|| Error::malformed(self.join(&relative), expected, &text))
    }

    /// The ids of the live threads of process `pid`, ascending, at most [`MAX_THREADS`].
    pub fn thread_ids(&self, pid: i32) -> Result<Vec<i32>> {
        let path = self.join(format!("{pid}/task"));
        let way_out = "run as the user who owns the process, or as root";
        let entries = std::fs::read_dir(&path).map_err(|e| Error::task("list", &path, e, way_out))?;
        Ok(super::ids(entries.take(MAX_THREADS)))
    }

    /// Memory of process `pid` that is in RAM, bytes.
    pub fn resident_bytes(&self, pid: i32) -> Result<u64> {
        let relative = format!("{pid}/statm");
        let text = self.read_task(&relative)?;
        let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let bytes = pages.and_then(|pages| pages.checked_mul(rustix::param::page_size() as u64));
        bytes.ok_or_else(|| Error::malformed(self.join(&relative), "resident pages in field 2", &text))
    }

    /// The sum of the CPU times of the live threads of process `pid`, ns.
    ///
    /// Ended threads do not count, so the sum can fall.
    pub fn process_cpu_ns(&self, pid: i32) -> Result<u64> {
        let mut sum_ns = 0u64;
        for tid in self.thread_ids(pid)? {
            match self.schedstat(pid, tid) {
                Ok(stat) => sum_ns = sum_ns.saturating_add(stat.run_ns),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sum_ns)
    }
}

/// The part of `/proc/PID/stat` after the name. The name may contain parentheses, but nothing after it does.
fn after_name(stat: &str) -> &str {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    fn stat(name: &str, start: u64) -> String {
        format!("42 ({name}) S 1 42 42 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 {start} 1000 10\n")
    }

    #[test]
    fn start_time_of_any_name() {
        let proc = FakeProc::new();
        for name in ["plain", "two words", "CPU 0/TCG", ") S 9 9 (", "(((", ")))"] {
            proc.put("42/stat", &stat(name, 777));
            assert_eq!(proc.root.start_time_ticks(42).unwrap(), 777, "{name}");
        }
    }

    #[test]
    fn a_short_stat_is_malformed_and_none_is_gone() {
        let proc = FakeProc::new();
        proc.put("42/stat", "42 (x) S 1 2\n");
        assert!(matches!(proc.root.start_time_ticks(42), Err(Error::Malformed { .. })));
        assert!(proc.root.start_time_ticks(43).unwrap_err().is_gone());
    }

    #[test]
    fn a_zombie_is_one_when_all_its_threads_have_ended() {
        let proc = FakeProc::new();
        let is_zombie = |state: &str| {
            proc.put("42/stat", &format!("42 (a) R b) {state} 1 2\n"));
            proc.root.is_zombie(42).unwrap()
        };
        proc.put("42/task/42/comm", "");
        assert!(is_zombie("Z") && is_zombie("X") && !is_zombie("S") && !is_zombie("D"));
        proc.put("42/task/43/comm", "");
        assert!(!is_zombie("Z"));
    }

    #[test]
    fn the_whole_cpu_time_is_user_and_system_time_of_all_threads() {
        let proc = FakeProc::new();
        proc.put("42/stat", &stat(") S 9 9 (", 777));
        assert_eq!(proc.root.whole_cpu_ns(42).unwrap(), 3 * tick_ns());
        proc.put("42/stat", "42 (x) S 1 2\n");
        assert!(matches!(proc.root.whole_cpu_ns(42), Err(Error::Malformed { .. })));
    }

    #[test]
    fn cpu_time_is_summed_over_threads_and_skips_one_that_ended() {
        let proc = FakeProc::new();
        proc.put("5/task/5/schedstat", "100 0 1\n").put("5/task/6/schedstat", "23 0 1\n");
        proc.put("5/task/7/comm", "ended between the listing and the reading\n");
        assert_eq!(proc.root.thread_ids(5).unwrap(), [5, 6, 7]);
        assert_eq!(proc.root.process_cpu_ns(5).unwrap(), 123);
        proc.remove("5");
        assert!(proc.root.process_cpu_ns(5).unwrap_err().is_gone());
    }

    #[test]
    fn this_process_has_an_identity_and_burns_cpu() {
        let (root, pid) = (ProcRoot::default(), std::process::id() as i32);
        assert!(root.start_time_ticks(pid).unwrap() > 0);
        assert!(root.process_cpu_ns(pid).unwrap() > 0);
    }
}
