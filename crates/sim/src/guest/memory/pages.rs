//! The page allocator: zones in order of preference, their watermarks, and the per-CPU lists in front of them.
//!
//! A zone gives pages only while it keeps more free than a watermark plus what is reserved for requests that can use
//! no other zone. An allocation tries every zone down to the low watermark, then down to the minimal one, then drains
//! the per-CPU lists and tries once more. Source: Gorman, "Understanding the Linux Virtual Memory Manager", 2.2.1 and
//! 6; the kernel's `Documentation/admin-guide/sysctl/vm.rst` for `min_free_kbytes`, `watermark_scale_factor` and
//! `lowmem_reserve_ratio`.

use super::costs::Costs;
use super::frames::{Frames, Kind};
use super::percpu::{LISTED_ORDER, Limits, PerCpu};
use super::zone::Zone;
use super::{MAX_ORDER, Mobility, OutOfMemory, PAGEBLOCK_ORDER};

/// First frames of the zones DMA (to 16 MiB), DMA32 (to 4 GiB) and Normal.
const ZONE_STARTS: [u32; 3] = [0, 1 << 12, 1 << 20];
/// Of the zones above a zone, one frame in so many is kept free in the zone (`lowmem_reserve_ratio` of DMA, DMA32).
const RESERVE_RATIO: u64 = 256;
/// Watermarks are at least this share of a zone apart, in 1/10000 (`watermark_scale_factor`).
const WATERMARK_SCALE: u64 = 10;

/// What an allocation does when all zones are below the minimal watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    /// Fails: there is another way.
    Fails,
    /// Reclaims and compacts, which costs time, drains the per-CPU lists and tries again.
    Drains,
}

/// What a zone keeps free, in frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watermarks {
    pub min: u64,
    pub low: u64,
    pub high: u64,
    /// On top, against requests that could use a higher zone: all of ours.
    pub reserve: u64,
}

/// All pages of a memory.
#[derive(Debug)]
pub(super) struct Pages {
    pub frames: Frames,
    /// Zones that have frames, ascending.
    pub zones: Vec<Zone>,
    pub watermarks: Vec<Watermarks>,
    limits: Vec<Limits>,
    /// By zone, then CPU.
    pub lists: Vec<PerCpu>,
    cpus: usize,
}

impl Pages {
    /// Frames that are all free.
    pub fn new(frames: u32, cpus: usize) -> Pages {
        let mut store = Frames::new(frames);
        let ends = [ZONE_STARTS[1], ZONE_STARTS[2], frames];
        let zones: Vec<Zone> = ZONE_STARTS
            .into_iter()
            .zip(ends)
            .filter(|&(start, _)| start < frames)
            .map(|(start, end)| Zone::new(&mut store, start, end.min(frames)))
            .collect();
        let sizes: Vec<u64> = zones.iter().map(|zone| u64::from(zone.end - zone.start)).collect();
        let watermarks = watermarks(&sizes, min_free_frames(sizes.iter().sum()));
        let limits =
            sizes.iter().zip(&watermarks).map(|(&size, mark)| Limits::new(size, mark.low, cpus)).collect();
        let lists = vec![PerCpu::new(); zones.len() * cpus];
        Pages { frames: store, zones, watermarks, limits, lists, cpus }
    }

    /// Allocates a block; also says what it cost beyond taking it from a per-CPU list.
    pub fn alloc(
        &mut self,
        cpu: usize,
        order: u8,
        mobility: Mobility,
        pressed: Pressed,
        costs: &Costs,
    ) -> Result<(u32, u64), OutOfMemory> {
        // With a zone Normal, a lower zone is better than a pageblock of mixed mobility (`ALLOC_NOFRAGMENT`).
        let unmixed = if self.zones.len() == ZONE_STARTS.len() { PAGEBLOCK_ORDER } else { 0 };
        let wanted = (order, mobility);
        let calm = self
            .attempt(cpu, wanted, |mark| mark.low, unmixed, costs)
            .or_else(|| self.attempt(cpu, wanted, |mark| mark.low, 0, costs))
            .or_else(|| self.attempt(cpu, wanted, |mark| mark.min, 0, costs));
        match calm {
            Some(taken) => return Ok(taken),
            None if pressed == Pressed::Fails => return Err(OutOfMemory),
            None => self.drain(costs),
        }
        let pressed_ns = costs.reclaim_ns + if order > 0 { costs.compaction_ns } else { 0 };
        let (frame, extra_ns) = self.attempt(cpu, wanted, |mark| mark.min, 0, costs).ok_or(OutOfMemory)?;
        Ok((frame, extra_ns + pressed_ns))
    }

    /// Takes a block from the highest zone that stays above the mark.
    fn attempt(
        &mut self,
        cpu: usize,
        (order, mobility): (u8, Mobility),
        mark: impl Fn(&Watermarks) -> u64,
        least: u8,
        costs: &Costs,
    ) -> Option<(u32, u64)> {
        for index in (0..self.zones.len()).rev() {
            let zone = &mut self.zones[index];
            let watermarks = &self.watermarks[index];
            if !admits(zone, order, mark(watermarks) + watermarks.reserve) {
                continue;
            }
            let taken = if order <= LISTED_ORDER {
                let lists = &mut self.lists[index * self.cpus + cpu];
                lists.take(zone, &mut self.frames, self.limits[index], (order, mobility), least, costs)
            } else {
                zone.take(&mut self.frames, order, mobility, least).map(|(frame, steps)| {
                    (frame, costs.page_buddy_ns + costs.tlb_miss_ns + steps.cost_ns(costs))
                })
            };
            if let Some((frame, _)) = taken {
                self.frames.set(frame, Kind::Used, order, mobility);
                return taken;
            }
        }
        None
    }

    /// Frees a block; says what it cost beyond putting it on a per-CPU list.
    pub fn free(&mut self, cpu: usize, frame: u32, order: u8, costs: &Costs) -> u64 {
        assert!(
            self.frames.is_used(frame, order),
            "frame {frame} was freed but no block of order {order} is in use"
        );
        let index = self.zones.iter().rposition(|zone| zone.start <= frame).unwrap_or(0);
        let zone = &mut self.zones[index];
        if order <= LISTED_ORDER {
            let lists = &mut self.lists[index * self.cpus + cpu];
            return lists.put(zone, &mut self.frames, self.limits[index], (frame, order), costs);
        }
        let mobility = self.frames.mobility(frame);
        self.frames.clear(frame);
        costs.page_buddy_ns + zone.put(&mut self.frames, frame, order, mobility) * costs.merge_ns
    }

    /// Drains the per-CPU lists of all CPUs.
    pub fn drain(&mut self, costs: &Costs) {
        for (at, lists) in self.lists.iter_mut().enumerate() {
            lists.drain(&mut self.zones[at / self.cpus], &mut self.frames, u32::MAX, 0, costs);
        }
    }

    /// All frames.
    pub fn managed_frames(&self) -> u64 {
        self.zones.iter().map(|zone| u64::from(zone.end - zone.start)).sum()
    }

    /// Frames on buddy lists.
    pub fn free_frames(&self) -> u64 {
        self.zones.iter().map(|zone| zone.free).sum()
    }

    /// Free blocks of exactly that order.
    pub fn free_blocks(&self, order: u8) -> u64 {
        self.zones.iter().map(|zone| zone.blocks[order as usize]).sum()
    }

    /// Frames that are kept free: high watermarks and reserves, zone by zone (`totalreserve_pages`).
    pub fn reserve_frames(&self) -> u64 {
        let kept = |(zone, mark): (&Zone, &Watermarks)| {
            (mark.high + mark.reserve).min((zone.end - zone.start).into())
        };
        self.zones.iter().zip(&self.watermarks).map(kept).sum()
    }
}

/// Whether a zone has a block of that order and keeps more than `floor` frames without it.
fn admits(zone: &Zone, order: u8, floor: u64) -> bool {
    // All but one of the block's frames count as gone already, whatever the order.
    zone.free + 1 > floor + (1 << order)
        && (order == 0 || zone.blocks[order as usize..=MAX_ORDER as usize].iter().any(|&blocks| blocks > 0))
}

/// What a memory of that size keeps free: `min_free_kbytes`, 4 * sqrt(size in KiB), between 128 KiB and 256 MiB.
pub(super) fn min_free_frames(total: u64) -> u64 {
    (total * 4 * 16).isqrt().clamp(128, 262_144) / 4
}

/// The watermarks of zones of these sizes, in frames, which together keep that much free.
pub(super) fn watermarks(sizes: &[u64], min_free: u64) -> Vec<Watermarks> {
    let total: u64 = sizes.iter().sum();
    let of_zone = |(at, &size): (usize, &u64)| {
        let min = min_free * size / total;
        let gap = (min / 4).max(size * WATERMARK_SCALE / 10_000);
        let above: u64 = sizes[at + 1..].iter().sum();
        Watermarks { min, low: min + gap, high: min + 2 * gap, reserve: above / RESERVE_RATIO }
    };
    sizes.iter().enumerate().map(of_zone).collect()
}
