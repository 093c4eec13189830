//! Per-CPU page lists, watermarks and zones, by hand.

use super::super::pages::{Watermarks, watermarks};
use super::super::percpu::Limits;
use super::*;

#[test]
fn limits_are_those_of_linux() {
    let limits = |managed, low, cpus| {
        let Limits { batch, high } = Limits::new(managed, low, cpus);
        (batch, high)
    };
    assert_eq!(limits(4096, 10, 4), (1, 4), "zone DMA keeps next to nothing");
    assert_eq!(limits(32_768, 500, 1), (7, 500), "128 MiB");
    assert_eq!(limits(1 << 24, 20_000, 4), (63, 5_000), "64 GiB");
    assert_eq!(limits(1 << 24, 20_000, 400), (63, 252), "no less than four batches");
}

#[test]
fn watermarks_follow_min_free_kbytes() {
    // 1 GiB: min_free_kbytes = 4 * sqrt(1048576) = 4096, that is 1024 frames, shared by size.
    let memory = memory(1024 * MIB, 2);
    let [dma, dma32] = memory.pages.watermarks[..] else { panic!("two zones") };
    let of = |mark: Watermarks| (mark.min, mark.low, mark.high, mark.reserve);
    assert_eq!(of(dma), (16, 20, 24, (262_144 - 4096) / 256));
    assert_eq!(of(dma32), (1008, 1008 + 258, 1008 + 516, 0), "a thousandth is more than a quarter of min");
}

/// `/proc/zoneinfo` of a machine with 22.8 GiB, 2 CPUs and min_free_kbytes 67584.
#[test]
fn watermarks_and_limits_are_those_of_a_real_machine() {
    let sizes = [3840, 772_497, 5_210_112];
    let marks = watermarks(&sizes, 67_584 / 4);
    let of = |mark: &Watermarks| (mark.min, mark.low, mark.high, mark.reserve);
    assert_eq!(of(&marks[0]), (10, 13, 16, 23_369));
    assert_eq!(of(&marks[1]), (2180, 2952, 3724, 20_352));
    assert_eq!(of(&marks[2]), (14_704, 19_914, 25_124, 0));
    let Limits { batch, high } = Limits::new(sizes[1], marks[1].low, 2);
    assert_eq!((batch, high), (63, 1476));
}

#[test]
fn a_list_is_refilled_by_a_batch_in_ascending_order() {
    let mut memory = memory(128 * MIB, 2);
    let (first, _) = memory.alloc_pages(0, 0, Mobility::Movable).unwrap();
    assert_eq!(first, Frame(4096), "the first of zone DMA32");
    assert_eq!(listed(&memory), 6, "28672 frames make a batch of 7, one of which is taken");
    assert_eq!(memory.footprint_bytes(), 7 * FRAME_BYTES);
    let rest: Vec<u32> = (0..7).map(|_| memory.alloc_pages(0, 0, Mobility::Movable).unwrap().0.0).collect();
    assert_eq!(rest, [4097, 4098, 4099, 4100, 4101, 4102, 4103]);
    let (other, _) = memory.alloc_pages(1, 0, Mobility::Movable).unwrap();
    assert_eq!(other, Frame(4096 + 14), "another CPU has another batch");
}

#[test]
fn a_cpu_uses_the_page_that_it_freed_last() {
    let mut memory = memory(128 * MIB, 2);
    let pages: Vec<Frame> =
        (0..4).map(|_| memory.alloc_pages(0, 0, Mobility::Unmovable).unwrap().0).collect();
    memory.free_pages(0, pages[1], 0);
    memory.free_pages(1, pages[2], 0);
    assert_eq!(memory.alloc_pages(0, 0, Mobility::Unmovable).unwrap().0, pages[1]);
    assert_eq!(memory.alloc_pages(1, 0, Mobility::Unmovable).unwrap().0, pages[2]);
}

#[test]
fn a_cpu_that_only_frees_drains_in_doubling_batches() {
    let mut memory = memory(128 * MIB, 1);
    let Limits { batch, high } = Limits::new(28_672, memory.pages.watermarks[1].low, 1);
    let pages: Vec<Frame> =
        (0..4000).map(|_| memory.alloc_pages(0, 0, Mobility::Movable).unwrap().0).collect();
    let mut drained = Vec::new();
    for &page in &pages {
        let before = listed(&memory);
        memory.free_pages(0, page, 0);
        assert!(listed(&memory) < u64::from(high));
        drained.push(before + 1 - listed(&memory));
    }
    drained.retain(|&frames| frames > 0);
    let batch = u64::from(batch);
    let most = u64::from(high) - batch;
    let expected: Vec<u64> = (0..drained.len()).map(|n| (batch << n.min(20)).min(most)).collect();
    assert!(drained.len() > 6, "{drained:?}");
    assert_eq!(drained, expected);
    memory.check().unwrap();
}

#[test]
fn what_was_freed_first_is_drained_first_and_allocations_calm_the_draining() {
    let mut memory = memory(128 * MIB, 1);
    let Limits { batch, high } = Limits::new(28_672, memory.pages.watermarks[1].low, 1);
    let mut pages: Vec<Frame> =
        (0..4000).map(|_| memory.alloc_pages(0, 0, Mobility::Movable).unwrap().0).collect();
    memory.pages.drain(&Costs::default());
    // Until the next page freed drains; what that drains.
    let drained = |memory: &mut Memory, pages: &mut Vec<Frame>| {
        while listed(memory) + 1 < u64::from(high) {
            memory.free_pages(0, pages.pop().unwrap(), 0);
        }
        memory.free_pages(0, pages.pop().unwrap(), 0);
        u64::from(high) - listed(memory)
    };
    assert_eq!([(); 3].map(|()| drained(&mut memory, &mut pages)), [1, 2, 4].map(|n| n * u64::from(batch)));
    // The list is a stack whose bottom was drained: what is left is what was freed last.
    let last = memory.alloc_pages(0, 0, Mobility::Movable).unwrap().0;
    assert!(last.0 > pages.last().unwrap().0 && last.0 < pages.last().unwrap().0 + 4, "{last:?}");
    assert_eq!(drained(&mut memory, &mut pages), 2 * u64::from(batch), "not 8: an allocation calms");
}

#[test]
fn between_the_low_and_the_minimal_watermark_there_is_no_pressure_yet() {
    let mut memory = memory(16 * MIB, 1);
    let [mark] = memory.pages.watermarks[..] else { panic!("one zone") };
    let mut below_low = 0;
    loop {
        let below = memory.pages.zones[0].free <= mark.low;
        let Ok((_, cost_ns)) = memory.alloc_pages(0, 0, Mobility::Movable) else { break };
        assert!(cost_ns < Costs::default().reclaim_ns);
        below_low += u64::from(below);
    }
    assert_eq!(below_low, mark.low - mark.min, "a batch is one page here");
}

#[test]
fn a_cpu_that_goes_on_freeing_keeps_no_larger_block() {
    let mut memory = memory(128 * MIB, 1);
    let pages: Vec<Frame> =
        (0..1000).map(|_| memory.alloc_pages(0, 1, Mobility::Movable).unwrap().0).collect();
    let kept: Vec<u64> = pages
        .iter()
        .map(|&page| {
            memory.free_pages(0, page, 1);
            listed(&memory)
        })
        .collect();
    assert!(*kept.iter().max().unwrap() > 50, "it kept some at first");
    assert!(kept[500..].iter().all(|&kept| kept == 0));
    memory.check().unwrap();
}

#[test]
fn a_low_zone_is_spared_for_those_that_need_it() {
    let mut memory = memory(256 * MIB, 1);
    let mut pages = Vec::new();
    while let Ok((page, _)) = memory.alloc_pages(0, 0, Mobility::Movable) {
        pages.push(page.0);
    }
    assert!(pages[0] >= 4096);
    assert!(pages.iter().any(|&page| page < 4096), "zone DMA is used in the end");
    let [dma, dma32] = &memory.pages.zones[..] else { panic!("two zones") };
    let [dma_mark, dma32_mark] = memory.pages.watermarks[..] else { panic!("two zones") };
    // What lies between the mark and what is left is at most the batch that was taken to the list.
    assert!((dma_mark.min + dma_mark.reserve).abs_diff(dma.free) <= 1, "{} {dma_mark:?}", dma.free);
    assert!(
        dma32.free <= dma32_mark.min && dma32.free + 16 > dma32_mark.min,
        "{} {dma32_mark:?}",
        dma32.free
    );
    memory.check().unwrap();
}

#[test]
fn pressure_drains_other_cpus_lists_and_costs_a_reclaim() {
    let mut memory = memory(64 * MIB, 2);
    let costs = Costs::default();
    let calm = memory.alloc_pages(0, 0, Mobility::Movable).unwrap().1;
    assert!(calm < costs.reclaim_ns);
    let mut pages = Vec::new();
    while let Ok((page, _)) = memory.alloc_pages(0, 0, Mobility::Movable) {
        pages.push(page);
    }
    // As many on the list of CPU 1 as it keeps without draining: free, but not on buddy lists.
    for page in pages.drain(..40) {
        memory.free_pages(1, page, 0);
    }
    assert_eq!(listed(&memory), 40);
    let (_, pressed) =
        memory.alloc_pages(0, 0, Mobility::Movable).expect("CPU 1's pages are got by draining");
    assert!((costs.reclaim_ns..costs.reclaim_ns + costs.compaction_ns).contains(&pressed), "{pressed}");
    assert!(listed(&memory) < 40);
    memory.check().unwrap();
}

#[test]
fn a_large_guest_starts_in_zone_normal_and_prefers_a_lower_zone_to_mixing() {
    let mut memory = memory(6 << 30, 1);
    assert_eq!(memory.pages.zones.len(), 3);
    assert_eq!(memory.alloc_pages(0, 0, Mobility::Movable).unwrap().0, Frame(1 << 20));
    // Leave zone Normal without a whole free pageblock, but with half of its frames free.
    let mut blocks: Vec<Frame> = Vec::new();
    while blocks.last().is_none_or(|block| block.0 >= 1 << 20) {
        blocks.push(memory.alloc_pages(0, 8, Mobility::Movable).unwrap().0);
    }
    let every_other = |block: &&Frame| block.0 >= 1 << 20 && block.0 >> 8 & 1 == 0;
    for &block in blocks.iter().filter(every_other) {
        memory.free_pages(0, block, 8);
    }
    exhaust(&mut memory, 2, 9);
    assert!(memory.pages.zones[2].free > 200_000);
    assert_eq!(memory.pages.zones[2].blocks[9..], [0, 0]);
    let (kernel, _) = memory.alloc_pages(0, 0, Mobility::Unmovable).unwrap();
    assert!((4096..1 << 20).contains(&kernel.0), "{kernel:?}");
    memory.check().unwrap();
}
