//! Gives up what is kept for speed, so that a test can see whether all memory comes back.

use super::*;
use crate::guest::memory::slab::{NONE, Place};

impl Memory {
    /// Gives up what is kept for speed: CPUs' slabs, empty slabs, per-CPU page lists. (`kmem_cache_shrink()` of each
    /// cache, then `drain_all_pages()`.)
    pub fn shrink(&mut self) {
        for store in &mut self.stores {
            if let Store::Slabs(slabs) = store {
                slabs.shrink_all(&mut self.pages, &self.costs);
            }
        }
        self.pages.drain(&self.costs);
    }
}

impl SlabCache {
    /// Takes CPUs' slabs away and gives all empty ones back.
    fn shrink_all(&mut self, pages: &mut Pages, costs: &Costs) {
        for cpu in 0..self.cpus.len() {
            self.deactivate(cpu, pages, costs);
            self.unload(cpu, pages, costs);
        }
        let mut at = self.node.first;
        while at != NONE {
            let slab = self.slabs[at as usize];
            if slab.free == slab.objects {
                self.leave_node(at);
                self.discard(0, at, pages, costs);
            }
            at = slab.after;
        }
    }

    /// Takes the CPU's active slab away.
    fn deactivate(&mut self, cpu: usize, pages: &mut Pages, costs: &Costs) {
        let own = &mut self.cpus[cpu];
        let (number, free) = (own.active, own.free);
        if number == NONE {
            return;
        }
        (own.active, own.free) = (NONE, 0);
        let slab = &mut self.slabs[number as usize];
        slab.free += free;
        if slab.free == 0 {
            slab.place = Place::Full;
        } else {
            self.join_node(cpu, number, pages, costs);
        }
    }
}
