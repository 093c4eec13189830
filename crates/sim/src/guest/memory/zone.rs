//! A zone: a range of frames with its buddy lists, one for each order and mobility.
//!
//! Allocation takes the head of the lowest order that has a block and splits it, keeping the low half each time;
//! freeing merges with the buddy as long as that is free (Knuth, TAOCP 1, 2.5 C, buddy system). A freed block goes to
//! the head of its list, to be used again soon; but to the tail if the block it would merge into next has a free
//! buddy, so that it is left alone to merge (Linux commit 6dda9d55bf54). Mobility: see `fallback`.

use super::costs::Costs;
use super::frames::{Frames, Kind, List};
use super::{MAX_ORDER, Mobility};

const LARGEST: u32 = 1 << MAX_ORDER;

/// What it took to take a block, beyond taking it off its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Times that a block was split.
    pub splits: u64,
    /// Blocks that were moved from another mobility.
    pub moved: u64,
}

impl Steps {
    /// CPU time of these steps.
    pub fn cost_ns(self, costs: &Costs) -> u64 {
        self.splits * costs.split_ns + self.moved * costs.claim_ns
    }
}

/// A zone of a memory. Counts are in frames.
#[derive(Debug)]
pub(super) struct Zone {
    /// Its first frame, a multiple of the largest block.
    pub start: u32,
    /// The frame after its last.
    pub end: u32,
    /// Largest blocks from here up to `whole_end` were never touched: they are the tail of the movable list of the
    /// highest order, in ascending order, and join it when their turn comes.
    pub untouched: u32,
    /// Where the last whole largest block ends.
    pub whole_end: u32,
    /// By order and mobility.
    pub lists: [[List; 3]; MAX_ORDER as usize + 1],
    /// Free blocks of each order, all mobilities.
    pub blocks: [u64; MAX_ORDER as usize + 1],
    /// Frames in free blocks.
    pub free: u64,
}

impl Zone {
    /// A zone whose frames are all free.
    pub fn new(frames: &mut Frames, start: u32, end: u32) -> Zone {
        let whole_end = end - (end - start) % LARGEST;
        let mut zone = Zone {
            start,
            end,
            untouched: start,
            whole_end,
            lists: [[List::EMPTY; 3]; MAX_ORDER as usize + 1],
            blocks: [0; MAX_ORDER as usize + 1],
            free: u64::from(whole_end - start),
        };
        zone.blocks[MAX_ORDER as usize] = u64::from((whole_end - start) / LARGEST);
        let mut frame = whole_end;
        for order in (0..MAX_ORDER).rev().filter(|order| (end - whole_end) >> order & 1 == 1) {
            zone.add_first(frames, frame, order, Mobility::Movable);
            frame += 1 << order;
        }
        zone
    }

    /// Takes a block of that order off the buddy lists, claiming one of another mobility if need be, but none below
    /// order `least`. Also says what it took beyond that.
    pub fn take(
        &mut self,
        frames: &mut Frames,
        order: u8,
        mobility: Mobility,
        least: u8,
    ) -> Option<(u32, Steps)> {
        if let Some((frame, splits)) = self.take_own(frames, order, mobility) {
            return Some((frame, Steps { splits, moved: 0 }));
        }
        let moved = self.claim(frames, order, mobility, least)?;
        let (frame, splits) = self.take_own(frames, order, mobility)?;
        Some((frame, Steps { splits, moved }))
    }

    /// The smallest fitting block of its own mobility, split to size; and the number of splits.
    fn take_own(&mut self, frames: &mut Frames, order: u8, mobility: Mobility) -> Option<(u32, u64)> {
        let (found, frame) =
            (order..=MAX_ORDER).find_map(|o| self.first(frames, o, mobility).map(|frame| (o, frame)))?;
        self.remove(frames, frame, found);
        for half in (order..found).rev() {
            self.add_first(frames, frame + (1 << half), half, mobility);
        }
        Some((frame, u64::from(found - order)))
    }

    /// Frees a block into that mobility's list; says how many times it merged.
    pub fn put(&mut self, frames: &mut Frames, mut frame: u32, mut order: u8, mobility: Mobility) -> u64 {
        let from = order;
        while order < MAX_ORDER && frames.is_free(frame ^ 1 << order, order) {
            let buddy = frame ^ 1 << order;
            self.remove(frames, buddy, order);
            frame &= buddy;
            order += 1;
        }
        // The two highest orders are not worth waiting for.
        let merge_likely = order + 2 <= MAX_ORDER && {
            let merged = frame & !(1 << order);
            frames.is_free(merged ^ 2 << order, order + 1)
        };
        if merge_likely {
            self.add_last(frames, frame, order, mobility);
        } else {
            self.add_first(frames, frame, order, mobility);
        }
        u64::from(order - from)
    }

    /// The block at the head of a list.
    pub fn first(&mut self, frames: &mut Frames, order: u8, mobility: Mobility) -> Option<u32> {
        let first = self.lists[order as usize][mobility as usize].first();
        if first.is_some() || !self.has_untouched(order, mobility) {
            return first;
        }
        frames.set(self.untouched, Kind::Free, order, mobility);
        frames.push_first(&mut self.lists[order as usize][mobility as usize], self.untouched);
        self.untouched += LARGEST;
        self.lists[order as usize][mobility as usize].first()
    }

    /// Whether a list has no block.
    pub fn is_empty(&self, order: u8, mobility: Mobility) -> bool {
        self.lists[order as usize][mobility as usize].first().is_none()
            && !self.has_untouched(order, mobility)
    }

    fn has_untouched(&self, order: u8, mobility: Mobility) -> bool {
        order == MAX_ORDER && mobility == Mobility::Movable && self.untouched < self.whole_end
    }

    /// Moves a free block to the tail of another mobility's list.
    pub fn move_last(&mut self, frames: &mut Frames, frame: u32, order: u8, mobility: Mobility) {
        self.remove(frames, frame, order);
        self.add_last(frames, frame, order, mobility);
    }

    fn add_first(&mut self, frames: &mut Frames, frame: u32, order: u8, mobility: Mobility) {
        self.count_in(frames, frame, order, mobility);
        frames.push_first(&mut self.lists[order as usize][mobility as usize], frame);
    }

    fn add_last(&mut self, frames: &mut Frames, frame: u32, order: u8, mobility: Mobility) {
        self.count_in(frames, frame, order, mobility);
        frames.push_last(&mut self.lists[order as usize][mobility as usize], frame);
    }

    fn count_in(&mut self, frames: &mut Frames, frame: u32, order: u8, mobility: Mobility) {
        frames.set(frame, Kind::Free, order, mobility);
        self.blocks[order as usize] += 1;
        self.free += 1 << order;
    }

    fn remove(&mut self, frames: &mut Frames, frame: u32, order: u8) {
        let mobility = frames.head(frame).expect("a block on a buddy list begins at its frame").mobility;
        frames.unlink(&mut self.lists[order as usize][mobility as usize], frame);
        frames.clear(frame);
        self.blocks[order as usize] -= 1;
        self.free -= 1 << order;
    }
}
