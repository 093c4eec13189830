//! A guest's memory: page frames under a buddy allocator with per-CPU lists, and slab caches on top.
//!
//! Footprint and fragmentation are computed from the allocator's state, not modelled. Costs are returned with each
//! operation, in nanoseconds of CPU time, from [`Costs`].
//!
//! The algorithms are those of Linux 6.1 on x86-64 with one NUMA node: Gorman, "Understanding the Linux Virtual
//! Memory Manager", chapter 6 (buddy lists, per-CPU lists, watermarks); Gorman and Whitcroft, "The What, The Why and
//! the Where To of Anti-Fragmentation", OLS 2006 (mobility); Lameter, "Slab allocators in the Linux kernel", 2014
//! (SLUB). What is left out: reclaim and compaction do nothing but cost time, kswapd, boosted watermarks, the
//! reserve for atomic allocations, huge pages on per-CPU lists, the transparent huge pages' higher `min_free_kbytes`.
//!
//! Invariants, which [`Memory::check`] proves: a frame is in exactly one block; a block is on exactly one list or in
//! use; two free buddies are never apart; what is counted is what is there.
//!
//! | part | what it is |
//! |---|---|
//! | `frames` | what each frame is, and the lists threaded through frames |
//! | `zone`, `fallback` | buddy lists of a zone; claiming blocks of another mobility |
//! | `percpu` | a CPU's lists of free blocks of a zone |
//! | `pages` | zones in order of preference, watermarks |
//! | `geometry`, `slab` | what a slab of a cache is; the cache itself |
//! | `boot`, `check` | memory taken by a booted kernel; proof of the invariants |

mod boot;
mod check;
mod costs;
mod fallback;
mod frames;
mod geometry;
mod object;
mod pages;
mod percpu;
mod slab;
mod zone;

#[cfg(test)]
mod tests;

pub use costs::Costs;
pub use object::Object;

use geometry::Geometry;
use object::Place;
use pages::{Pages, Pressed};
use slab::SlabCache;

/// Bytes of a page frame.
pub const FRAME_BYTES: u64 = 4096;
/// The largest block is `1 << MAX_ORDER` frames: 4 MiB.
pub const MAX_ORDER: u8 = 10;
/// A pageblock, the unit of mobility, is `1 << PAGEBLOCK_ORDER` frames: 2 MiB, a huge page.
pub const PAGEBLOCK_ORDER: u8 = 9;

/// Objects above this size are blocks of pages (`KMALLOC_MAX_CACHE_SIZE`: two pages).
const SLAB_OBJECT_LIMIT_BYTES: u32 = 8192;

/// A memory to build.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Size; a part of a frame at its end is not used. At most 256 GiB: slabs have 26 bits in an [`Object`].
    pub bytes: u64,
    /// CPUs that allocate, numbered from 0. At least 1.
    pub cpus: usize,
    /// What operations cost.
    pub costs: Costs,
}

/// What may be done with a page in use; pages of the same mobility are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mobility {
    /// Stays where it is: most kernel memory.
    Unmovable = 0,
    /// Can be moved: user memory, page cache.
    Movable = 1,
    /// Cannot be moved but can be given up: inodes, dentries.
    Reclaimable = 2,
}

impl Mobility {
    /// All, by number.
    const ALL: [Mobility; 3] = [Mobility::Unmovable, Mobility::Movable, Mobility::Reclaimable];
}

/// A block of frames: number of its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

/// A slab cache of this memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cache(pub u16);

/// No frames left for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest is out of memory")]
pub struct OutOfMemory;

/// Where a cache's objects come from.
#[derive(Debug)]
enum Store {
    Slabs(SlabCache),
    /// Blocks of that order, for objects too large for a slab.
    Pages(u8, Mobility),
}

/// The memory of a guest.
#[derive(Debug)]
pub struct Memory {
    pages: Pages,
    stores: Vec<Store>,
    cpus: usize,
    /// Frames of large objects: the slab figure has them too, as in Linux.
    large_frames: u64,
    costs: Costs,
}

impl Memory {
    /// A memory whose frames are all free, in movable blocks of the highest order.
    ///
    /// # Panics
    /// If it has no CPU, not one frame, or more than 256 GiB.
    pub fn new(spec: &Spec) -> Memory {
        assert!(spec.cpus > 0, "a memory needs a CPU");
        assert!((FRAME_BYTES..=256 << 30).contains(&spec.bytes), "cannot build {} bytes", spec.bytes);
        let frames = (spec.bytes / FRAME_BYTES) as u32;
        Memory {
            pages: Pages::new(frames, spec.cpus),
            stores: Vec::new(),
            cpus: spec.cpus,
            large_frames: 0,
            costs: spec.costs.clone(),
        }
    }

    /// Adds a cache of objects of that size, rounded up to 8 bytes. A user of `kmalloc` asks for the size class.
    /// Objects above 8 KiB are blocks of pages, as `kmalloc` gives them.
    ///
    /// # Panics
    /// If the size is 0 or above 4 MiB, or at the 1025th cache.
    pub fn add_cache(&mut self, object_bytes: u32, mobility: Mobility) -> Cache {
        let id = self.stores.len();
        assert!(id < object::CACHES, "too many caches");
        assert!(
            (1..=(FRAME_BYTES as u32) << MAX_ORDER).contains(&object_bytes),
            "no cache of {object_bytes} B"
        );
        self.stores.push(if object_bytes > SLAB_OBJECT_LIMIT_BYTES {
            Store::Pages(geometry::order_of(object_bytes), mobility)
        } else {
            Store::Slabs(SlabCache::new(id, Geometry::new(object_bytes, self.cpus), mobility, self.cpus))
        });
        Cache(id as u16)
    }

    /// Allocates an object; also says what that cost, in ns.
    ///
    /// # Errors
    /// When a new slab is needed and no frames are left for one.
    pub fn alloc(&mut self, cpu: usize, cache: Cache) -> Result<(Object, u64), OutOfMemory> {
        match &mut self.stores[cache.0 as usize] {
            Store::Slabs(slabs) => {
                let (object, extra_ns) = slabs.alloc(cpu, &mut self.pages, &self.costs)?;
                Ok((object, self.costs.slab_fast_ns + extra_ns))
            }
            &mut Store::Pages(order, mobility) => {
                let (frame, cost_ns) = self.alloc_pages(cpu, order, mobility)?;
                self.large_frames += 1 << order;
                Ok((Object::of_pages(frame, order), cost_ns))
            }
        }
    }

    /// Whether a CPU can allocate an object of that cache without a new slab.
    pub fn has_free(&self, cpu: usize, cache: Cache) -> bool {
        match &self.stores[cache.0 as usize] {
            Store::Slabs(slabs) => slabs.has_free(cpu),
            Store::Pages(..) => true,
        }
    }

    /// Bytes of an object of that cache.
    pub fn object_bytes(&self, cache: Cache) -> u64 {
        match &self.stores[cache.0 as usize] {
            Store::Slabs(slabs) => u64::from(slabs.geometry.object_bytes),
            Store::Pages(order, _) => FRAME_BYTES << order,
        }
    }

    /// Bytes of an object.
    pub fn bytes_of(&self, object: Object) -> u64 {
        match object.place() {
            Place::Slab { cache, .. } => self.object_bytes(Cache(cache as u16)),
            Place::Pages { order, .. } => FRAME_BYTES << order,
        }
    }

    /// Objects that the slabs of a cache have room for.
    pub fn objects_of(&self, cache: Cache) -> u64 {
        match &self.stores[cache.0 as usize] {
            Store::Slabs(slabs) => slabs.frames * FRAME_BYTES / self.object_bytes(cache),
            Store::Pages(..) => 0,
        }
    }

    /// Frees an object, on any CPU; says what that cost, in ns.
    ///
    /// # Panics
    /// If the object is free already.
    pub fn free(&mut self, cpu: usize, object: Object) -> u64 {
        match object.place() {
            Place::Slab { cache, slab, number, generation } => {
                let Store::Slabs(slabs) = &mut self.stores[cache] else {
                    panic!("{object:?} is of no slab cache")
                };
                let extra_ns = slabs.free(cpu, slab, number, generation, &mut self.pages, &self.costs);
                self.costs.slab_fast_ns + extra_ns
            }
            Place::Pages { frame, order } => {
                let cost_ns = self.free_pages(cpu, frame, order);
                self.large_frames -= 1 << order;
                cost_ns
            }
        }
    }

    /// Allocates a naturally aligned block of `1 << order` frames; also says what that cost, in ns.
    ///
    /// # Errors
    /// When no zone can give the block and stay above its minimal watermark, though per-CPU lists were drained.
    pub fn alloc_pages(
        &mut self,
        cpu: usize,
        order: u8,
        mobility: Mobility,
    ) -> Result<(Frame, u64), OutOfMemory> {
        assert!(order <= MAX_ORDER, "no block of order {order}");
        let (frame, extra_ns) = self.pages.alloc(cpu, order, mobility, Pressed::Drains, &self.costs)?;
        Ok((Frame(frame), self.costs.page_pcp_ns + extra_ns))
    }

    /// Frees a block, on any CPU, with the order it was allocated with; says what that cost, in ns.
    ///
    /// # Panics
    /// If no block of that order is in use there.
    pub fn free_pages(&mut self, cpu: usize, frame: Frame, order: u8) -> u64 {
        self.costs.page_pcp_ns + self.pages.free(cpu, frame.0, order, &self.costs)
    }

    /// All memory under the allocator.
    pub fn managed_bytes(&self) -> u64 {
        self.pages.managed_frames() * FRAME_BYTES
    }

    /// Memory in buddy lists: what `/proc/buddyinfo` adds up to. Per-CPU lists are not in it.
    pub fn free_bytes(&self) -> u64 {
        self.pages.free_frames() * FRAME_BYTES
    }

    /// Memory that is not in buddy lists.
    pub fn footprint_bytes(&self) -> u64 {
        self.managed_bytes() - self.free_bytes()
    }

    /// Memory in slabs, free objects included, and in large objects.
    pub fn slab_bytes(&self) -> u64 {
        let frames = |store: &Store| match store {
            Store::Slabs(slabs) => slabs.frames,
            Store::Pages(..) => 0,
        };
        (self.stores.iter().map(frames).sum::<u64>() + self.large_frames) * FRAME_BYTES
    }

    /// Memory that could be had without pressure: free memory less what watermarks and reserves keep back. As
    /// `MemAvailable` without page cache and reclaimable slabs, of which this memory knows nothing.
    pub fn available_bytes(&self) -> u64 {
        self.pages.free_frames().saturating_sub(self.pages.reserve_frames()) * FRAME_BYTES
    }

    /// Free blocks of exactly that order, all zones.
    pub fn free_blocks(&self, order: u8) -> u64 {
        self.pages.free_blocks(order)
    }

    /// Share of free memory, 0 to 1, that a request of that order cannot use because it lies in smaller blocks; 1 if
    /// nothing is free. Over all zones together: the zones' unusable free space indices (debugfs
    /// `extfrag/unusable_index`) weighted by their free memory.
    pub fn unusable_index(&self, order: u8) -> f64 {
        let free = self.pages.free_frames();
        if free == 0 {
            return 1.0;
        }
        let suitable: u64 = (order..=MAX_ORDER).map(|o| self.free_blocks(o) << o).sum();
        (free - suitable) as f64 / free as f64
    }
}
