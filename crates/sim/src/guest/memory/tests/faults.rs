//! Planted faults, each of which must be found.

use super::super::frames::Kind;
use super::super::percpu::LISTED_ORDER;
use super::super::slab::Place;
use super::*;

/// A memory with a bit of everything, sound so far.
fn used() -> (Memory, Cache, Vec<Object>) {
    let mut memory = memory(64 * MIB, 2);
    let cache = memory.add_cache(512, Mobility::Unmovable);
    let objects: Vec<Object> = (0..500).map(|n| memory.alloc(n % 2, cache).unwrap().0).collect();
    for &object in objects.iter().skip(7).step_by(8) {
        memory.free(0, object);
    }
    memory.alloc_pages(0, 0, Mobility::Movable).unwrap();
    memory.check().unwrap();
    (memory, cache, objects)
}

fn slabs(memory: &mut Memory) -> &mut SlabCache {
    let Store::Slabs(slabs) = &mut memory.stores[0] else { panic!("a cache of slabs") };
    slabs
}

/// What `check` says once the fault is there.
fn found(fault: impl FnOnce(&mut Memory)) -> String {
    let (mut memory, ..) = used();
    fault(&mut memory);
    memory.check().expect_err("the fault must be found")
}

#[test]
fn a_block_put_back_twice() {
    let message = found(|memory| {
        let (frame, _) = memory.alloc_pages(0, LISTED_ORDER + 1, Mobility::Movable).unwrap();
        let zone = memory.pages.zones.last_mut().unwrap();
        memory.pages.frames.clear(frame.0);
        zone.put(&mut memory.pages.frames, frame.0, LISTED_ORDER + 1, Mobility::Movable);
        zone.put(&mut memory.pages.frames, frame.0, LISTED_ORDER + 1, Mobility::Movable);
    });
    assert!(!message.is_empty());
}

#[test]
fn a_page_on_two_lists() {
    let message = found(|memory| {
        let zone = memory.pages.zones.last_mut().unwrap();
        let list = &mut zone.lists[0][Mobility::Reclaimable as usize];
        let frame =
            memory.pages.lists.iter().flat_map(|own| own.lists).find_map(|list| list.first()).unwrap();
        memory.pages.frames.push_first(list, frame);
    });
    assert!(message.contains("is on a list of Free Reclaimable"), "{message}");
}

#[test]
fn a_lost_block() {
    let message = found(|memory| {
        let (frame, _) = memory.alloc_pages(0, 4, Mobility::Movable).unwrap();
        memory.pages.frames.clear(frame.0);
    });
    assert!(message.contains("is in no block"), "{message}");
}

#[test]
fn a_free_block_on_no_list() {
    let message = found(|memory| {
        let (frame, _) = memory.alloc_pages(0, 4, Mobility::Movable).unwrap();
        memory.pages.frames.set(frame.0, Kind::Free, 4, Mobility::Movable);
    });
    assert!(message.contains("blocks are on buddy lists but"), "{message}");
}

#[test]
fn buddies_apart() {
    let message = found(|memory| {
        let zone = memory.pages.zones.last_mut().unwrap();
        let (frame, _) = zone.take(&mut memory.pages.frames, 5, Mobility::Movable, 0).unwrap();
        // As two halves, neither of which sees the other when it is put back.
        memory.pages.frames.set(frame + 16, Kind::Used, 4, Mobility::Movable);
        zone.put(&mut memory.pages.frames, frame, 4, Mobility::Movable);
        memory.pages.frames.set(frame, Kind::Used, 4, Mobility::Movable);
        memory.pages.frames.clear(frame + 16);
        zone.put(&mut memory.pages.frames, frame + 16, 4, Mobility::Movable);
        memory.pages.frames.set(frame, Kind::Free, 4, Mobility::Movable);
    });
    assert!(message.contains("buddy are both free"), "{message}");
}

#[test]
fn wrong_counts() {
    let counts: [fn(&mut Memory); 6] = [
        |memory| memory.pages.zones[0].free += 1,
        |memory| memory.pages.zones[1].blocks[3] += 1,
        |memory| memory.pages.lists.last_mut().unwrap().count += 1,
        |memory| slabs(memory).cpus[0].free -= 1,
        |memory| slabs(memory).node.count += 1,
        |memory| slabs(memory).cpus[0].count += 1,
    ];
    for fault in counts {
        assert!(found(fault).contains("counted"), "{}", found(fault));
    }
}

#[test]
fn a_slab_whose_free_objects_are_not_those_counted() {
    let message = found(|memory| {
        let full = slabs(memory).slabs.iter().position(|slab| slab.place == Place::CpuList).unwrap();
        slabs(memory).slabs[full].free += 1;
    });
    assert!(message.contains("free objects"), "{message}");
}

#[test]
fn a_slab_in_the_wrong_place() {
    let message = found(|memory| {
        let slab = slabs(memory).slabs.iter_mut().find(|slab| slab.place == Place::CpuList).unwrap();
        slab.place = Place::NodeList;
    });
    assert!(message.contains("not NodeList"), "{message}");
}

#[test]
fn two_slabs_of_one_block() {
    let message = found(|memory| slabs(memory).slabs[1].frame = slabs(memory).slabs[0].frame);
    assert_eq!(message, "two slabs share a frame");
}

#[test]
fn a_slab_whose_block_was_freed() {
    let message = found(|memory| {
        let slab = slabs(memory).slabs[0];
        memory.free_pages(0, Frame(slab.frame), slab.order);
    });
    assert!(message.contains("has no block"), "{message}");
}

#[test]
#[should_panic(expected = "freed but is not in use")]
fn an_object_freed_twice() {
    let (mut memory, _, objects) = used();
    memory.free(0, objects[0]);
    memory.free(1, objects[0]);
}

#[test]
#[should_panic(expected = "freed but is not in use")]
fn an_object_of_a_slab_that_is_gone_and_replaced() {
    let (mut memory, cache, objects) = used();
    let old = objects[0];
    let live = |at: &usize| at % 8 != 7;
    for at in (0..500).filter(live) {
        memory.free(0, objects[at]);
    }
    memory.shrink();
    assert_eq!(memory.slab_bytes(), 0);
    for _ in 0..500 {
        memory.alloc(0, cache).unwrap();
    }
    memory.free(0, old);
}

#[test]
#[should_panic(expected = "no block of order 0 is in use")]
fn a_page_freed_twice() {
    let (mut memory, ..) = used();
    let (frame, _) = memory.alloc_pages(0, 0, Mobility::Movable).unwrap();
    memory.free_pages(0, frame, 0);
    memory.free_pages(0, frame, 0);
}

#[test]
#[should_panic(expected = "no block of order 2 is in use")]
fn a_block_freed_with_another_order() {
    let (mut memory, ..) = used();
    let (frame, _) = memory.alloc_pages(0, 3, Mobility::Movable).unwrap();
    memory.free_pages(0, frame, 2);
}
