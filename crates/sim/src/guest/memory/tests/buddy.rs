//! Buddy lists of one zone of two largest blocks, by hand.

use super::super::frames::{Frames, Kind};
use super::super::zone::{Steps, Zone};
use super::super::{Mobility, Mobility::*, PAGEBLOCK_ORDER};

struct Bench {
    frames: Frames,
    zone: Zone,
}

impl Bench {
    fn new(frames: u32) -> Bench {
        let mut store = Frames::new(frames);
        let zone = Zone::new(&mut store, 0, frames);
        Bench { frames: store, zone }
    }

    fn take(&mut self, order: u8, mobility: Mobility) -> u32 {
        self.take_least(order, mobility, 0).expect("the zone has such a block")
    }

    fn take_least(&mut self, order: u8, mobility: Mobility, least: u8) -> Option<u32> {
        let (frame, _) = self.zone.take(&mut self.frames, order, mobility, least)?;
        self.frames.set(frame, Kind::Used, order, mobility);
        Some(frame)
    }

    fn put(&mut self, frame: u32, order: u8) -> u64 {
        let mobility = self.frames.mobility(frame);
        self.frames.clear(frame);
        self.zone.put(&mut self.frames, frame, order, mobility)
    }

    /// The blocks of a list, from the head on.
    fn list(&self, order: u8, mobility: Mobility) -> Vec<u32> {
        let first = self.zone.lists[order as usize][mobility as usize].first();
        std::iter::successors(first, |&frame| self.frames.after(frame)).collect()
    }
}

#[test]
fn a_split_keeps_the_low_half_and_lists_the_high_ones() {
    let mut bench = Bench::new(2048);
    let taken = bench.zone.take(&mut bench.frames, 0, Movable, 0);
    assert_eq!(taken, Some((0, Steps { splits: 10, moved: 0 })));
    for order in 0..10 {
        assert_eq!(bench.list(order, Movable), [1 << order], "order {order}");
    }
    assert_eq!(bench.zone.free, 2047);
    assert_eq!(bench.zone.blocks, [1; 11]);
}

#[test]
fn the_lowest_order_with_a_block_is_used_first() {
    let mut bench = Bench::new(2048);
    assert_eq!(bench.take(3, Movable), 0);
    assert_eq!(bench.take(0, Movable), 8, "from the order 3 block left over");
    assert_eq!(bench.take(1, Movable), 10);
    assert_eq!(bench.take(10, Movable), 1024);
    assert!(bench.zone.take(&mut bench.frames, 10, Movable, 0).is_none());
}

#[test]
fn the_block_freed_last_is_used_first() {
    let mut bench = Bench::new(1024);
    let pages: Vec<u32> = (0..16).map(|_| bench.take(0, Movable)).collect();
    assert_eq!(pages, (0..16).collect::<Vec<_>>());
    for page in [0, 4, 8, 12] {
        bench.put(page, 0);
    }
    assert_eq!(bench.list(0, Movable), [12, 8, 4, 0]);
    assert_eq!(bench.take(0, Movable), 12);
}

#[test]
fn a_block_whose_merged_form_has_a_free_buddy_waits_at_the_tail() {
    let mut bench = Bench::new(1024);
    for _ in 0..16 {
        bench.take(0, Movable);
    }
    bench.put(8, 0);
    assert_eq!(bench.put(2, 0), 0);
    assert_eq!(bench.put(3, 0), 1, "merged with 2");
    // The buddy of 0 is in use, but 2-3 is free: 0-1 would merge with it.
    bench.put(0, 0);
    assert_eq!(bench.list(0, Movable), [8, 0]);
    assert_eq!(bench.put(1, 0), 2, "merged with 0, then with 2-3");
    assert_eq!(bench.list(2, Movable), [0]);
}

#[test]
fn all_freed_is_as_before() {
    let mut bench = Bench::new(1024);
    let pages: Vec<u32> = (0..1024).map(|_| bench.take(0, Movable)).collect();
    assert_eq!((bench.zone.free, bench.zone.blocks), (0, [0; 11]));
    for &page in pages.iter().step_by(2).chain(pages.iter().skip(1).step_by(2)) {
        bench.put(page, 0);
    }
    assert_eq!(bench.zone.free, 1024);
    assert_eq!(bench.list(10, Movable), [0]);
}

#[test]
fn a_zone_that_is_no_multiple_of_the_largest_block_ends_in_smaller_ones() {
    let bench = Bench::new(1024 + 512 + 4 + 1);
    assert_eq!(bench.zone.free, 1541);
    assert_eq!(
        (bench.list(9, Movable), bench.list(2, Movable), bench.list(0, Movable)),
        (vec![1024], vec![1536], vec![1540])
    );
}

#[test]
fn unmovable_pages_claim_pageblocks_of_the_largest_free_block() {
    let mut bench = Bench::new(2048);
    assert_eq!(bench.take(0, Movable), 0);
    assert_eq!(bench.take(0, Unmovable), 1024, "the largest block, not the one split already");
    assert_eq!(bench.frames.mobility(1024), Unmovable);
    assert_eq!(bench.frames.mobility(1024 + 512), Unmovable);
    assert_eq!(bench.frames.mobility(0), Movable);
    assert_eq!(bench.take(0, Unmovable), 1025);
    // No other block is left whole: reclaimable pages prefer unmovable blocks to movable ones of the same order.
    assert_eq!(bench.take(0, Reclaimable), 1024 + 512);
    assert_eq!(bench.frames.mobility(1024 + 512), Reclaimable);
}

#[test]
fn kernel_pages_take_the_free_half_of_a_movable_pageblock_and_its_name() {
    let mut bench = Bench::new(1024);
    assert_eq!(bench.take(9, Movable), 0);
    assert_eq!(bench.take(8, Movable), 512);
    let taken = bench.zone.take(&mut bench.frames, 0, Unmovable, 0);
    assert_eq!(taken, Some((768, Steps { splits: 8, moved: 1 })), "a claim is no split");
    assert_eq!(bench.frames.mobility(768), Unmovable, "256 frames of 512 were free");
    assert_eq!(bench.list(7, Unmovable), [768 + 128]);
}

#[test]
fn a_mostly_movable_pageblock_keeps_its_name_but_gives_its_free_blocks() {
    let mut bench = Bench::new(1024);
    assert_eq!(bench.take(9, Movable), 0);
    assert_eq!(bench.take(8, Movable), 512);
    assert_eq!(bench.take(7, Movable), 768);
    assert_eq!(bench.take(5, Movable), 896);
    assert_eq!((bench.list(5, Movable), bench.list(6, Movable)), (vec![928], vec![960]));
    assert_eq!(bench.take(0, Unmovable), 928, "960 is the largest, but 928 came with it and is the smallest");
    assert_eq!(bench.frames.mobility(960), Movable, "416 frames of 512 are in movable use");
    assert_eq!((bench.list(4, Unmovable), bench.list(6, Unmovable)), (vec![944], vec![960]));
}

#[test]
fn movable_pages_take_only_a_small_part_of_a_foreign_pageblock() {
    let mut bench = Bench::new(1024);
    assert_eq!(bench.take(9, Unmovable), 0);
    for _ in 0..512 - 12 {
        bench.take(0, Unmovable);
    }
    assert_eq!((bench.list(2, Unmovable), bench.list(3, Unmovable)), (vec![1012], vec![1016]));
    assert_eq!(bench.take(0, Movable), 1012, "the smallest that fits, as no block is large enough to claim");
    assert_eq!(bench.list(3, Unmovable), [1016]);
    assert_eq!(bench.frames.mobility(1012), Unmovable);
}

#[test]
fn a_request_that_must_not_mix_takes_whole_pageblocks_only() {
    let mut bench = Bench::new(1024);
    assert_eq!(bench.take(9, Movable), 0);
    assert_eq!(bench.take(0, Movable), 512);
    assert_eq!(bench.take_least(0, Unmovable, PAGEBLOCK_ORDER), None);
    assert_eq!(bench.take_least(0, Unmovable, 0), Some(513), "the free blocks of the pageblock came over");
}
