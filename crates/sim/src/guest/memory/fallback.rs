//! What a zone does when a mobility has no block left: it takes one of another mobility, and if that is large, or
//! asked for by kernel memory, the rest of its pageblock too, so that mobilities stay apart in future.
//!
//! Source: Gorman and Whitcroft, OLS 2006; Babka, Linux commits 99592d598eca and 02aa0cdd7221 for what counts as large
//! and for the pages in use that are of the same kind.

use super::frames::{Frames, Kind};
use super::zone::Zone;
use super::{MAX_ORDER, Mobility, PAGEBLOCK_ORDER};

/// Where to look, best first.
fn others(mobility: Mobility) -> [Mobility; 2] {
    match mobility {
        Mobility::Unmovable => [Mobility::Reclaimable, Mobility::Movable],
        Mobility::Movable => [Mobility::Reclaimable, Mobility::Unmovable],
        Mobility::Reclaimable => [Mobility::Unmovable, Mobility::Movable],
    }
}

/// Whether a block of that order is worth the rest of its pageblock: movable pages can leave a foreign pageblock,
/// others cannot, so they had better have one of their own.
fn claims_rest(order: u8, mobility: Mobility) -> bool {
    order >= PAGEBLOCK_ORDER / 2 || mobility != Mobility::Movable
}

impl Zone {
    /// Moves a block of another mobility, of order `least` or above, to this mobility's list: the largest, or the
    /// smallest that fits if only a part is wanted. Says how many blocks it moved; `None` if there is none.
    pub(super) fn claim(
        &mut self,
        frames: &mut Frames,
        order: u8,
        mobility: Mobility,
        least: u8,
    ) -> Option<u64> {
        let lowest = order.max(least);
        let (mut found, mut from) = (lowest..=MAX_ORDER).rev().find_map(|o| self.other(o, mobility))?;
        let whole = claims_rest(found, mobility);
        if !whole && found > order {
            (found, from) = (order..=MAX_ORDER).find_map(|o| self.other(o, mobility))?;
        }
        let frame = self.first(frames, found, from)?;
        Some(self.convert(frames, frame, found, mobility, whole))
    }

    /// The other mobility to take a block of exactly that order from.
    fn other(&self, order: u8, mobility: Mobility) -> Option<(u8, Mobility)> {
        let from = others(mobility).into_iter().find(|&from| !self.is_empty(order, from))?;
        Some((order, from))
    }

    /// Gives a free block to a mobility, with as much of its pageblock as is fit.
    fn convert(
        &mut self,
        frames: &mut Frames,
        frame: u32,
        order: u8,
        mobility: Mobility,
        whole: bool,
    ) -> u64 {
        if order >= PAGEBLOCK_ORDER {
            for pageblock in (frame..frame + (1 << order)).step_by(1 << PAGEBLOCK_ORDER) {
                frames.set_mobility(pageblock, mobility);
            }
        }
        if order >= PAGEBLOCK_ORDER || !whole {
            self.move_last(frames, frame, order, mobility);
            return 1;
        }
        let census = self.move_pageblock(frames, frame, mobility);
        // Pages in use that are (movable) or may be (the rest of a pageblock) of the claiming mobility.
        let alike = match (mobility, frames.mobility(frame)) {
            (Mobility::Movable, _) => census.movable,
            (_, Mobility::Movable) => (1 << PAGEBLOCK_ORDER) - census.free - census.movable,
            _ => 0,
        };
        if census.free + alike >= 1 << (PAGEBLOCK_ORDER - 1) {
            frames.set_mobility(frame, mobility);
        }
        census.blocks
    }

    /// Moves all free blocks of a pageblock to a mobility's lists, and counts what is there.
    fn move_pageblock(&mut self, frames: &mut Frames, frame: u32, mobility: Mobility) -> Census {
        let mut at = frame & !((1 << PAGEBLOCK_ORDER) - 1);
        let end = (at + (1 << PAGEBLOCK_ORDER)).min(self.end);
        let mut census = Census::default();
        while at < end {
            let head = frames.head(at).expect("a pageblock with a block below its size is covered by blocks");
            match head.kind {
                Kind::Free => {
                    self.move_last(frames, at, head.order, mobility);
                    census.free += 1 << head.order;
                    census.blocks += 1;
                }
                Kind::Used if head.mobility == Mobility::Movable => census.movable += 1 << head.order,
                Kind::Used | Kind::Listed => {}
            }
            at += 1 << head.order;
        }
        census
    }
}

/// What a pageblock holds, in frames, and its free blocks.
#[derive(Default)]
struct Census {
    free: u32,
    movable: u32,
    blocks: u64,
}
