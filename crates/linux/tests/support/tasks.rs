//! Binds and restores tasks without a daemon: a table, a state file, and sleeping processes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::migrate::{Bound, Doubtful, Held, Restored, Roots, Saved, StateFile, Table};
use reprieve_linux::proc::{ProcRoot, TaskStatReader};
use reprieve_linux::threads;
use reprieve_policy::cpus::CpuSet;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A sleeping process. Dropping it kills it.
pub struct Sleeping(Child);

impl Sleeping {
    pub fn start() -> Sleeping {
        Sleeping(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn tid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn mask(&self) -> CpuSet {
        threads::affinity_set(self.tid()).unwrap()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn saved(tid: i32, mask: CpuSet) -> Saved {
    let stat = TaskStatReader::open(&ProcRoot::default(), tid, tid).unwrap().read().unwrap();
    Saved { pid: tid, tid, start_ticks: stat.start_ticks, bound_ticks: stat.start_ticks, mask, whole: false }
}

/// Opens the state file, waiting for its lock: a child that another test has forked holds released locks until its
/// exec.
pub fn open(folder: &Path) -> StateFile {
    let since = Instant::now();
    loop {
        match StateFile::open(&folder.join("state"), &ProcRoot::default()) {
            Ok(state) => return state,
            Err(e) => assert!(since.elapsed() < PATIENCE, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn restore(state: &StateFile) -> Restored {
    state.restore(&Roots::default(), Doubtful::Leave).unwrap()
}

/// A table of these tasks, whose users allow `mask`.
pub fn table(state: StateFile, tids: &[i32], mask: CpuSet) -> Table {
    let table = Table::new(tids.len(), Some(state));
    for (slot, tid) in tids.iter().enumerate() {
        assert!(table.fill(slot, Held::new(saved(*tid, mask), mask, None)).unwrap());
    }
    table
}

/// Orders a task to a CPU, carries that out, and returns the outcome.
pub fn bind(table: &Table, slot: usize, cpu: Option<usize>) -> Bound {
    let mut last = Bound::Same;
    table.want(slot, cpu);
    table.carry_out(slot, |bound| last = bound);
    last
}

/// The CPUs, if there are two to move between; otherwise prints that the test is skipped.
pub fn two_cpus() -> Option<CpuSet> {
    let own = threads::affinity_set(threads::own_tid()).unwrap();
    if own.len() < 2 {
        eprintln!("skipped: one CPU");
        return None;
    }
    Some(own)
}
