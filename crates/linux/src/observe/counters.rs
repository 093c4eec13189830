//! What the kernel has counted so far, as far as anybody may read it: CPU time, steal, throttling, pressure, clocks. Two of
//! these, at the start and at the end of a stretch of time, say what happened in it.
//!
//! Source: proc_stat(5); proc_meminfo(5); proc_buddyinfo(5); the kernel's Documentation/accounting/psi.rst, scheduler/sched-stats.rst,
//! admin-guide/cgroup-v2.rst (`cpu.stat`) and admin-guide/cgroup-v1/cpu.rst.

use reprieve_policy::sample::Memory;
use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::Throttled;
use crate::clock;
use crate::proc::{
    ProcRoot, Reread, SchedStat, SchedStatReader, TaskStatReader, cpu_ticks, is_cpu_line, psi_total_ns,
    tick_ns,
};

/// The names of RCU's main kthread: without and with preemptible readers.
const KTHREADS: [&str; 2] = ["rcu_sched", "rcu_preempt"];
/// The place of the run delay among the numbers of a CPU's line in `/proc/schedstat`.
const RUN_DELAY: usize = 7;

/// What the kernel counts of one CPU since boot, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuStanding {
    pub idle_ns: Option<u64>,
    pub steal_ns: Option<u64>,
    pub run_delay_ns: Option<u64>,
}

/// Counts since boot, or since some fixed time. `None` stands for what this kernel does not tell us.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// By CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// The clock of the day, ns since 1970.
    pub day_ns: u64,
    /// Time suspended, ns.
    pub suspended_ns: u64,
    /// One entry for each CPU number; that of an offline CPU has no values.
    pub cpus: Vec<CpuStanding>,
    /// Throttling of the cgroups that this process is in, ns, from its own one upwards.
    pub throttled_ns: Vec<u64>,
    pub cpu_wait_ns: Option<u64>,
    pub memory_wait_ns: Option<u64>,
    pub io_wait_ns: Option<u64>,
    pub kthread_wait_ns: Option<u64>,
    pub memory: Option<Memory>,
    /// The largest free block, bytes.
    pub largest_free_bytes: Option<u64>,
}

impl Standing {
    /// How long a quota kept this process from running since then, ns: that of the cgroup that was throttled most, since one
    /// that is throttled within a throttled one must not count twice. `None` if no cgroup tells.
    pub fn throttled_since(&self, before: &Standing) -> Option<u64> {
        let pairs = self.throttled_ns.iter().zip(&before.throttled_ns);
        pairs.map(|(now, before)| now.saturating_sub(*before)).max()
    }

    /// How far the clock of the day moved against CLOCK_MONOTONIC since then, ns. The clock of the day goes on while the
    /// machine is suspended, and CLOCK_MONOTONIC does not.
    pub fn stepped_since(&self, before: &Standing) -> i64 {
        let ahead = |standing: &Standing| {
            standing.day_ns.wrapping_sub(standing.at_ns).wrapping_sub(standing.suspended_ns)
        };
        ahead(self).wrapping_sub(ahead(before)) as i64
    }
}

/// Reads [`Standing`] again and again. The files stay open, and reads allocate nothing once buffers are large enough.
#[derive(Debug)]
pub(super) struct Counters {
    stat: Reread,
    schedstat: Reread,
    meminfo: Reread,
    buddyinfo: Reread,
    cpu: Reread,
    memory: Reread,
    io: Reread,
    throttled: Option<Throttled>,
    kthread: Option<Kthread>,
}

impl Counters {
    /// Finds the files, and RCU's kthread.
    pub fn new(root: &ProcRoot) -> Counters {
        let is_it = |pid: &i32| {
            let name = root.read_task(&format!("{pid}/comm")).unwrap_or_default();
            KTHREADS.contains(&name.trim())
        };
        // Its number is low: it starts before any process.
        let kthread = root.process_ids().ok().and_then(|pids| pids.into_iter().find(is_it));
        let open = |name: &str| Reread::open(&root.path().join(name));
        Counters {
            stat: open("stat"),
            schedstat: open("schedstat"),
            meminfo: open("meminfo"),
            buddyinfo: open("buddyinfo"),
            cpu: open("pressure/cpu"),
            memory: open("pressure/memory"),
            io: open("pressure/io"),
            throttled: Throttled::find(root),
            kthread: kthread.and_then(|pid| Kthread::open(root, pid)),
        }
    }

    /// The counts now.
    pub fn read(&mut self, into: &mut Standing) {
        read_clocks(into);
        into.cpus.clear();
        self.read_cpus(&mut into.cpus);
        into.throttled_ns.clear();
        if let Some(throttled) = &mut self.throttled {
            throttled.read(&mut into.throttled_ns);
        }
        into.cpu_wait_ns = self.cpu.read().and_then(psi_total_ns);
        into.memory_wait_ns = self.memory.read().and_then(psi_total_ns);
        into.io_wait_ns = self.io.read().and_then(psi_total_ns);
        into.kthread_wait_ns = self.kthread.as_mut().and_then(|kthread| kthread.waited_ns(into.at_ns));
        into.memory = self.meminfo.read().and_then(memory);
        into.largest_free_bytes = self.buddyinfo.read().and_then(largest_free_bytes);
    }

    fn read_cpus(&mut self, cpus: &mut Vec<CpuStanding>) {
        let tick_ns = tick_ns();
        for line in self.stat.read().unwrap_or_default().lines().skip_while(|line| !is_cpu_line(line)) {
            let Some((cpu, ticks)) = cpu_ticks(line).filter(|_| is_cpu_line(line)) else { break };
            if let Some(slot) = slot(cpus, cpu) {
                slot.idle_ns = Some(ticks[3].saturating_add(ticks[4]).saturating_mul(tick_ns));
                slot.steal_ns = Some(ticks[7].saturating_mul(tick_ns));
            }
        }
        for line in self.schedstat.read().unwrap_or_default().lines() {
            let Some((cpu, delay_ns)) = run_delay_ns(line) else { continue };
            if let Some(slot) = cpus.get_mut(cpu) {
                slot.run_delay_ns = Some(delay_ns);
            }
        }
    }
}

/// Reads the clocks, which must be of the same moment: again if the vCPU seems to have been off in between.
fn read_clocks(into: &mut Standing) {
    const TRIES: usize = 5;
    const SAME_MOMENT_NS: u64 = 1_000_000;
    for _ in 0..TRIES {
        into.at_ns = clock::now_ns();
        into.day_ns = clock::to_ns(clock_gettime(ClockId::Realtime));
        let boot_ns = clock::to_ns(clock_gettime(ClockId::Boottime));
        let end_ns = clock::now_ns();
        into.suspended_ns = boot_ns.saturating_sub(end_ns);
        if end_ns - into.at_ns < SAME_MOMENT_NS {
            return;
        }
    }
}

/// RCU's kthread, and how long it has waited for a CPU.
///
/// The kernel adds a wait to the run delay only when it is over. A wait of which no end is seen yet counts from the first look
/// at which the kthread could run, and had not run since the look before.
#[derive(Debug)]
struct Kthread {
    delay: SchedStatReader,
    state: TaskStatReader,
    /// The last look.
    last: SchedStat,
    /// Since when it waits, ns.
    since_ns: Option<u64>,
    /// What was said of how long it has waited. It never falls.
    said_ns: u64,
}

impl Kthread {
    fn open(root: &ProcRoot, pid: i32) -> Option<Kthread> {
        let delay = SchedStatReader::open(root, pid, pid).ok()?;
        let state = TaskStatReader::open(root, pid, pid).ok()?;
        // A kernel that does not count says zeros.
        let last = delay.read().ok().filter(|last| last.slices > 0)?;
        Some(Kthread { delay, state, last, since_ns: None, said_ns: last.delay_ns })
    }

    fn waited_ns(&mut self, now_ns: u64) -> Option<u64> {
        let now = self.delay.read().ok()?;
        let waits = self.state.read().ok()?.state == 'R' && now == self.last;
        self.last = now;
        self.since_ns = self.since_ns.filter(|_| waits).or(waits.then_some(now_ns));
        let open_ns = self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.said_ns = self.said_ns.max(now.delay_ns.saturating_add(open_ns));
        Some(self.said_ns)
    }
}

/// The place of a CPU; numbers that no kernel has are left out.
fn slot(cpus: &mut Vec<CpuStanding>, cpu: usize) -> Option<&mut CpuStanding> {
    const MOST_CPUS: usize = 8192;
    if cpu >= MOST_CPUS {
        return None;
    }
    if cpus.len() <= cpu {
        cpus.resize(cpu + 1, CpuStanding::default());
    }
    cpus.get_mut(cpu)
}

/// A CPU and its run delay, of a line of `/proc/schedstat`.
fn run_delay_ns(line: &str) -> Option<(usize, u64)> {
    let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let cpu = words.next()?.parse().ok()?;
    Some((cpu, words.nth(RUN_DELAY)?.parse().ok()?))
}

fn memory(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory {
        free_bytes: bytes("MemFree:")?,
        available_bytes: bytes("MemAvailable:")?,
        slab_bytes: bytes("Slab:")?,
        unreclaimable_bytes: bytes("SUnreclaim:")?,
    })
}

/// The largest block in `/proc/buddyinfo`: each line has a node, a zone, and the number of free blocks of 1, 2, 4 ... pages.
fn largest_free_bytes(text: &str) -> Option<u64> {
    let largest = |line: &str| {
        let (_, zone) = line.split_once("zone")?;
        let counts = zone.split_ascii_whitespace().skip(1).map(|count| count.parse::<u64>().unwrap_or(0));
        let order = counts.enumerate().filter(|(_, count)| *count > 0).map(|(order, _)| order).last();
        Some(order.map_or(0, |order| (page_size() as u64).checked_shl(order as u32).unwrap_or(0)))
    };
    text.lines().filter_map(largest).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    #[test]
    fn a_fake_machine_is_read() {
        let proc = FakeProc::new();
        proc.put("stat", "cpu  9 9\ncpu0 1 2 3 4 1 6 7 8 0 0\ncpu2 0 0 0 7 0 0 0 9 0 0\nintr 5\n");
        proc.put("schedstat", "version 15\ncpu0 0 0 0 0 0 0 11 22 33\ndomain0 3 1\ncpu2 0 0 0 0 0 0 1 2 3\n");
        proc.put("meminfo", "MemFree: 1 kB\nMemAvailable: 2 kB\nSlab: 3 kB\nSUnreclaim:  4 kB\n");
        proc.put("pressure/cpu", "some avg10=0.00 total=5\n");
        proc.put("12/comm", "rcu_preempt\n").put("12/task/12/schedstat", "1 77 3\n");
        proc.put("12/task/12/stat", &stat('S'));
        let mut standing = Standing::default();
        Counters::new(&proc.root).read(&mut standing);
        let tick = tick_ns();
        assert_eq!(
            standing.cpus[0],
            CpuStanding { idle_ns: Some(5 * tick), steal_ns: Some(8 * tick), run_delay_ns: Some(22) }
        );
        assert_eq!(standing.cpus[1], CpuStanding::default());
        assert_eq!(standing.cpus[2].run_delay_ns, Some(2));
        assert_eq!((standing.cpu_wait_ns, standing.memory_wait_ns), (Some(5000), None));
        assert_eq!(standing.kthread_wait_ns, Some(77));
        assert_eq!(standing.memory.unwrap().unreclaimable_bytes, 4096);
    }

    fn stat(state: char) -> String {
        format!("12 (rcu_preempt) {state}{}\n", " 0".repeat(50))
    }

    #[test]
    fn a_kthread_that_still_waits_counts_once() {
        let proc = FakeProc::new();
        let put = |delay_ns: u64, slices: u64, state| {
            proc.put("12/task/12/schedstat", &format!("1 {delay_ns} {slices}\n"));
            proc.put("12/task/12/stat", &stat(state));
        };
        put(70, 3, 'S');
        let mut kthread = Kthread::open(&proc.root, 12).unwrap();
        let mut at = |now_ns, delay_ns, slices, state| {
            put(delay_ns, slices, state);
            kthread.waited_ns(now_ns).unwrap()
        };
        assert_eq!(at(1000, 70, 3, 'S'), 70);
        assert_eq!(at(2000, 70, 3, 'R'), 70, "since when is not known");
        assert_eq!(at(3000, 70, 3, 'R'), 1070);
        assert_eq!(at(4000, 70, 3, 'R'), 2070);
        assert_eq!(at(5000, 2570, 4, 'R'), 2570, "the kernel knows the whole wait");
        assert_eq!(at(6000, 2590, 5, 'R'), 2590, "it ran");
        assert_eq!(at(7000, 2590, 5, 'S'), 2590);
    }

    #[test]
    fn the_largest_free_block_is_that_of_any_zone() {
        let page = page_size() as u64;
        let text =
            "Node 0, zone      DMA      0      0      0\nNode 0, zone   Normal   9758      0      3      0\n";
        assert_eq!(largest_free_bytes(text), Some(4 * page));
        assert_eq!(largest_free_bytes("Node 0, zone DMA 0 0\n"), Some(0));
        assert_eq!(largest_free_bytes("nonsense\n"), None);
    }

    #[test]
    fn a_suspension_is_no_step_of_the_clock() {
        let at =
            |at_ns, day_ns, suspended_ns| Standing { at_ns, day_ns, suspended_ns, ..Standing::default() };
        assert_eq!(at(150, 1250, 100).stepped_since(&at(100, 1100, 0)), 0);
        assert_eq!(at(150, 1140, 0).stepped_since(&at(100, 1100, 0)), -10);
    }

    #[test]
    fn the_cgroup_that_was_throttled_most_counts() {
        let of = |throttled_ns: &[u64]| Standing { throttled_ns: throttled_ns.into(), ..Standing::default() };
        assert_eq!(of(&[5, 1009]).throttled_since(&of(&[1, 1000])), Some(9));
        assert_eq!(of(&[]).throttled_since(&of(&[])), None);
    }
}
