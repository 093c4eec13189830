//! Live tasks for tests: they can be bound without disturbing anybody.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};

use reprieve_policy::cpus::CpuSet;

use crate::migrate::masks::state_record::Saved;
use crate::migrate::masks::table::Held;
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};
use crate::threads;

/// A shell that does what it is told; killed when dropped, with what it has started last.
pub struct Shell {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    started: Vec<i32>,
}

impl Shell {
    pub fn start() -> Shell {
        let mut command = Command::new("sh");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut shell = Shell { child, said, started: Vec::new() };
        // It is past its exec and its own start.
        assert_eq!(shell.tell("echo 1"), 1);
        shell
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn mask(&self) -> CpuSet {
        threads::affinity_set(self.pid()).unwrap()
    }

    pub fn bind(&self, mask: &CpuSet) {
        threads::set_affinity_set(self.pid(), mask).unwrap();
    }

    /// Has it do something that prints a number.
    pub fn tell(&mut self, command: &str) -> i32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Has it start a process that sleeps, a child of its own.
    pub fn fork(&mut self) -> i32 {
        let pid = self.tell("sleep 1000 >/dev/null & echo $!");
        self.started.push(pid);
        pid
    }

    /// Has it start one by way of a child that has ended since.
    pub fn fork_twice(&mut self) -> i32 {
        let pid = self.tell("(sleep 1000 >/dev/null & echo $!)");
        self.started.push(pid);
        pid
    }

    /// Has it start a process that binds itself.
    pub fn fork_pinned(&mut self, cpu: usize) -> i32 {
        let pid = self.tell(&format!("taskset -c {cpu} sleep 1000 >/dev/null & echo $!"));
        self.started.push(pid);
        // It has bound itself, and has come to sleep.
        let is_asleep =
            || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n");
        while !is_asleep() {
            std::thread::yield_now();
        }
        pid
    }

    /// Has somebody else bind a process.
    pub fn pin(&self, pid: i32, mask: &CpuSet) {
        let mut taskset = Command::new("taskset");
        let done =
            taskset.args(["-p", "-c", &mask.to_string(), &pid.to_string()]).stdout(Stdio::null()).status();
        assert!(done.unwrap().success());
    }

    /// Kills one that it has started, and waits until nobody sees it any more.
    pub fn kill(&mut self, pid: i32) {
        assert_eq!(self.tell(&format!("kill -9 {pid}; wait {pid} 2>/dev/null; echo 1")), 1);
        self.started.retain(|started| *started != pid);
    }

    pub fn saved(&self) -> Saved {
        saved(self.pid(), self.mask())
    }

    pub fn held(&self) -> Held {
        Held::new(self.saved(), self.mask(), None)
    }

    pub fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for pid in &self.started {
            let pid = rustix::process::Pid::from_raw(*pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process as it is saved, with all CPUs as its cpuset.
pub fn saved(pid: i32, mask: CpuSet) -> Saved {
    let stat = TaskStatReader::open(&ProcRoot::default(), pid, pid).unwrap().read().unwrap();
    let whole = SysCpus::default().cpuset_of(&ProcRoot::default(), pid, pid).is_subset(&mask);
    let bound_ticks = crate::migrate::clock::boot_ticks();
    Saved { pid, tid: pid, start_ticks: stat.start_ticks, bound_ticks, mask, whole }
}

/// Two CPUs to move between; a test without says so.
pub fn two_cpus() -> Option<(usize, usize)> {
    let own = threads::affinity_set(threads::own_tid()).unwrap();
    let mut cpus = own.iter();
    let two = cpus.next().zip(cpus.next());
    if two.is_none() {
        eprintln!("skipped: one CPU");
    }
    two
}

/// Tests that make more calls of sched_setaffinity(2) than records hold, and tests that need those records, take turns: any number
/// of the one kind at a time, as these guards live. They can be sent to other threads.
pub struct Turn(i32);

static TURNS: Mutex<i32> = Mutex::new(0);
static OVER: Condvar = Condvar::new();

impl Turn {
    /// Needs the records.
    pub fn of_a_call_watch() -> Turn {
        Turn::take(1)
    }

    /// Floods them.
    pub fn of_a_flood() -> Turn {
        Turn::take(-1)
    }

    fn take(step: i32) -> Turn {
        let turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let others = |turns: &mut i32| *turns * step < 0;
        *OVER.wait_while(turns, others).unwrap_or_else(PoisonError::into_inner) += step;
        Turn(step)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        OVER.notify_all();
    }
}
