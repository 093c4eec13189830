//! Live tasks for tests, which can be bound without disturbing anybody.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};

use reprieve_policy::cpus::CpuSet;

use crate::migrate::masks::{Held, Saved};
use crate::proc::{ProcRoot, SysCpus, TaskStatReader};
use crate::threads;

/// A shell that executes commands. Dropping it kills it and the processes it started.
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
        // After an answer it has certainly started.
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

    /// Executes a command that prints a number, and returns the number.
    pub fn tell(&mut self, command: &str) -> i32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Starts a child process that sleeps.
    pub fn fork(&mut self) -> i32 {
        self.start_other("sleep 1000 >/dev/null & echo $!")
    }

    /// Starts a grandchild that sleeps; the child between has ended.
    pub fn fork_twice(&mut self) -> i32 {
        self.start_other("(sleep 1000 >/dev/null & echo $!)")
    }

    fn start_other(&mut self, command: &str) -> i32 {
        let pid = self.tell(command);
        self.started.push(pid);
        pid
    }

    /// Starts a child that binds itself and sleeps.
    pub fn fork_pinned(&mut self, cpu: usize) -> i32 {
        let pid = self.start_other(&format!("taskset -c {cpu} sleep 1000 >/dev/null & echo $!"));
        // Wait until it has bound itself and sleeps.
        let is_asleep =
            || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n");
        while !is_asleep() {
            std::thread::yield_now();
        }
        pid
    }

    /// Binds a process from another one.
    pub fn pin(&self, pid: i32, mask: &CpuSet) {
        let mut taskset = Command::new("taskset");
        let done =
            taskset.args(["-p", "-c", &mask.to_string(), &pid.to_string()]).stdout(Stdio::null()).status();
        assert!(done.unwrap().success());
    }

    /// Kills a process that it has started, and waits until it is gone.
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

/// A process as the roster would save it, with this mask.
pub fn saved(pid: i32, mask: CpuSet) -> Saved {
    let stat = TaskStatReader::open(&ProcRoot::default(), pid, pid).unwrap().read().unwrap();
    let whole = SysCpus::default().cpuset_of(&ProcRoot::default(), pid, pid).is_subset(&mask);
    let bound_ticks = crate::clock::boot_ticks();
    Saved { pid, tid: pid, start_ticks: stat.start_ticks, bound_ticks, mask, whole }
}

/// Two CPUs to move between; without them, prints that the test is skipped.
pub fn two_cpus() -> Option<(usize, usize)> {
    let own = threads::affinity_set(threads::own_tid()).unwrap();
    let mut cpus = own.iter();
    let two = cpus.next().zip(cpus.next());
    if two.is_none() {
        eprintln!("skipped: one CPU");
    }
    two
}

/// Keeps two kinds of tests apart: those that make more calls of sched_setaffinity(2) than records hold, and those that
/// need the records. Any number of one kind may run at a time. The guard can be sent to other threads.
pub struct Turn(i32);

static TURNS: Mutex<i32> = Mutex::new(0);
static OVER: Condvar = Condvar::new();

impl Turn {
    /// For a test that needs the records.
    pub fn of_a_call_watch() -> Turn {
        Turn::take(1)
    }

    /// For a test that floods the records.
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
