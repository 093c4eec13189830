//! What the kernel has counted so far, as far as anybody may read it: CPU time, steal, throttling, pressure, clocks. Two of
//! these, at the start and at the end of a stretch of time, say what happened in it.
//!
//! Source: proc_stat(5); the kernel's Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst (`cpu.stat`) and
//! admin-guide/cgroup-v1/cpu.rst.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::throttled_ns;
use crate::clock;
use crate::proc::ProcRoot;

/// The names of RCU's main kthread: without and with preemptible readers.
const KTHREADS: [&str; 2] = ["rcu_sched", "rcu_preempt"];

/// Counts since boot, or since some fixed time. `None` stands for what this kernel does not tell us.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// By CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// The clock of the day minus CLOCK_MONOTONIC, ns.
    pub day_ns: i64,
    /// Time suspended, ns.
    pub suspended_ns: u64,
    /// Idle time of each CPU, ns, to a clock tick.
    pub idle_ns: BTreeMap<usize, u64>,
    /// Steal of each CPU, ns, to a clock tick.
    pub steal_ns: BTreeMap<usize, u64>,
    /// Throttling of the cgroups that this process is in, ns, by their directories.
    pub throttled_ns: BTreeMap<PathBuf, u64>,
    /// Time during which some task waited for a CPU (PSI), ns.
    pub cpu_wait_ns: Option<u64>,
    /// Time during which some task waited for memory (PSI), ns.
    pub memory_wait_ns: Option<u64>,
    /// How long RCU's kthread could run and did not, ns.
    pub kthread_wait_ns: Option<u64>,
}

impl Standing {
    /// How long a quota kept this process from running since then, ns: that of the cgroup that was throttled most, since one
    /// that is throttled within a throttled one must not count twice. `None` if no cgroup tells.
    pub fn throttled_since(&self, before: &Standing) -> Option<u64> {
        let grown =
            |(directory, ns): (&PathBuf, &u64)| Some(ns.saturating_sub(*before.throttled_ns.get(directory)?));
        self.throttled_ns.iter().filter_map(grown).max()
    }
}

/// Reads [`Standing`] again and again.
#[derive(Debug)]
pub struct Counters {
    root: ProcRoot,
    kthread: Option<i32>,
}

impl Counters {
    /// Finds RCU's kthread, once.
    pub fn new(root: &ProcRoot) -> Counters {
        let is_it = |pid: &i32| {
            let name = root.read_task(&format!("{pid}/comm")).unwrap_or_default();
            KTHREADS.contains(&name.trim())
        };
        // Its number is low: it starts before any process.
        let kthread = root.process_ids().ok().and_then(|pids| pids.into_iter().find(is_it));
        Counters { root: root.clone(), kthread }
    }

    /// The counts now.
    pub fn read(&self) -> Standing {
        let monotonic = clock_gettime(ClockId::Monotonic);
        let at_ns = clock::to_ns(monotonic);
        let day_ns = clock::to_ns(clock_gettime(ClockId::Realtime)) as i64 - at_ns as i64;
        let suspended_ns = clock::to_ns(clock_gettime(ClockId::Boottime)).saturating_sub(at_ns);
        let cpus = self.root.ticks_of_cpus().unwrap_or_default();
        let tick_ns = crate::proc::tick_ns();
        let of = |fields: &[usize]| -> BTreeMap<usize, u64> {
            let sum = |ticks: &[u64; 8]| fields.iter().map(|field| ticks[*field]).sum::<u64>() * tick_ns;
            cpus.iter().map(|(cpu, ticks)| (*cpu, sum(ticks))).collect()
        };
        Standing {
            at_ns,
            day_ns,
            suspended_ns,
            idle_ns: of(&[3, 4]),
            steal_ns: of(&[7]),
            throttled_ns: throttled_ns(&self.root),
            cpu_wait_ns: self.root.pressure_ns("cpu").ok(),
            memory_wait_ns: self.root.pressure_ns("memory").ok(),
            kthread_wait_ns: self.kthread.and_then(|pid| Some(self.root.schedstat(pid, pid).ok()?.delay_ns)),
        }
    }
}
