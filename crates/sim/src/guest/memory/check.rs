//! Proof of the allocator's invariants from its whole state: linear in frames, so for tests and for debugging.

use super::frames::{Kind, List};
use super::pages::Pages;
use super::slab::{NONE, Place, SlabCache};
use super::{MAX_ORDER, Memory, Mobility, Store};

/// Fails with that message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

impl Memory {
    /// Checks that each frame is in exactly one block and each block in exactly one place; that buddies are merged;
    /// that counts are what they count; that each slab is a block in use, on the list that its objects say.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let covered = self.pages.check_blocks()?;
        self.pages.check_lists(&covered)?;
        let mut frames = Vec::new();
        for store in &self.stores {
            if let Store::Slabs(slabs) = store {
                slabs.check(&self.pages, &mut frames)?;
            }
        }
        let slabs = frames.len();
        frames.sort_unstable();
        frames.dedup();
        ensure!(frames.len() == slabs, "two slabs share a frame");
        Ok(())
    }
}

#[cfg(test)]
impl Memory {
    /// Plants a fault: a frame that is in no block any more.
    pub(crate) fn lose_a_frame(&mut self) {
        let (frame, _) = self.alloc_pages(0, 0, Mobility::Movable).expect("there is a frame");
        self.pages.frames.clear(frame.0);
    }
}

/// Blocks found by walking over the frames.
#[derive(Default)]
struct Covered {
    /// On buddy lists, by zone.
    free: Vec<u64>,
    /// On per-CPU lists, all zones.
    listed: u64,
}

impl Pages {
    /// Walks over all frames from block to block.
    fn check_blocks(&self) -> Result<Covered, String> {
        let mut covered = Covered::default();
        for zone in &self.zones {
            let (mut at, mut free) = (zone.start, 0);
            while at < zone.end {
                if at == zone.untouched && at < zone.whole_end {
                    ensure!(
                        (at..zone.whole_end).all(|f| self.frames.head(f).is_none()),
                        "frame past {at} touched"
                    );
                    at = zone.whole_end;
                    continue;
                }
                let Some(head) = self.frames.head(at) else {
                    return Err(format!("frame {at} is in no block"));
                };
                let size = 1 << head.order;
                ensure!(
                    head.order <= MAX_ORDER && at % size == 0,
                    "block {at} of order {} is askew",
                    head.order
                );
                ensure!(at + size <= zone.end, "block {at} reaches beyond its zone");
                ensure!(
                    (at + 1..at + size).all(|f| self.frames.head(f).is_none()),
                    "block {at} holds another"
                );
                match head.kind {
                    Kind::Free => {
                        let apart = head.order < MAX_ORDER && self.frames.is_free(at ^ size, head.order);
                        ensure!(!apart, "block {at} of order {} and its buddy are both free", head.order);
                        free += 1;
                    }
                    Kind::Listed => covered.listed += 1,
                    Kind::Used => {}
                }
                at += size;
            }
            covered.free.push(free);
        }
        Ok(covered)
    }

    /// Walks over all lists. That they have as many blocks as were found, none twice, makes them the same blocks.
    fn check_lists(&self, covered: &Covered) -> Result<(), String> {
        for (zone, &found) in self.zones.iter().zip(&covered.free) {
            let untouched = u64::from((zone.whole_end - zone.untouched) >> MAX_ORDER);
            let (mut free, mut listed) = (0, 0);
            for order in 0..=MAX_ORDER {
                let mut blocks = if order == MAX_ORDER { untouched } else { 0 };
                for mobility in Mobility::ALL {
                    let list = &zone.lists[order as usize][mobility as usize];
                    let length = self.length(list, Kind::Free, order, mobility)?;
                    (blocks, listed) = (blocks + length, listed + length);
                }
                let counted = zone.blocks[order as usize];
                ensure!(blocks == counted, "{blocks} free blocks of order {order} are counted as {counted}");
                free += blocks << order;
            }
            ensure!(listed == found, "{listed} blocks are on buddy lists but {found} are free");
            ensure!(free == zone.free, "{free} free frames are counted as {}", zone.free);
        }
        let mut listed = 0;
        for own in &self.lists {
            let mut count = 0;
            for (at, list) in own.lists.iter().enumerate() {
                let order = at / 3;
                let blocks = self.length(list, Kind::Listed, order as u8, Mobility::ALL[at % 3])?;
                count += blocks << order;
                listed += blocks;
            }
            ensure!(
                count == u64::from(own.count),
                "{count} frames on a CPU's lists are counted as {}",
                own.count
            );
        }
        ensure!(
            listed == covered.listed,
            "{listed} blocks are on CPUs' lists, {} were found",
            covered.listed
        );
        Ok(())
    }

    /// Blocks on a list, all of which must be of that kind.
    fn length(&self, list: &List, kind: Kind, order: u8, mobility: Mobility) -> Result<u64, String> {
        let (mut at, mut last, mut length) = (list.first(), None, 0);
        while let Some(frame) = at {
            let head = self.frames.head(frame);
            let right = head.is_some_and(|h| (h.kind, h.order, h.mobility) == (kind, order, mobility));
            ensure!(
                right,
                "frame {frame} is on a list of {kind:?} {mobility:?} blocks of order {order}: {head:?}"
            );
            length += 1;
            ensure!(length <= self.managed_frames(), "a list of order {order} has no end");
            last = Some(frame);
            at = self.frames.after(frame);
        }
        ensure!(last == list.last(), "a list of order {order} ends at {last:?}, not {:?}", list.last());
        Ok(length)
    }
}

impl SlabCache {
    /// Checks the cache; adds its slabs' frames to `frames`.
    fn check(&self, pages: &Pages, frames: &mut Vec<u32>) -> Result<(), String> {
        let mut private = vec![0; self.slabs.len()];
        let mut places = vec![Place::Full; self.slabs.len()];
        for own in &self.cpus {
            if own.active != NONE {
                places[own.active as usize] = Place::Active;
                private[own.active as usize] = own.free;
            }
            let listed = self.mark(own.partial, Place::CpuList, &mut places)?;
            ensure!(listed == own.count, "{listed} slabs on a CPU's list are counted as {}", own.count);
        }
        let listed = self.mark(self.node.first, Place::NodeList, &mut places)?;
        ensure!(
            listed == self.node.count,
            "{listed} slabs on the node's list are counted as {}",
            self.node.count
        );
        let mut total = 0;
        for (number, slab) in self.slabs.iter().enumerate() {
            if slab.place == Place::Unused {
                ensure!(places[number] == Place::Full, "slab {number} is unused but on a list");
                continue;
            }
            ensure!(
                slab.place == places[number],
                "slab {number} is {:?}, not {:?}",
                places[number],
                slab.place
            );
            ensure!(pages.frames.is_used(slab.frame, slab.order), "slab {number} has no block");
            let free: u32 = self.bits_of(number as u32).iter().map(|bits| bits.count_ones()).sum();
            let counted = u32::from(slab.free + private[number]);
            ensure!(free == counted, "{free} free objects of slab {number} are counted as {counted}");
            ensure!(free <= u32::from(slab.objects), "slab {number} has {free} free objects");
            let listed = matches!(slab.place, Place::CpuList | Place::NodeList);
            ensure!(
                slab.place == Place::Active || listed == (slab.free > 0),
                "slab {number} is on the wrong list"
            );
            frames.push(slab.frame);
            total += 1 << slab.order;
        }
        ensure!(total == self.frames, "{total} frames of slabs are counted as {}", self.frames);
        Ok(())
    }

    /// Marks the slabs of a list; says how many there are.
    fn mark(&self, first: u32, place: Place, places: &mut [Place]) -> Result<u32, String> {
        let (mut at, mut length) = (first, 0);
        while at != NONE {
            let before = std::mem::replace(&mut places[at as usize], place);
            ensure!(before == Place::Full, "slab {at} is in two places: {before:?} and {place:?}");
            at = self.slabs[at as usize].after;
            length += 1;
        }
        Ok(length)
    }
}
