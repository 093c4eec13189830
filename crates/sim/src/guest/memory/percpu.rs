//! A CPU's lists of free blocks of a zone, so that most page allocations need no lock: blocks up to order 3, by order
//! and mobility, refilled from the buddy lists and drained to them in bulk.
//!
//! Source: Gorman, "Understanding the Linux Virtual Memory Manager", 6.5; and his series "Allow high order pages to be
//! stored on PCP", linux-mm, 2021, for orders above 0 and for draining more the longer a CPU only frees.

use super::Mobility;
use super::costs::Costs;
use super::frames::{Frames, Kind, List};
use super::zone::Zone;

/// The highest order that is kept (`PAGE_ALLOC_COSTLY_ORDER`).
pub(super) const LISTED_ORDER: u8 = 3;

const LISTS: usize = 3 * (LISTED_ORDER as usize + 1);

/// How much the CPUs of a zone keep, in frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// To refill and drain at once.
    pub batch: u32,
    /// To keep at most.
    pub high: u32,
}

impl Limits {
    /// Those of a zone of that size and low watermark, in frames.
    pub fn new(managed: u64, low: u64, cpus: usize) -> Limits {
        let quarter = (managed >> 10).min(256) / 4;
        // One less than a power of two: batches that are powers of two favour some cache colours.
        let wanted = (quarter + quarter / 2).max(1);
        let batch = ((1 << wanted.ilog2()) - 1).max(1);
        Limits { batch, high: ((low / cpus as u64) as u32).max(batch * 4) }
    }
}

/// One CPU's lists of one zone.
#[derive(Clone, Debug)]
pub(super) struct PerCpu {
    /// By order, then mobility.
    pub lists: [List; LISTS],
    /// Frames in all of them.
    pub count: u32,
    /// How often it was drained since the last allocations; each time doubles the batch.
    streak: u8,
}

impl PerCpu {
    /// Lists of nothing.
    pub fn new() -> PerCpu {
        PerCpu { lists: [List::EMPTY; LISTS], count: 0, streak: 0 }
    }

    /// Takes a block, refilling the list if it is empty; also says what refilling cost.
    pub fn take(
        &mut self,
        zone: &mut Zone,
        frames: &mut Frames,
        limits: Limits,
        (order, mobility): (u8, Mobility),
        least: u8,
        costs: &Costs,
    ) -> Option<(u32, u64)> {
        self.streak >>= 1;
        let list = list_of(order, mobility);
        let mut extra_ns = 0;
        if self.lists[list].first().is_none() {
            // A batch of 1 is of a zone too small to keep anything.
            let blocks = if limits.batch > 1 { (limits.batch >> order).max(2) } else { 1 };
            for _ in 0..blocks {
                let Some((frame, steps)) = zone.take(frames, order, mobility, least) else { break };
                frames.set(frame, Kind::Listed, order, mobility);
                frames.push_last(&mut self.lists[list], frame);
                self.count += 1 << order;
                extra_ns += costs.page_buddy_ns + costs.tlb_miss_ns + steps.cost_ns(costs);
            }
        }
        let frame = self.lists[list].first()?;
        frames.unlink(&mut self.lists[list], frame);
        self.count -= 1 << order;
        Some((frame, extra_ns))
    }

    /// Puts a block at the head of its list; beyond the limit drains, and says what that cost.
    pub fn put(
        &mut self,
        zone: &mut Zone,
        frames: &mut Frames,
        limits: Limits,
        (frame, order): (u32, u8),
        costs: &Costs,
    ) -> u64 {
        let mobility = frames.mobility(frame);
        let list = list_of(order, mobility);
        frames.set(frame, Kind::Listed, order, mobility);
        frames.push_first(&mut self.lists[list], frame);
        self.count += 1 << order;
        // Larger blocks on the lists are fragmentation: a CPU that goes on freeing them keeps none.
        if self.streak > 0 && order > 0 {
            return self.drain(zone, frames, self.count, list, costs);
        }
        if self.count < limits.high {
            return 0;
        }
        let surplus = self.surplus(limits);
        self.drain(zone, frames, surplus, list, costs)
    }

    /// Frames to drain: a batch, doubled with each drain in a row, but a batch is left.
    fn surplus(&mut self, limits: Limits) -> u32 {
        let most = limits.high - limits.batch;
        let wanted = limits.batch << self.streak;
        if wanted < most {
            self.streak += 1;
        }
        wanted.clamp(limits.batch, most)
    }

    /// Gives at least that many frames, oldest first, back to the buddy lists: from that list on, each list in turn
    /// until it is empty. Says what it cost.
    pub fn drain(
        &mut self,
        zone: &mut Zone,
        frames: &mut Frames,
        surplus: u32,
        list: usize,
        costs: &Costs,
    ) -> u64 {
        let left = self.count.saturating_sub(surplus);
        let mut extra_ns = 0;
        for list in (list..LISTS).chain(0..list) {
            while self.count > left
                && let Some(frame) = self.lists[list].last()
            {
                let order = (list / 3) as u8;
                frames.unlink(&mut self.lists[list], frame);
                frames.clear(frame);
                self.count -= 1 << order;
                let merges = zone.put(frames, frame, order, Mobility::ALL[list % 3]);
                extra_ns += costs.page_buddy_ns + merges * costs.merge_ns;
            }
        }
        extra_ns
    }
}

fn list_of(order: u8, mobility: Mobility) -> usize {
    3 * order as usize + mobility as usize
}
