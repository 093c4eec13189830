//! The whole machine in `/proc`: idle time, memory, CPUs, and the boot id.
//!
//! Source: proc_stat(5), proc_meminfo(5), random(4).

use super::{ProcRoot, tick_ns};
use crate::{Error, Result};

impl ProcRoot {
    /// The summed idle time of these CPUs since boot, with and without outstanding I/O, ns, to a clock tick.
    pub(super) fn idle_ns(&self, cpus: &[usize]) -> Result<u64> {
        let text = self.read_system("stat")?;
        let mut ticks = 0u64;
        for line in text.lines().filter(|line| is_cpu_line(line)) {
            let malformed = || Error::malformed(self.join("stat"), "cpuN and at least 8 numbers", line);
            let (cpu, [_, _, _, idle, iowait, ..]) = cpu_ticks(line).ok_or_else(malformed)?;
            let counts = cpus.contains(&cpu);
            ticks = ticks.saturating_add(if counts { idle.saturating_add(iowait) } else { 0 });
        }
        Ok(ticks.saturating_mul(tick_ns()))
    }

    /// Ticks of all CPUs together since boot: user, nice, system, idle, iowait, irq, softirq, steal.
    pub fn cpu_ticks(&self) -> Result<[u64; 8]> {
        let text = self.read_system("stat")?;
        let malformed = |line| Error::malformed(self.join("stat"), "cpuN and at least 8 numbers", line);
        let mut sum = [0u64; 8];
        for line in text.lines().filter(|line| is_cpu_line(line)) {
            let (_, ticks) = cpu_ticks(line).ok_or_else(|| malformed(line))?;
            sum.iter_mut().zip(ticks).for_each(|(sum, ticks)| *sum = sum.saturating_add(ticks));
        }
        Ok(sum)
    }

    /// Time since boot during which some task waited for a resource (PSI), ns: `cpu`, `memory` or `io`.
    pub fn pressure_ns(&self, resource: &str) -> Result<u64> {
        let name = format!("pressure/{resource}");
        let text = self.read_system(&name)?;
        psi_total_ns(&text).ok_or_else(|| Error::malformed(self.join(&name), "some ... total=", &text))
    }

    /// The memory that the kernel manages (`MemTotal`), bytes.
    pub fn memory_bytes(&self) -> Result<u64> {
        self.memory_line("MemTotal:")
    }

    /// The kernel's estimate of the memory available without swapping (`MemAvailable`), bytes.
    pub fn available_memory_bytes(&self) -> Result<u64> {
        self.memory_line("MemAvailable:")
    }

    fn memory_line(&self, name: &str) -> Result<u64> {
        let text = self.read_system("meminfo")?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))
            .and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024))
            .ok_or_else(|| Error::malformed(self.join("meminfo"), "MemTotal and MemAvailable in kB", &text))
    }

    /// The UUID of this boot. Times since boot are comparable only within one boot.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.read_system("sys/kernel/random/boot_id")?.trim().to_string())
    }
}

/// The time in a file of PSI during which some task waited, ns.
pub(crate) fn psi_total_ns(text: &str) -> Option<u64> {
    let (_, us) = text.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total="))?;
    us.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// The CPUs the calling thread may run on, ascending.
///
/// # Errors
/// [`Error::Io`] if the kernel has more CPUs than the C library's mask (1024).
pub fn allowed_cpus() -> Result<Vec<usize>> {
    crate::threads::affinity(crate::threads::own_tid())
}

/// Whether a line of `/proc/stat` is that of one CPU, and not of all together.
pub(crate) fn is_cpu_line(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The CPU and the ticks in a line of `/proc/stat`: `cpuN user nice system idle iowait irq softirq steal [...]`.
pub(crate) fn cpu_ticks(line: &str) -> Option<(usize, [u64; 8])> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let cpu = fields.next()?.parse().ok()?;
    let mut ticks = [0; 8];
    for slot in &mut ticks {
        *slot = fields.next()?.parse().ok()?;
    }
    Some((cpu, ticks))
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    #[test]
    fn idle_time_is_summed_over_the_named_cpus() {
        let proc = FakeProc::new();
        proc.put("stat", "cpu  30 3 15 300 6\ncpu1 0 0 0 7 1 0 0 0 9\ncpu0 0 0 0 100 0 0 0 0\ncpu2 1 1 1 5 0 9 9 9\nintr 1\n");
        assert_eq!(proc.root.idle_ns(&[1, 2]).unwrap(), 13 * tick_ns());
        assert_eq!(proc.root.idle_ns(&[]).unwrap(), 0);
        assert_eq!(proc.root.cpu_ticks().unwrap(), [1, 1, 1, 112, 1, 9, 9, 9]);
        proc.put("stat", "cpu0 1 2 x\n");
        assert!(matches!(proc.root.idle_ns(&[0]), Err(Error::Malformed { .. })));
    }

    #[test]
    fn memory_is_in_bytes() {
        let proc = FakeProc::new();
        proc.put("meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
        assert_eq!(proc.root.available_memory_bytes().unwrap(), 1 << 20);
        assert_eq!(proc.root.memory_bytes().unwrap(), 2 << 20);
        proc.put("meminfo", "MemTotal: 2048 kB\n");
        assert!(matches!(proc.root.available_memory_bytes(), Err(Error::Malformed { .. })));
    }

    #[test]
    fn the_live_machine_makes_sense() {
        let (root, allowed) = (ProcRoot::default(), allowed_cpus().unwrap());
        assert!(root.available_memory_bytes().unwrap() > 0 && !allowed.is_empty());
        assert!(root.idle_ns(&allowed).unwrap() > 0);
        assert_eq!(root.boot_id().unwrap().len(), 36);
    }
}
