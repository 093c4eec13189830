//! Figures of a whole memory.

use super::*;
use crate::random::Stream;

#[test]
fn all_is_free_at_first() {
    let memory = memory(8 << 30, 4);
    assert_eq!(memory.managed_bytes(), 8 << 30);
    assert_eq!((memory.free_bytes(), memory.footprint_bytes(), memory.slab_bytes()), (8 << 30, 0, 0));
    assert_eq!(memory.free_blocks(MAX_ORDER), 2048);
    assert_eq!(memory.unusable_index(9), 0.0);
    let kept = memory.managed_bytes() - memory.available_bytes();
    assert!((32 * MIB..64 * MIB).contains(&kept), "{kept}");
}

#[test]
fn the_unusable_index_is_the_share_of_smaller_blocks() {
    let mut memory = memory(32 * MIB, 1);
    let blocks: Vec<Frame> = (0..4).map(|_| memory.alloc_pages(0, 9, Mobility::Movable).unwrap().0).collect();
    assert_eq!(memory.unusable_index(9), 0.0);
    assert_eq!(memory.unusable_index(10), 0.0, "two largest blocks are taken as a whole");
    memory.free_pages(0, blocks[1], 9);
    assert_eq!(memory.unusable_index(10), 512.0 / (8192.0 - 1536.0));
    assert_eq!(memory.unusable_index(9), 0.0);
}

#[test]
fn a_booted_kernel_takes_just_so_much_and_leaves_holes() {
    let mut memory = memory(2 << 30, 2);
    let mut stream = Stream::new(1, "boot", 0);
    memory.occupy(300 * MIB, &mut stream).unwrap();
    memory.check().unwrap();
    assert_eq!(memory.footprint_bytes(), 300 * MIB);
    // 37.5 MiB of single pages, with 112.5 MiB of holes of which most are less than a huge page, and the rest of
    // three pageblocks that were cut.
    let unusable = memory.unusable_index(9) * memory.free_bytes() as f64;
    assert!((80.0..119.0).contains(&(unusable / MIB as f64)), "{unusable}");
    assert!(memory.free_blocks(0) > 1000);
}

#[test]
fn a_kernel_that_does_not_fit_is_an_error() {
    let mut memory = memory(64 * MIB, 1);
    assert_eq!(memory.occupy(80 * MIB, &mut Stream::new(1, "boot", 0)), Err(OutOfMemory));
    memory.check().unwrap();
}
