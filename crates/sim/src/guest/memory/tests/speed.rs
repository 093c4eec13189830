//! Speed and size, measured: `cargo test --release -p reprieve-sim guest::memory::tests::speed -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::*;

/// Nanoseconds of one of `count` rounds.
fn each(count: u64, mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / count as f64
}

#[test]
#[ignore = "a measurement"]
fn fast_path() {
    let mut memory = memory(4 << 30, 4);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let ns = each(20_000_000, || {
        let (object, _) = memory.alloc(0, cache).unwrap();
        black_box(memory.free(0, black_box(object)));
    });
    println!("object, fast path: {ns:.1} ns a pair");
    let ns = each(20_000_000, || {
        let (frame, _) = memory.alloc_pages(0, 0, Mobility::Unmovable).unwrap();
        black_box(memory.free_pages(0, black_box(frame), 0));
    });
    println!("page, fast path: {ns:.1} ns a pair");
    let ns = each(1_000_000, || {
        black_box((memory.footprint_bytes(), memory.unusable_index(9)));
    });
    println!("footprint and index: {ns:.1} ns");
}

/// Bursts of objects freed late, as callbacks do after a grace period: most frees miss the active slab.
#[test]
#[ignore = "a measurement"]
fn slow_paths() {
    let mut memory = memory(8 << 30, 4);
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let mut objects = Vec::new();
    for burst in [1_000, 100_000, 2_000_000] {
        let rounds = 8_000_000 / burst;
        let ns = each(rounds, || {
            (0..burst).for_each(|at| objects.push(memory.alloc((at / 64) as usize % 4, cache).unwrap().0));
            for (at, object) in objects.drain(..).enumerate() {
                memory.free(at / 10 % 4, object);
            }
        });
        println!("bursts of {burst} objects: {:.1} ns a pair", ns / burst as f64);
    }
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a Linux host");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
#[ignore = "a measurement"]
fn size_of_a_large_guest() {
    let before = resident_bytes();
    let start = Instant::now();
    let mut memory = memory(64 << 30, 64);
    println!("64 GiB unused: {} KiB, {:?}", (resident_bytes() - before) >> 10, start.elapsed());
    let cache = memory.add_cache(1024, Mobility::Unmovable);
    let objects: Vec<Object> = (0..2 << 20).map(|_| memory.alloc(0, cache).unwrap().0).collect();
    println!("2 GiB of it in objects: {} KiB", (resident_bytes() - before) >> 10);
    drop(objects);
}
