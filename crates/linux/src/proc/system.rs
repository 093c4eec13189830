//! The whole machine in `/proc`: CPU time, memory, CPUs, and the boot id.
//!
//! The kernel counts CPU time in ticks of 1/USER_HZ s. It counts guest time twice, as guest time and as user (or nice)
//! time; here it counts once. Source: proc_stat(5), proc_meminfo(5), random(4).

use super::{ProcRoot, tick_ns};
use crate::error::{Error, Result};

/// How one CPU spent its time since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The CPU's number.
    pub cpu: usize,
    /// User, nice, system and interrupt time, ns. User time includes guest time.
    pub busy_ns: u64,
    /// Idle time with and without outstanding I/O, ns.
    pub idle_ns: u64,
    /// Time stolen by a hypervisor below, ns. It is neither busy nor idle.
    pub steal_ns: u64,
}

/// How each online CPU spent its time since boot, by ascending CPU number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// One entry per online CPU.
    pub per_cpu: Vec<CpuTime>,
}

/// The machine's memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`: the kernel's estimate of the memory available without swapping.
    pub available_bytes: u64,
}

impl ProcRoot {
    /// Busy, idle and stolen time of every online CPU.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Malformed`] on `/proc/stat`.
    pub fn cpu_times(&self) -> Result<CpuTimes> {
        let text = self.read_system("stat")?;
        let mut per_cpu = Vec::new();
        for line in text.lines().filter(|line| is_cpu_line(line)) {
            let time = cpu_ticks(line).and_then(cpu_time);
            let malformed = || Error::malformed(self.join("stat"), "cpuN and at least 8 numbers", line);
            per_cpu.push(time.ok_or_else(malformed)?);
        }
        per_cpu.sort_unstable_by_key(|time| time.cpu);
        Ok(CpuTimes { per_cpu })
    }

    /// Total and available memory.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Malformed`] on `/proc/meminfo`.
    pub fn meminfo(&self) -> Result<MemInfo> {
        let text = self.read_system("meminfo")?;
        let field_bytes = |name: &'static str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value
                .and_then(|v| v.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024))
                .ok_or_else(|| {
                    Error::malformed(self.join("meminfo"), "MemTotal and MemAvailable in kB", &text)
                })
        };
        Ok(MemInfo { total_bytes: field_bytes("MemTotal")?, available_bytes: field_bytes("MemAvailable")? })
    }

    /// The UUID of this boot. Times since boot are comparable only within one boot.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel has no such file.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.read_system("sys/kernel/random/boot_id")?.trim().to_string())
    }
}

/// The CPUs the calling thread may run on, ascending.
///
/// # Errors
/// [`Error::Io`] if the kernel has more CPUs than the C library's mask (1024).
pub fn allowed_cpus() -> Result<Vec<usize>> {
    crate::threads::affinity(crate::threads::own_tid())
}

/// Whether a line of `/proc/stat` is that of one CPU, and not of all together.
pub(super) fn is_cpu_line(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The CPU and the ticks in a line of `/proc/stat`: `cpuN user nice system idle iowait irq softirq steal [...]`.
pub(super) fn cpu_ticks(line: &str) -> Option<(usize, [u64; 8])> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let cpu = fields.next()?.parse().ok()?;
    let mut ticks = [0; 8];
    for slot in &mut ticks {
        *slot = fields.next()?.parse().ok()?;
    }
    Some((cpu, ticks))
}

fn cpu_time((cpu, ticks): (usize, [u64; 8])) -> Option<CpuTime> {
    let mut ns = ticks;
    for ns in &mut ns {
        *ns = ns.checked_mul(tick_ns())?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal_ns] = ns;
    Some(CpuTime { cpu, busy_ns: user + nice + system + irq + softirq, idle_ns: idle + iowait, steal_ns })
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    const STAT: &str = "cpu  30 3 15 300 6 3 3 3 24 3\n\
        cpu1 10 1 5 100 2 1 1 1 8 1\n\
        cpu0 20 2 10 200 4 2 2 2 16 2\n\
        intr 1 2 3\nctxt 5\n";

    #[test]
    fn guest_time_counts_once_and_steal_is_neither_busy_nor_idle() {
        let proc = FakeProc::new();
        let times = proc.put("stat", STAT).root.cpu_times().unwrap();
        let tick_ns = tick_ns();
        assert_eq!(times.per_cpu.iter().map(|c| c.cpu).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(times.per_cpu[1].busy_ns, (10 + 1 + 5 + 1 + 1) * tick_ns);
        let sum = |of: fn(&CpuTime) -> u64| -> u64 { times.per_cpu.iter().map(of).sum() };
        assert_eq!((sum(|c| c.idle_ns), sum(|c| c.steal_ns)), (306 * tick_ns, 3 * tick_ns));
    }

    #[test]
    fn a_broken_cpu_line_is_malformed() {
        let proc = FakeProc::new();
        assert!(matches!(proc.put("stat", "cpu0 1 2 x\n").root.cpu_times(), Err(Error::Malformed { .. })));
    }

    #[test]
    fn memory_is_in_bytes() {
        let proc = FakeProc::new();
        proc.put("meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
        let expected = MemInfo { total_bytes: 2 << 20, available_bytes: 1 << 20 };
        assert_eq!(proc.root.meminfo().unwrap(), expected);
        proc.put("meminfo", "MemTotal: 2048 kB\n");
        assert!(proc.root.meminfo().is_err());
    }

    #[test]
    fn the_live_machine_makes_sense() {
        let root = ProcRoot::default();
        let memory = root.meminfo().unwrap();
        assert!(memory.available_bytes <= memory.total_bytes);
        let (times, allowed) = (root.cpu_times().unwrap(), allowed_cpus().unwrap());
        let online = |cpu: &usize| times.per_cpu.iter().any(|time| time.cpu == *cpu);
        assert!(!allowed.is_empty() && allowed.iter().all(online));
        assert_eq!(root.boot_id().unwrap().len(), 36);
    }
}
