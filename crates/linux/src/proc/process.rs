//! What `/proc` says about one process: its identity, its threads, their CPU time, their names.
//!
//! A process is identified by its PID and its start time together: PIDs are used again, the pair is not
//! (within one boot, at the resolution of a clock tick). Source: proc_pid_stat(5).

use super::ProcRoot;
use crate::error::{Error, Result};

/// The most threads of one process that are looked at.
pub const MAX_THREADS: usize = 65_536;

/// Fields of `/proc/PID/stat`, counted from the state, which is field 3 and follows the name.
const USER_TIME_AFTER_NAME: usize = 14 - 3;
const START_TIME_AFTER_NAME: usize = 22 - 3;

const NS_PER_S: u64 = 1_000_000_000;

impl ProcRoot {
    /// When process `pid` started, in clock ticks since boot. Together with the PID it names a process.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process, [`Error::Malformed`].
    pub fn start_time_ticks(&self, pid: i32) -> Result<u64> {
        self.stat_fields(pid, START_TIME_AFTER_NAME, "a start time in field 22", |[ticks]| ticks)
    }

    /// Whether process `pid` has ended, and is there only until its parent takes notice: some never do.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process.
    pub fn is_zombie(&self, pid: i32) -> Result<bool> {
        let text = self.read_task(&format!("{pid}/stat"))?;
        let has_ended = matches!(after_name(&text).trim_start().chars().next(), Some('Z' | 'X' | 'x'));
        // A first thread that has ended does not end the others.
        Ok(has_ended && self.thread_ids(pid).is_ok_and(|threads| threads.len() <= 1))
    }

    /// CPU time of process `pid` since its start, threads that have ended included, ns, to a clock tick. A process that
    /// has ended and was not waited for still has it.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process, [`Error::Malformed`].
    pub fn whole_cpu_ns(&self, pid: i32) -> Result<u64> {
        let ns_per_tick = NS_PER_S / rustix::param::clock_ticks_per_second().max(1);
        let sum = |[user, system]: [u64; 2]| user.saturating_add(system).saturating_mul(ns_per_tick);
        self.stat_fields(pid, USER_TIME_AFTER_NAME, "CPU times in fields 14 and 15", sum)
    }

    /// A value of `N` neighbouring fields of `/proc/PID/stat`, from the one that is `first` after the state on.
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
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process, [`Error::NotPermitted`].
    pub fn thread_ids(&self, pid: i32) -> Result<Vec<i32>> {
        let path = self.join(format!("{pid}/task"));
        let way_out = "run as the user who owns the process, or as root";
        let entries = std::fs::read_dir(&path).map_err(|e| Error::task("list", &path, e, way_out))?;
        let mut tids: Vec<i32> = entries
            .take(MAX_THREADS)
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        Ok(tids)
    }

    /// CPU time of the live threads of process `pid`, summed, ns.
    ///
    /// Threads that ended take their time with them: the sum of a process that ends threads can fall.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process, [`Error::NotPermitted`], [`Error::Malformed`].
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

/// What `/proc/PID/stat` has after the name, which may hold spaces and parentheses; nothing behind it does.
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
        let tick_ns = NS_PER_S / rustix::param::clock_ticks_per_second();
        assert_eq!(proc.root.whole_cpu_ns(42).unwrap(), 3 * tick_ns);
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
