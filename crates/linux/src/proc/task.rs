//! One task (a thread) in `/proc/PID/task/TID`: its identity, its state, and where it may run.
//!
//! Source: proc_pid_stat(5), proc_pid_status(5), cgroups(7); the PF_ flags of include/linux/sched.h, which are field 9
//! of `stat`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use reprieve_policy::cpus::CpuSet;

use super::{ProcRoot, WAY_OUT_SYSTEM, WAY_OUT_TASK, tick_ns};
use crate::{Error, Result};

/// The longest line of `stat`: 52 fields of at most 20 digits, and a name of 64 bytes.
const STAT_BYTES: usize = 1200;

const PF_KTHREAD: u64 = 0x0020_0000;
const PF_IO_WORKER: u64 = 0x10;
/// Since Linux 6.4.
const PF_USER_WORKER: u64 = 0x4000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
/// Positions in `stat`, counted from the state, which is field 3 and follows the name.
const FLAGS: usize = 9 - 3;
const START_TIME: usize = 22 - 3;
const PROCESSOR: usize = 39 - 3;
const POLICY: usize = 41 - 3;
const BLKIO_TICKS: usize = 42 - 3;
const FIELDS: usize = BLKIO_TICKS + 1;
/// SCHED_DEADLINE, whose threads must not be bound to single CPUs (sched(7)).
const DEADLINE: u64 = 6;

/// The current state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat {
    /// Its state: `R` is runnable, `S` sleeps, `D` waits uninterruptibly (mostly for I/O), `Z` and `X` have ended.
    pub state: char,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
    /// Whether it is a thread that the kernel runs on behalf of its process, such as a worker of io_uring(7).
    pub is_io_worker: bool,
    /// Whether its affinity cannot be changed, because of a kernel flag or its scheduling policy.
    pub is_bound: bool,
    /// When it started, in clock ticks since boot. Together with the tid this identifies a task within one boot.
    pub start_ticks: u64,
    /// The CPU it runs on, or last ran on.
    pub cpu: usize,
    /// Time it has waited for block I/O, ns, to a clock tick; 0 unless delay accounting is on.
    pub io_wait_ns: u64,
}

/// The name, user, mask and cgroups of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskIdentity {
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Its real user id.
    pub user: u32,
    /// The CPUs it may run on: those its user allows, within its cpuset.
    pub mask: CpuSet,
    /// Its cgroups, one line per hierarchy, as in `/proc/PID/cgroup`.
    pub cgroups: String,
}

impl TaskStat {
    /// Whether the task has ended, though its parent may not have reaped it yet.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

impl ProcRoot {
    /// The ids of all processes, ascending.
    pub fn process_ids(&self) -> Result<Vec<i32>> {
        let entries = std::fs::read_dir(self.path());
        let entries = entries.map_err(|e| Error::io("list", self.path(), e, WAY_OUT_SYSTEM))?;
        Ok(super::ids(entries))
    }

    /// The identity of task `tid` of process `pid`.
    pub fn task_identity(&self, pid: i32, tid: i32) -> Result<TaskIdentity> {
        let relative = format!("{pid}/task/{tid}/status");
        let status = self.read_task(&relative)?;
        let parsed = || {
            let user = field(&status, "Uid:")?.split_ascii_whitespace().next()?.parse().ok()?;
            Some((user, field(&status, "Cpus_allowed_list:")?.parse().ok()?))
        };
        let (user, mask) = parsed()
            .ok_or_else(|| Error::malformed(self.join(&relative), "Uid and Cpus_allowed_list", &status))?;
        Ok(TaskIdentity {
            comm: self.read_task(&format!("{pid}/task/{tid}/comm"))?.trim_end().into(),
            user,
            mask,
            cgroups: self.read_task(&format!("{pid}/task/{tid}/cgroup")).unwrap_or_default(),
        })
    }

    /// The CPUs that task `tid` of process `pid` may run on, including offline ones.
    pub fn allowed_mask(&self, pid: i32, tid: i32) -> Result<CpuSet> {
        let relative = format!("{pid}/task/{tid}/status");
        let status = self.read_task(&relative)?;
        field(&status, "Cpus_allowed_list:")
            .and_then(|list| list.parse().ok())
            .ok_or_else(|| Error::malformed(self.join(&relative), "Cpus_allowed_list", &status))
    }

    /// The ids of task `tid` of process `pid`: in the PID namespace of `/proc`, then in each nested namespace that the
    /// task is in. Before Linux 4.1 only the first.
    pub fn numbers(&self, pid: i32, tid: i32) -> Result<Vec<i32>> {
        let status = self.read_task(&format!("{pid}/task/{tid}/status"))?;
        let list = field(&status, "NSpid:").unwrap_or_default();
        let numbers: Vec<i32> = list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
        Ok(if numbers.is_empty() { vec![tid] } else { numbers })
    }

    /// The current child processes of task `tid` of process `pid`, at most [`MAX_THREADS`](super::MAX_THREADS); empty
    /// if the kernel does not list them.
    pub fn children(&self, pid: i32, tid: i32) -> Vec<i32> {
        let text = self.read_task(&format!("{pid}/task/{tid}/children")).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).take(super::MAX_THREADS).collect()
    }

    /// Bytes that process `pid`, or only its task `tid`, has read from and written to devices; `None` if the kernel
    /// does not count them, or hides them from this user.
    pub fn io_bytes(&self, pid: i32, tid: Option<i32>) -> Option<u64> {
        let task = tid.map_or(String::new(), |tid| format!("task/{tid}/"));
        let text = self.read_task(&format!("{pid}/{task}io")).ok()?;
        let bytes = |name| field(&text, name)?.parse::<u64>().ok();
        Some(bytes("read_bytes:")?.saturating_add(bytes("write_bytes:")?))
    }

    /// Whether the kernel is known to count how long each task waits for block I/O (sysctl `kernel.task_delayacct`).
    /// Kernels before Linux 5.14 have no such sysctl, so the answer for them is no.
    pub fn counts_io_delay(&self) -> bool {
        self.read_system("sys/kernel/task_delayacct").is_ok_and(|text| text.trim() == "1")
    }
}

/// The value of a field in a text of lines `NAME: VALUE`; `name` includes the colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Reads one task's [`TaskStat`] repeatedly. The file stays open, and reads allocate nothing.
///
/// The open file belongs to the task, not to its number: once the task has ended, reads fail with [`Error::Gone`].
#[derive(Debug)]
pub struct TaskStatReader {
    file: File,
    tid: i32,
    ns_per_tick: u64,
}

impl TaskStatReader {
    /// Opens the file of task `tid` of process `pid`.
    pub fn open(root: &ProcRoot, pid: i32, tid: i32) -> Result<TaskStatReader> {
        let path = root.join(format!("{pid}/task/{tid}/stat"));
        let file = File::open(&path).map_err(|e| Error::task("open", &path, e, WAY_OUT_TASK))?;
        let ns_per_tick = tick_ns();
        Ok(TaskStatReader { file, tid, ns_per_tick })
    }

    /// Reads the current state. Allocates only to report an error.
    pub fn read(&self) -> Result<TaskStat> {
        let mut buffer = [0; STAT_BYTES];
        let name = || crate::error::thread_path(self.tid);
        let length =
            self.file.read_at(&mut buffer, 0).map_err(|e| Error::task("read", name(), e, WAY_OUT_TASK))?;
        parse(&buffer[..length], self.ns_per_tick).ok_or_else(|| {
            let text = String::from_utf8_lossy(&buffer[..length]);
            Error::malformed(name().join("stat"), "42 fields", &text)
        })
    }
}

fn parse(line: &[u8], ns_per_tick: u64) -> Option<TaskStat> {
    // The name may contain any bytes, but nothing after it contains a parenthesis.
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&line[name_end + 1..]).ok()?;
    let mut fields = [""; FIELDS];
    let mut words = text.split_ascii_whitespace();
    for field in &mut fields {
        *field = words.next()?;
    }
    let number = |field: usize| fields[field].parse::<u64>().ok();
    let flags = number(FLAGS)?;
    Some(TaskStat {
        state: fields[0].chars().next()?,
        is_kernel: flags & PF_KTHREAD != 0,
        is_io_worker: flags & (PF_IO_WORKER | PF_USER_WORKER) != 0,
        is_bound: flags & PF_NO_SETAFFINITY != 0 || number(POLICY)? == DEADLINE,
        start_ticks: number(START_TIME)?,
        cpu: number(PROCESSOR)? as usize,
        io_wait_ns: number(BLKIO_TICKS)?.saturating_mul(ns_per_tick),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    /// A line of `stat` with these fields.
    pub(crate) fn line(name: &str, state: char, flags: u64, cpu: usize, ticks: u64) -> String {
        format!(
            "42 ({name}) {state} 1 42 42 0 -1 {flags} 9 0 0 0 1 2 0 0 20 0 1 0 777 1000 10 18446744073709551615 \
             1 1 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0 {ticks} 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    #[test]
    fn a_task_of_any_name_is_read() {
        let proc = FakeProc::new();
        for name in ["fio", "two words", ") S 9 9 (", "\u{fffd}"] {
            proc.put("42/task/42/stat", &line(name, 'D', 0x40_0000, 3, 25));
            let stat = TaskStatReader::open(&proc.root, 42, 42).unwrap().read().unwrap();
            let expected = TaskStat {
                state: 'D',
                is_kernel: false,
                is_io_worker: false,
                is_bound: false,
                start_ticks: 777,
                cpu: 3,
                io_wait_ns: 25 * tick_ns(),
            };
            assert_eq!(stat, expected, "{name}");
        }
    }

    #[test]
    fn kernel_threads_io_workers_and_bound_tasks_are_recognized() {
        let read = |flags| parse(line("x", 'S', flags, 0, 0).as_bytes(), 1).unwrap();
        assert!(
            read(PF_IO_WORKER).is_io_worker && read(PF_USER_WORKER).is_io_worker && !read(0).is_io_worker
        );
        assert!(read(PF_KTHREAD).is_kernel && !read(PF_KTHREAD).is_bound);
        assert!(read(PF_NO_SETAFFINITY).is_bound && !read(PF_NO_SETAFFINITY).is_kernel);
        let deadline = line("x", 'S', 0, 0, 0).replace(" 17 0 0 0 ", " 17 0 0 6 ");
        assert!(parse(deadline.as_bytes(), 1).unwrap().is_bound);
    }

    #[test]
    fn a_short_line_is_malformed() {
        let proc = FakeProc::new();
        proc.put("42/task/42/stat", "42 (x) S 1 2\n");
        let read = TaskStatReader::open(&proc.root, 42, 42).unwrap().read();
        assert!(matches!(read, Err(Error::Malformed { .. })));
        assert!(TaskStatReader::open(&proc.root, 43, 43).unwrap_err().is_gone());
    }

    #[test]
    fn identity_comes_from_status_comm_and_cgroup() {
        let proc = FakeProc::new();
        let status = "Name:\tfio\nUid:\t1000\t0\t0\t0\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\n";
        proc.put("7/task/8/status", status).put("7/task/8/comm", "fio\n").put("7/task/8/cgroup", "0::/a/b\n");
        let identity = proc.root.task_identity(7, 8).unwrap();
        assert_eq!((identity.comm.as_str(), identity.user), ("fio", 1000));
        assert_eq!((identity.mask.to_string().as_str(), identity.cgroups.as_str()), ("0-1,3", "0::/a/b\n"));
        assert_eq!(proc.root.allowed_mask(7, 8).unwrap(), identity.mask);
        proc.put("7/task/8/status", "Uid:\t0\n").put("7/task/8/children", "9 10 \n");
        assert!(matches!(proc.root.task_identity(7, 8), Err(Error::Malformed { .. })));
        assert!(matches!(proc.root.allowed_mask(7, 8), Err(Error::Malformed { .. })));
        assert!(proc.root.allowed_mask(7, 9).unwrap_err().is_gone());
        assert_eq!((proc.root.children(7, 8), proc.root.children(7, 9)), (vec![9, 10], vec![]));
    }

    #[test]
    fn this_thread_can_be_read() {
        let (root, tid) = (ProcRoot::default(), crate::threads::own_tid());
        let pid = std::process::id() as i32;
        let stat = TaskStatReader::open(&root, pid, tid).unwrap().read().unwrap();
        assert!(stat.state == 'R' && !stat.is_kernel && stat.start_ticks > 0);
        let mask = crate::threads::affinity(tid).unwrap();
        assert!(root.task_identity(pid, tid).unwrap().mask.iter().eq(mask));
        assert!(root.process_ids().unwrap().contains(&pid));
    }

    #[test]
    fn the_sysctl_shows_whether_io_delay_is_counted() {
        let proc = FakeProc::new();
        assert!(!proc.root.counts_io_delay());
        proc.put("sys/kernel/task_delayacct", "1\n");
        assert!(proc.root.counts_io_delay());
    }
}
