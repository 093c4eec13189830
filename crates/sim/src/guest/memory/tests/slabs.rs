//! Slab caches, by hand.

use super::super::geometry::{Geometry, order_of};
use super::super::slab::{NONE, Place};
use super::*;

fn cache_of(memory: &Memory, cache: Cache) -> &SlabCache {
    let Store::Slabs(slabs) = &memory.stores[cache.0 as usize] else { panic!("a cache of slabs") };
    slabs
}

fn alloc(memory: &mut Memory, cpu: usize, cache: Cache) -> Object {
    memory.alloc(cpu, cache).unwrap().0
}

/// Size, order, objects, `min_partial` and `cpu_partial` as `/sys/kernel/slab` of a machine with 2 CPUs has them
/// (Linux 6.18, whose rules give the same; all 129 caches agreed, these are the telling ones).
const REAL: [(u32, u8, u16, u32, u32); 20] = [
    (8, 0, 512, 5, 120),
    (104, 0, 39, 5, 120),
    (192, 0, 21, 5, 120),
    (248, 0, 16, 5, 120),
    (256, 0, 16, 5, 52),
    (320, 0, 12, 5, 52),
    (344, 1, 23, 5, 52),
    (488, 1, 16, 5, 52),
    (624, 1, 13, 5, 52),
    (632, 2, 25, 5, 52),
    (640, 1, 12, 5, 52),
    (688, 2, 23, 5, 52),
    (1016, 2, 16, 5, 52),
    (1024, 2, 16, 5, 24),
    (1128, 2, 14, 5, 24),
    (1472, 3, 22, 5, 24),
    (2672, 3, 12, 5, 24),
    (4096, 3, 8, 6, 6),
    (5952, 3, 5, 6, 6),
    (8192, 3, 4, 6, 6),
];

#[test]
fn geometry_is_that_of_a_real_machine() {
    for (bytes, order, objects, node_slabs, cpu_objects) in REAL {
        let geometry = Geometry::new(bytes, 2);
        let cpu_slabs = (2 * cpu_objects).div_ceil(u32::from(objects));
        assert_eq!((geometry.order, geometry.objects(geometry.order)), (order, objects), "{bytes} B");
        assert_eq!((geometry.node_slabs, geometry.cpu_slabs), (node_slabs, cpu_slabs), "{bytes} B");
    }
}

#[test]
fn slabs_grow_with_the_number_of_cpus() {
    assert_eq!([1, 2, 4, 8, 64].map(|cpus| Geometry::new(1024, cpus).order), [1, 2, 2, 3, 3]);
    assert_eq!(Geometry::new(1024, 8).objects(3), 32);
}

#[test]
fn the_order_of_a_size_is_the_lowest_that_holds_it() {
    assert_eq!([1, 4096, 4097, 8193, 16_384, 16_385].map(order_of), [0, 0, 1, 2, 2, 3]);
}

#[test]
fn objects_of_a_slab_come_first_from_the_one_freed() {
    let mut memory = memory(64 * MIB, 1);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let objects: Vec<Object> = (0..12).map(|_| alloc(&mut memory, 0, cache)).collect();
    assert_eq!(cache_of(&memory, cache).slabs.len(), 2, "8 objects a slab of order 1");
    assert_eq!(memory.slab_bytes(), 16_384);
    memory.free(0, objects[9]);
    assert_eq!(alloc(&mut memory, 0, cache), objects[9]);
    memory.check().unwrap();
}

#[test]
fn a_full_slab_joins_the_list_of_the_cpu_that_frees_into_it() {
    let mut memory = memory(64 * MIB, 2);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let objects: Vec<Object> = (0..40).map(|_| alloc(&mut memory, 0, cache)).collect();
    let place = |memory: &Memory, slab: usize| cache_of(memory, cache).slabs[slab].place;
    assert_eq!([0, 1, 2].map(|slab| place(&memory, slab)), [Place::Full, Place::Full, Place::Active]);
    memory.free(1, objects[0]);
    assert_eq!(place(&memory, 0), Place::CpuList);
    assert_eq!(cache_of(&memory, cache).cpus[1].count, 1);
    assert_eq!(cache_of(&memory, cache).cpus[0].count, 0);
    memory.free(0, objects[1]);
    assert_eq!(cache_of(&memory, cache).cpus[1].count, 1, "it stays where it is");
    assert_eq!(alloc(&mut memory, 1, cache), objects[0]);
    assert_eq!(place(&memory, 0), Place::Active);
    memory.check().unwrap();
}

#[test]
fn remote_frees_are_had_again_once_the_cpus_own_are_used_up() {
    let mut memory = memory(64 * MIB, 2);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let objects: Vec<Object> = (0..16).map(|_| alloc(&mut memory, 0, cache)).collect();
    assert_eq!(cache_of(&memory, cache).cpus[0].free, 0);
    memory.free(1, objects[5]);
    assert_eq!((cache_of(&memory, cache).cpus[0].free, cache_of(&memory, cache).slabs[0].free), (0, 1));
    let (object, cost_ns) = memory.alloc(0, cache).unwrap();
    let costs = Costs::default();
    assert_eq!((object, cost_ns), (objects[5], costs.slab_fast_ns + costs.slab_remote_ns));
    assert_eq!(cache_of(&memory, cache).slabs.len(), 1);
}

#[test]
fn a_list_that_is_too_long_moves_to_the_node_and_its_surplus_of_empty_slabs_is_freed() {
    let mut memory = memory(64 * MIB, 1);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let geometry = cache_of(&memory, cache).geometry;
    assert_eq!((geometry.objects(geometry.order), geometry.cpu_slabs, geometry.node_slabs), (8, 6, 5));
    let objects: Vec<Object> = (0..8 * 21).map(|_| alloc(&mut memory, 0, cache)).collect();
    // 20 full slabs and an active one. Empty them one by one.
    for slab in objects[..8 * 20].chunks(8) {
        for &object in slab.iter() {
            memory.free(0, object);
        }
        memory.check().unwrap();
    }
    // Lists of 6 moved with the 7th, 13th and 19th slab: the node keeps 5 empty ones, 13 went back.
    let slabs = cache_of(&memory, cache);
    assert_eq!((slabs.node.count, slabs.cpus[0].count), (5, 2));
    assert_eq!(slabs.frames, (1 + 5 + 2) * 2);
    memory.shrink();
    assert_eq!(cache_of(&memory, cache).frames, 2, "the active slab, which is full");
    assert_eq!(memory.footprint_bytes(), 2 * FRAME_BYTES);
    memory.check().unwrap();
}

#[test]
fn an_empty_slab_beyond_the_nodes_minimum_goes_back_at_once() {
    let mut memory = memory(64 * MIB, 1);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let objects: Vec<Object> = (0..8 * 20).map(|_| alloc(&mut memory, 0, cache)).collect();
    // One object of each of 13 slabs, so that 12 partial ones lie on the node's list.
    for slab in objects.chunks(8).take(13) {
        memory.free(0, slab[0]);
    }
    assert_eq!(cache_of(&memory, cache).node.count, 12);
    let before = cache_of(&memory, cache).frames;
    for &object in objects[1..8].iter() {
        memory.free(0, object);
    }
    assert_eq!(cache_of(&memory, cache).node.count, 11);
    assert_eq!(cache_of(&memory, cache).frames, before - 2);
    memory.check().unwrap();
}

#[test]
fn a_cpu_fetches_half_a_list_from_the_node() {
    let mut memory = memory(64 * MIB, 2);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let limit = cache_of(&memory, cache).geometry.cpu_slabs;
    assert_eq!(limit, 3);
    let objects: Vec<Object> = (0..16 * 20).map(|_| alloc(&mut memory, 0, cache)).collect();
    for slab in objects.chunks(16).take(10) {
        memory.free(0, slab[0]);
    }
    assert_eq!((cache_of(&memory, cache).node.count, cache_of(&memory, cache).cpus[0].count), (9, 1));
    alloc(&mut memory, 1, cache);
    let slabs = cache_of(&memory, cache);
    assert_eq!(
        (slabs.node.count, slabs.cpus[1].count),
        (9 - 1 - 2, 2),
        "one is active, 3 / 2 + 1 on its list"
    );
    memory.check().unwrap();
}

#[test]
fn a_new_slab_is_smaller_when_memory_is_fragmented() {
    let mut memory = memory(32 * MIB, 1);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let mut pages = Vec::new();
    while let Ok((page, _)) = memory.alloc_pages(0, 0, Mobility::Unmovable) {
        pages.push(page);
    }
    // What the watermarks keep must not hold a block of order 1 either.
    exhaust(&mut memory, 0, 1);
    exhaust(&mut memory, 1, 1);
    for &page in pages.iter().filter(|page| page.0 % 2 == 0) {
        memory.free_pages(0, page, 0);
    }
    memory.pages.drain(&Costs::default());
    alloc(&mut memory, 0, cache);
    let slab = cache_of(&memory, cache).slabs[0];
    assert_eq!((slab.order, slab.objects), (0, 4));
    memory.check().unwrap();
}

#[test]
fn large_objects_are_blocks_of_pages() {
    let mut memory = memory(64 * MIB, 1);
    let cache = memory.add_cache(8193, Mobility::Unmovable);
    let before = memory.managed_bytes();
    let object = alloc(&mut memory, 0, cache);
    assert_eq!(memory.slab_bytes(), 16_384);
    memory.check().unwrap();
    memory.free(0, object);
    assert_eq!(memory.slab_bytes(), 0);
    memory.shrink();
    assert_eq!(memory.free_bytes(), before);
}

#[test]
fn a_failed_allocation_leaves_the_cache_sound() {
    let mut memory = memory(24 * MIB, 2);
    let cache = memory.add_cache(2048, Mobility::Unmovable);
    let mut objects = Vec::new();
    while let Ok((object, _)) = memory.alloc(0, cache) {
        objects.push(object);
    }
    assert_eq!(cache_of(&memory, cache).cpus[0].active, NONE);
    assert_eq!(memory.alloc(1, cache), Err(OutOfMemory));
    memory.check().unwrap();
    for object in objects.into_iter() {
        memory.free(1, object);
    }
    memory.check().unwrap();
    assert!(memory.alloc(0, cache).is_ok());
    memory.shrink();
    assert_eq!(memory.slab_bytes(), 32_768, "the slab of the one object left");
}

/// What CPU 0's allocations cost until the memory is full, and then one that is possible because CPU 1 has freed some
/// blocks since.
fn costs_until_full(costs: Costs) -> Vec<u64> {
    let mut memory = Memory::new(&Spec { bytes: 64 * MIB, cpus: 2, costs });
    let (mut blocks, mut spent_ns) = (Vec::new(), Vec::new());
    while let Ok((block, cost_ns)) = memory.alloc_pages(0, 1, Mobility::Unmovable) {
        blocks.push(block);
        spent_ns.push(cost_ns);
    }
    for block in blocks.drain(..20) {
        memory.free_pages(1, block, 1);
    }
    spent_ns.push(memory.alloc_pages(0, 1, Mobility::Unmovable).expect("by draining").1);
    spent_ns
}

#[test]
fn without_pressure_only_what_short_memory_makes_necessary_is_free() {
    let costs = Costs::default();
    let (real, calm) = (costs_until_full(costs.clone()), costs_until_full(costs.without_pressure()));
    let saved: Vec<u64> = real.iter().zip(&calm).map(|(real, calm)| real - calm).collect();
    assert_eq!(real.len(), calm.len(), "it gives as much memory");
    assert_eq!(saved[0], costs.claim_ns, "the first unmovable block is claimed from the movable ones");
    assert!(saved[1..saved.len() - 1].iter().all(|saved| saved % costs.claim_ns == 0));
    assert_eq!(*saved.last().unwrap(), costs.reclaim_ns + costs.compaction_ns);
    assert!(
        *calm.iter().max().unwrap() > costs.page_pcp_ns + costs.page_buddy_ns,
        "lists are still refilled"
    );
}

#[test]
fn scaled_costs_are_in_proportion() {
    let costs = Costs::default();
    let slow = Costs::scaled(12_000);
    assert_eq!((slow.slab_fast_ns, slow.reclaim_ns), (12 * costs.slab_fast_ns, 12 * costs.reclaim_ns));
    assert_eq!(Costs::scaled(1000), costs);
}
