//! What the allocator's operations cost in CPU time.
//!
//! The defaults are for a native x86-64 machine at about 3 GHz with warm caches and an uncontended lock. Zeroing and
//! the user's own cache misses are not in them.

/// CPU time of operations, in ns. An operation costs what its fast path costs (`slab_fast_ns`, `page_pcp_ns`), and the
/// other entries come on top for what it had to do beyond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Allocating from, or freeing to, the CPU's active slab. Brouer, Linux commit fbd02630c6e3: 43 cycles for the
    /// pair on an i7-4790K at 4 GHz; at 3 GHz that is 14 ns, 7 ns each.
    pub slab_fast_ns: u64,
    /// Freeing into a slab that is not the CPU's active one, or making a slab that has free objects active: one
    /// atomic operation on the slab, no lock. Brouer, qmempool series, linux-mm, December 2014: a pair costs 19 ns
    /// with instant reuse but 45 ns when many objects are outstanding, so 13 ns more for each half.
    pub slab_remote_ns: u64,
    /// Moving a slab between a CPU and the node's list, under that list's lock. Estimate.
    pub slab_partial_ns: u64,
    /// Making a slab, or giving one back, from a block of a per-CPU page list: set-up of a free list of some tens of
    /// objects. Estimate.
    pub slab_new_ns: u64,
    /// Allocating from, or freeing to, a per-CPU page list. Estimate, after Gorman, "Use per-cpu allocator for !irq
    /// requests", linux-mm, January 2017 (a pair costs some 200 to 300 cycles, the series saves 30 % of that).
    pub page_pcp_ns: u64,
    /// Moving one block between a buddy list and its user or a per-CPU list, in bulk under the zone's lock: a cache
    /// miss on the `struct page` (Lu, "Eliminate zone->lock contention", linux-mm, February 2018, finds that to be
    /// most of the time). Estimate.
    pub page_buddy_ns: u64,
    /// Splitting a block once. Estimate.
    pub split_ns: u64,
    /// Moving a free block to another mobility, because that one has none left. Estimate: as a split, one list operation.
    pub claim_ns: u64,
    /// Merging with a buddy once: one more cache miss. Estimate.
    pub merge_ns: u64,
    /// Direct reclaim, once for each allocation that found every zone below its minimal watermark. Estimate: the
    /// scan of one batch of 32 pages and a drain of all per-CPU lists.
    pub reclaim_ns: u64,
    /// Direct compaction, once for each such allocation above order 0. Estimate: the scan of one pageblock; what is
    /// reported of huge page faults goes from 100 us to seconds (Rientjes, Linux commit 75f30861a12a).
    pub compaction_ns: u64,
    /// A miss in the translation buffer, at the first use of a block that comes from the buddy lists (those on the
    /// per-CPU lists were in use a short while ago). Estimate: a nested page walk with the tables in the caches.
    pub tlb_miss_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs::scaled(1000)
    }
}

impl Costs {
    /// The costs of a machine on which all takes `permille` / 1000 times as long, rounded down.
    pub fn scaled(permille: u64) -> Costs {
        let ns = |native_ns: u64| native_ns * permille / 1000;
        Costs {
            slab_fast_ns: ns(7),
            slab_remote_ns: ns(13),
            slab_partial_ns: ns(100),
            slab_new_ns: ns(250),
            page_pcp_ns: ns(40),
            page_buddy_ns: ns(60),
            split_ns: ns(15),
            claim_ns: ns(15),
            merge_ns: ns(20),
            reclaim_ns: ns(20_000),
            compaction_ns: ns(100_000),
            tlb_miss_ns: ns(30),
        }
    }

    /// The same, but what only short memory makes necessary costs nothing (a counterfactual): reclaim, compaction, blocks
    /// claimed from another mobility. Refilling lists and making slabs happens in a calm memory too, and costs what it
    /// does.
    pub fn without_pressure(&self) -> Costs {
        Costs { claim_ns: 0, reclaim_ns: 0, compaction_ns: 0, ..self.clone() }
    }
}
