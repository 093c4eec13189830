//! Records through perf which task each CPU ran, and when.
//!
//! One software event per CPU requests `PERF_RECORD_SWITCH_CPU_WIDE`: at every switch the kernel writes which task starts to
//! run. Nothing is sampled. It needs CAP_PERFMON or `perf_event_paranoid` <= 0, since it sees tasks of all users.
//!
//! Names are read as tasks are first seen, since many have ended by the end.
//!
//! Invariants: the stretches of one CPU do not overlap and come in the order of time; their number is limited, and what found
//! no room is counted. Source: perf_event_open(2).

use std::collections::BTreeMap;

use reprieve_policy::cpus::CpuSet;

use crate::Result;
use crate::perf::event::dummy_attributes;
use crate::perf::per_cpu::{EventSpec, PerCpu};
use crate::perf::record::PerfRecord;
use crate::proc::ProcRoot;

/// Pages of a ring: with 64 switches a page, what comes in 0.2 s at 40,000 a second.
const RING_PAGES: usize = 128;
/// Stretches kept, at most: a minute of 30,000 switches a second.
const MOST: usize = 2_000_000;
/// Names kept, at most.
const MOST_NAMES: usize = 50_000;

/// A task on a CPU. The CPU idled if `tid` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Stretch {
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub since_ns: u64,
    pub until_ns: u64,
}

/// Records until it is dropped.
pub struct Occupants {
    root: ProcRoot,
    events: PerCpu,
    stretches: Stretches,
    /// By thread; none if it had ended by the time.
    names: BTreeMap<i32, Option<String>>,
    missed: bool,
}

/// What was recorded.
pub struct Recorded {
    /// Who ran where and when.
    pub stretches: Vec<Stretch>,
    /// The names of tasks, by thread, of those that did not end at once.
    pub names: BTreeMap<i32, String>,
    /// Whether some of it is missing.
    pub missed: bool,
}

impl Occupants {
    /// Starts to record these CPUs.
    ///
    /// # Errors
    /// It is not permitted, or the kernel has no perf.
    pub fn open(root: &ProcRoot, online: &CpuSet) -> Result<Occupants> {
        let mut attributes = dummy_attributes();
        attributes.set_context_switch(1);
        let spec = EventSpec { attributes, ring_pages: RING_PAGES, what: "switches of all tasks" };
        Ok(Occupants {
            root: root.clone(),
            events: PerCpu::open(spec, online)?,
            stretches: Stretches::default(),
            names: BTreeMap::new(),
            missed: false,
        })
    }

    /// Takes the records since the last call. Call it five times a second, lest some are lost.
    pub fn look(&mut self) {
        let (stretches, names, mut new) = (&mut self.stretches, &mut self.names, Vec::new());
        self.missed |= self.events.drain(&mut |record| {
            if let PerfRecord::CpuSwitch { pid, tid, time_ns, cpu } = record {
                stretches.push(pid, tid, time_ns, cpu);
                if names.len() < MOST_NAMES && !names.contains_key(&tid) {
                    names.insert(tid, None);
                    new.push((pid, tid));
                }
            }
        });
        for (pid, tid) in new {
            let name = self.root.read_task(&format!("{pid}/task/{tid}/comm"));
            self.names.insert(tid, name.ok().map(|name| name.trim_end().into()));
        }
    }

    /// What ran until `end_ns`.
    pub fn finish(mut self, end_ns: u64) -> Recorded {
        self.look();
        let missed = self.missed || self.stretches.dropped > 0;
        let names = self.names.into_iter().filter_map(|(tid, name)| Some((tid, name?))).collect();
        Recorded { stretches: self.stretches.finish(end_ns), names, missed }
    }
}

/// Makes stretches of switches.
#[derive(Debug, Default)]
struct Stretches {
    ended: Vec<Stretch>,
    /// The running task of each CPU.
    open: BTreeMap<u32, Stretch>,
    dropped: u64,
}

impl Stretches {
    fn push(&mut self, pid: i32, tid: i32, time_ns: u64, cpu: u32) {
        let begun = Stretch { cpu, pid, tid, since_ns: time_ns, until_ns: time_ns };
        if let Some(before) = self.open.insert(cpu, begun) {
            self.end(before, time_ns);
        }
    }

    fn end(&mut self, stretch: Stretch, until_ns: u64) {
        if self.ended.len() == MOST {
            self.dropped += 1;
        } else if stretch.since_ns < until_ns {
            self.ended.push(Stretch { until_ns, ..stretch });
        }
    }

    fn finish(mut self, end_ns: u64) -> Vec<Stretch> {
        for stretch in std::mem::take(&mut self.open).into_values() {
            self.end(stretch, end_ns);
        }
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;
    use crate::proc::SysCpus;

    #[test]
    fn a_task_runs_until_the_next_one_does() {
        let mut stretches = Stretches::default();
        for (tid, time_ns, cpu) in [(7, 10, 0), (8, 15, 1), (0, 20, 0), (7, 20, 0), (9, 30, 0)] {
            stretches.push(tid, tid, time_ns, cpu);
        }
        let ended: Vec<_> =
            stretches.finish(40).iter().map(|one| (one.cpu, one.tid, one.since_ns, one.until_ns)).collect();
        assert_eq!(ended, [(0, 7, 10, 20), (0, 7, 20, 30), (0, 9, 30, 40), (1, 8, 15, 40)]);
    }

    #[test]
    fn this_thread_is_seen_on_a_cpu() {
        let Ok(mut occupants) = Occupants::open(&ProcRoot::default(), &SysCpus::default().online()) else {
            eprintln!("skipped: not permitted here");
            return;
        };
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            occupants.look();
        }
        let own = crate::threads::own_tid();
        let Recorded { stretches, names, missed } = occupants.finish(now_ns());
        assert!(names[&own].starts_with("occupants"), "{:?}", names[&own]);
        assert!(!missed && stretches.iter().filter(|stretch| stretch.tid == own).count() >= 5);
        assert!(stretches.iter().all(|stretch| stretch.since_ns < stretch.until_ns));
    }
}
