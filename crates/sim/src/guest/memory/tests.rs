//! Tests of the memory: by hand, against a reference, of planted faults, and of speed.

mod buddy;
mod faults;
mod model;
mod percpu;
mod shrink;
mod slabs;
mod speed;
mod whole;

use reprieve_study::units::MIB;

use super::*;

/// A memory of that size.
fn memory(bytes: u64, cpus: usize) -> Memory {
    Memory::new(&Spec { bytes, cpus, costs: Costs::default() })
}

/// Takes all blocks of that order or above in a zone, whatever its watermarks say.
fn exhaust(memory: &mut Memory, zone: usize, order: u8) {
    let Pages { zones, frames, .. } = &mut memory.pages;
    while let Some((frame, _)) = zones[zone].take(frames, order, Mobility::Unmovable, 0) {
        frames.set(frame, frames::Kind::Used, order, Mobility::Unmovable);
    }
}

/// Frames on per-CPU lists.
fn listed(memory: &Memory) -> u64 {
    memory.pages.lists.iter().map(|lists| u64::from(lists.count)).sum()
}
