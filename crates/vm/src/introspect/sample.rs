//! One look at a guest: what [`super::layout::Layout`] knows to find, as numbers.

use super::layout::{Layout, PerCpu, Zone};
use super::ram::{PAGE_BYTES, Ram, Word};

/// Order of a huge page on x86-64: the unusable free space index is that of this order.
pub const HUGE_PAGE_ORDER: usize = 9;
/// Bits of `preempt_count` that count softirq nesting: the lowest is set while a softirq is served
/// (`SOFTIRQ_OFFSET`, include/linux/preempt.h).
const SERVING_SOFTIRQ: u32 = 1 << 8;

/// Bits of `preempt_count` that say why its task cannot be preempted: all but the highest, which says on x86 whether it
/// should be.
const NESTING: u32 = !(1 << 31);

/// Grace-period state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpState {
    /// Number of the current or, when none is open, the next grace period.
    pub sequence: u64,
    /// Whether one is open: the low two bits of `gp_seq`.
    pub open: bool,
    /// CPUs that it still waits for, bit by CPU number; CPUs from 64 on are left out.
    pub holdouts: u64,
}

/// Pages in use and how fragmented the free ones are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryState {
    /// Managed pages that are not in the buddy lists.
    pub used_bytes: u64,
    /// Unusable free space index at the order of a huge page, over all zones together.
    pub unusable_index: f64,
    /// Slab pages, reclaimable and not.
    pub slab_bytes: u64,
}

/// CPU time that the guest's kernel has accounted, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// System, irq and softirq.
    pub kernel_ns: u64,
    /// Idle and waiting for I/O.
    pub idle_ns: u64,
    /// User, nice.
    pub user_ns: u64,
}

/// What computes grace periods at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcuWork {
    /// CPU on which the grace-period kthread is running.
    pub gp_kthread_on: Option<usize>,
    /// CPUs that are serving a softirq.
    pub in_softirq: u64,
}

/// Reads a guest's state. Cheap enough for thousands of looks a second.
#[derive(Debug)]
pub struct Reader {
    pub(super) ram: Ram,
    pub(super) layout: Layout,
}

impl Reader {
    /// A reader of that memory.
    pub fn new(ram: Ram, layout: Layout) -> Reader {
        Reader { ram, layout }
    }

    /// The memory.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Whether the memory could not be read at some time: figures since then mean nothing.
    pub fn is_lost(&self) -> bool {
        self.ram.is_lost()
    }

    /// What a place that was found beside the layout holds now.
    pub fn word(&self, word: Word) -> u64 {
        self.ram.get(word)
    }

    /// CPUs of the guest.
    pub fn cpus(&self) -> usize {
        self.layout.cpus.len()
    }

    /// The raw `gp_seq`.
    pub fn gp_seq(&self) -> u64 {
        self.ram.get(self.layout.gp_seq)
    }

    /// Grace-period state. The masks are read between two reads of `gp_seq`; if it moved, once more.
    pub fn gp(&self) -> GpState {
        let mut before = self.gp_seq();
        let mut holdouts = self.holdouts();
        let after = self.gp_seq();
        if after != before {
            (before, holdouts) = (after, self.holdouts());
        }
        let open = before & 3 != 0;
        GpState { sequence: before >> 2, open, holdouts: if open { holdouts } else { 0 } }
    }

    /// CPUs whose bit is set in a leaf's mask.
    pub(super) fn holdouts(&self) -> u64 {
        let place = |mask: u64, first_cpu: u32| mask.checked_shl(first_cpu).unwrap_or(0);
        self.layout.leaves.iter().fold(0, |all, leaf| all | place(self.ram.get(leaf.mask), leaf.first_cpu))
    }

    /// The count of timer ticks.
    pub fn jiffies(&self) -> u64 {
        self.ram.get(self.layout.jiffies)
    }

    /// Callbacks that wait, over all CPUs. Each CPU's count is a signed number that can be negative for a
    /// moment.
    pub fn backlog(&self) -> u64 {
        let counts = self.layout.cpus.iter().map(|cpu| self.ram.get(cpu.callbacks) as i64);
        counts.fold(0, i64::wrapping_add).max(0) as u64
    }

    /// What computes grace periods now.
    pub fn rcu_work(&self) -> RcuWork {
        let kthread = &self.layout.gp_kthread;
        let running = self.ram.get_half(kthread.on_cpu) != 0;
        let cpu = self.ram.get_half(kthread.cpu) as usize;
        let serving = |cpu: &PerCpu| self.ram.get_half(cpu.preempt_count) & SERVING_SOFTIRQ != 0;
        let busy = self.layout.cpus.iter().take(64).enumerate().filter(|(_, cpu)| serving(cpu));
        RcuWork {
            gp_kthread_on: (running && cpu < self.cpus()).then_some(cpu),
            in_softirq: busy.fold(0, |mask, (index, _)| mask | 1 << index),
        }
    }

    /// CPUs whose task cannot be preempted: within a spinlock, a softirq or an interrupt.
    pub fn not_preemptible(&self) -> u64 {
        let is_held = |cpu: &PerCpu| self.ram.get_half(cpu.preempt_count) & NESTING != 0;
        let cpus = self.layout.cpus.iter().take(64).enumerate().filter(|(_, cpu)| is_held(cpu));
        cpus.fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// CPU on which the grace-period kthread runs or waits to run (`on_rq` is 1 then, and 2 while it is moved).
    pub fn gp_kthread_wanted_on(&self) -> Option<usize> {
        let kthread = &self.layout.gp_kthread;
        let cpu = self.ram.get_half(kthread.cpu) as usize;
        (self.ram.get_half(kthread.on_rq) != 0 && cpu < self.cpus()).then_some(cpu)
    }

    /// Free blocks per order of every populated zone, with its name.
    pub fn zones(&self) -> Vec<(&str, Vec<u64>)> {
        let free =
            |zone: &Zone| (0..zone.free_blocks.len()).map(|order| self.free_blocks(zone, order)).collect();
        self.layout.zones.iter().map(|zone| (zone.name.as_str(), free(zone))).collect()
    }

    /// A count is bounded by the guest's size, so that a hostile one cannot overflow a sum.
    fn free_blocks(&self, zone: &Zone, order: usize) -> u64 {
        self.ram.get(zone.free_blocks[order]).min(self.layout.memory_pages >> order)
    }

    /// Footprint, fragmentation and slab.
    pub fn memory(&self) -> MemoryState {
        let (mut managed, mut free, mut suitable) = (0, 0, 0);
        for zone in &self.layout.zones {
            managed += self.ram.get(zone.managed_pages).min(self.layout.memory_pages);
            for order in 0..zone.free_blocks.len() {
                let pages = self.free_blocks(zone, order) << order;
                free += pages;
                suitable += if order >= HUGE_PAGE_ORDER { pages } else { 0 };
            }
        }
        let slab = self.layout.slab.iter().map(|word| self.ram.get(*word) as i64).fold(0, i64::wrapping_add);
        MemoryState {
            used_bytes: managed.min(self.layout.memory_pages).saturating_sub(free) * PAGE_BYTES,
            unusable_index: unusable_index(free, suitable),
            slab_bytes: slab.clamp(0, self.layout.memory_pages as i64) as u64 * PAGE_BYTES,
        }
    }

    /// CPU time accounted so far.
    pub fn cpu(&self) -> CpuState {
        let mut total = CpuState::default();
        for cpu in &self.layout.cpus {
            let sum = |words: &[Word]| -> u64 {
                words.iter().fold(0, |sum: u64, word| sum.wrapping_add(self.ram.get(*word)))
            };
            total.kernel_ns = total.kernel_ns.wrapping_add(sum(&cpu.kernel_time));
            total.idle_ns = total.idle_ns.wrapping_add(sum(&cpu.idle_time));
            total.user_ns = total.user_ns.wrapping_add(sum(&cpu.user_time));
        }
        total
    }
}

/// Unusable free space index (mm/vmstat.c, `unusable_free_index`): the share of free pages that lie in
/// blocks too small; 1 when nothing is free.
pub fn unusable_index(free_pages: u64, suitable_pages: u64) -> f64 {
    if free_pages == 0 { 1.0 } else { free_pages.saturating_sub(suitable_pages) as f64 / free_pages as f64 }
}

/// The same in thousandths as debugfs `extfrag/unusable_index` prints it for one zone and order: integer
/// arithmetic, rounded down; 1000 when nothing is free.
pub fn unusable_index_printed(blocks: &[u64], order: usize) -> u64 {
    let pages = |from: usize| -> u64 { blocks.iter().enumerate().skip(from).map(|(o, n)| n << o).sum() };
    let free = pages(0);
    ((free - pages(order)) * 1000).checked_div(free).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_index_follows_its_formula() {
        assert_eq!(unusable_index(0, 0), 1.0);
        assert_eq!(unusable_index(1024, 512), 0.5);
        let blocks = [3, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1];
        assert_eq!(unusable_index_printed(&blocks, 9), 7 * 1000 / (7 + 512 + 1024));
        assert_eq!(unusable_index_printed(&blocks, 0), 0);
    }
}
