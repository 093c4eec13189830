//! Reads the disks' throughput, and judges by it whether moving tasks pays.

use reprieve_policy::SECOND_NS;
use reprieve_policy::guard::{Advice, Guard};

use crate::migrate::Roots;
use crate::proc::DiskTotals;

/// The last reading, and the guard that judges.
pub struct Throughput {
    disks: DiskTotals,
    guard: Option<Guard>,
}

impl Throughput {
    pub fn new(roots: &Roots, guard: Option<Guard>) -> Throughput {
        Throughput { disks: roots.proc.disk_totals(roots.sys.path()).unwrap_or_default(), guard }
    }

    /// Reads what the disks did in the last `span_ns`. Returns the mean time of an I/O, ns, and the guard's advice if
    /// it has changed. Without `/proc/diskstats` it returns neither.
    pub fn read(&mut self, roots: &Roots, span_ns: u64, busy: bool) -> (Option<u64>, Option<Advice>) {
        let Ok(disks) = roots.proc.disk_totals(roots.sys.path()) else { return (None, None) };
        let took_ns = disks.mean_ns_since(&self.disks).filter(|took_ns| *took_ns > 0);
        let done = disks.completed.saturating_sub(self.disks.completed);
        self.disks = disks;
        let rate = u128::from(done) * u128::from(SECOND_NS) / u128::from(span_ns);
        let advice = self.guard.as_mut().and_then(|guard| {
            let before = guard.advice();
            Some(guard.reading(rate as u64, busy)).filter(|advice| *advice != before)
        });
        (took_ns, advice)
    }

    /// How often moves did not pay.
    pub fn failures(&self) -> u64 {
        self.guard.map_or(0, |guard| guard.failures())
    }

    /// Whether the advice is to act; without a guard it always is.
    pub fn advises_to_act(&self) -> bool {
        self.guard.is_none_or(|guard| guard.advice() == Advice::Act)
    }
}
