//! What `/proc` says about one process: its identity, its threads, their CPU time, their names.
//!
//! A process is identified by its PID and its start time together: PIDs are used again, the pair is not
//! (within one boot, at the resolution of a clock tick). Source: proc_pid_stat(5).

use super::ProcRoot;
use crate::error::{Error, Result};

/// The most threads of one process that are looked at.
pub const MAX_THREADS: usize = 65_536;

/// Field 22 of `/proc/PID/stat`, counted from the state, which is field 3 and follows the name.
const START_TIME_AFTER_NAME: usize = 22 - 3;

impl ProcRoot {
    /// When process `pid` started, in clock ticks since boot. Together with the PID it names a process.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process, [`Error::Malformed`].
    pub fn start_time_ticks(&self, pid: i32) -> Result<u64> {
        let relative = format!("{pid}/stat");
        let text = self.read_task(&relative)?;
        // The name may hold spaces and parentheses; nothing after its closing parenthesis does.
        let after_name = text.rsplit_once(')').map(|(_, rest)| rest);
        after_name
            .and_then(|rest| rest.split_ascii_whitespace().nth(START_TIME_AFTER_NAME)?.parse().ok())
            .ok_or_else(|| Error::malformed(self.join(&relative), "a start time in field 22", &text))
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
