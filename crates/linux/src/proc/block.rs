//! The I/O that block devices have done, and how long tasks waited for I/O.
//!
//! Source: the kernel's Documentation/admin-guide/iostats.rst and Documentation/accounting/psi.rst.

use std::path::Path;

use super::ProcRoot;
use crate::{Error, Result};

/// Name prefixes of devices that are left out: their I/O is counted on another device, or is none.
const VIRTUAL: [&str; 6] = ["loop", "ram", "dm-", "md", "zram", "sr"];

/// The I/O of whole disks since boot, without partitions and stacked devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTotals {
    /// Number of completed reads and writes.
    pub completed: u64,
    /// The sum of the times each took, ns, to a millisecond.
    pub took_ns: u64,
}

impl DiskTotals {
    /// The mean time of an I/O since `before`, ns; `None` if none was completed.
    pub fn mean_ns_since(&self, before: &DiskTotals) -> Option<u64> {
        let completed = self.completed.checked_sub(before.completed).filter(|completed| *completed > 0)?;
        Some(self.took_ns.saturating_sub(before.took_ns) / completed)
    }
}

impl ProcRoot {
    /// The I/O of all whole disks: those with a directory in `block` below `sys`, the `/sys` to use. Without `block`,
    /// all devices that are not virtual.
    pub fn disk_totals(&self, sys: &Path) -> Result<DiskTotals> {
        let text = self.read_system("diskstats")?;
        let blocks = sys.join("block");
        let listed = blocks.is_dir();
        let mut totals = DiskTotals::default();
        for line in text.lines() {
            let (name, numbers) = parse(line)
                .ok_or_else(|| Error::malformed(self.join("diskstats"), "a device and 11 numbers", line))?;
            let is_virtual = VIRTUAL.iter().any(|prefix| name.starts_with(prefix));
            if is_virtual || listed && !blocks.join(name).is_dir() {
                continue;
            }
            let [reads, _, _, read_ms, writes, _, _, write_ms] = numbers;
            totals.completed = totals.completed.saturating_add(reads).saturating_add(writes);
            let took_ms = read_ms.saturating_add(write_ms);
            totals.took_ns = totals.took_ns.saturating_add(took_ms.saturating_mul(1_000_000));
        }
        Ok(totals)
    }
}

/// The device's name and its first eight numbers.
fn parse(line: &str) -> Option<(&str, [u64; 8])> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let name = fields.next()?;
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = fields.next()?.parse().ok()?;
    }
    Some((name, numbers))
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    const DISKS: &str = "   7       0 loop0 9 0 9 9 0 0 0 0 0 0 0\n 254       0 vda 10 1 80 20 5 0 40 10 0 30 30 0 0 0 0\n \
                         254       1 vda1 10 1 80 20 5 0 40 10 0 30 30\n";

    #[test]
    fn whole_disks_are_summed_once() {
        let proc = FakeProc::new();
        proc.put("diskstats", DISKS).put("sysfs/block/vda/size", "1").put("sysfs/block/loop0/size", "1");
        let totals = proc.root.disk_totals(&proc.root.path().join("sysfs")).unwrap();
        assert_eq!(totals, DiskTotals { completed: 15, took_ns: 30_000_000 });
    }

    #[test]
    fn the_mean_counts_only_later_completions() {
        let before = DiskTotals { completed: 10, took_ns: 5_000_000 };
        let now = DiskTotals { completed: 20, took_ns: 15_000_000 };
        assert_eq!((now.mean_ns_since(&before), now.mean_ns_since(&now)), (Some(1_000_000), None));
        assert_eq!(before.mean_ns_since(&now), None, "lower counters are from another boot");
    }

    #[test]
    fn pressure_is_read() {
        let proc = FakeProc::new();
        assert!(proc.root.pressure_ns("io").is_err());
        proc.put("pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.02 total=124\nfull avg10=0 total=5\n");
        assert_eq!(proc.root.pressure_ns("io").unwrap(), 124_000);
        proc.put("pressure/io", "none\n").put("diskstats", "7 0 x\n");
        assert!(matches!(proc.root.pressure_ns("io"), Err(Error::Malformed { .. })));
        assert!(matches!(proc.root.disk_totals(Path::new("/nowhere")), Err(Error::Malformed { .. })));
    }
}
