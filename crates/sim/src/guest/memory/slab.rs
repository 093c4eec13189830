//! A slab cache: objects of one size, cut from blocks of pages called slabs.
//!
//! Each CPU has an *active* slab, which it alone allocates from, and a list of *partial* slabs; the node has a list of
//! partial slabs for all CPUs. A slab without free objects is *full* and on no list. An object freed into its own
//! CPU's active slab can be had again at once; one freed into another slab goes to that slab's own free list: the
//! slab stays where it is if it is active or on a CPU's list, goes to the freeing CPU's list if it was full, and goes
//! back to the page allocator if it is empty, on the node's list, and that list is long. A CPU's list that grows
//! too long moves to the node's as a whole.
//!
//! Source: Lameter, "Slab allocators in the Linux kernel", 2014; SLUB of Linux 6.1. Which free object of a slab is
//! taken is left open there (the free list may be randomised); here it is the lowest.
//!
//! Invariant: bits of a slab's free objects = its own free count, plus the CPU's if it is active.

use super::Mobility;
use super::OutOfMemory;
use super::costs::Costs;
use super::geometry::Geometry;
use super::object::{GENERATIONS, Object};
use super::pages::{Pages, Pressed};

/// No slab.
pub(super) const NONE: u32 = u32::MAX;

/// Where a slab is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: the number is free for a new slab.
    Unused,
    /// Some CPU's active slab.
    Active,
    /// On some CPU's partial list.
    CpuList,
    /// On the node's partial list.
    NodeList,
    /// On no list, without free objects.
    Full,
}

/// One slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub frame: u32,
    pub before: u32,
    pub after: u32,
    pub objects: u16,
    /// Free objects, without those that an active slab's CPU has to itself.
    pub free: u16,
    /// No bit is set in the words below this one.
    lowest: u16,
    pub generation: u16,
    pub order: u8,
    pub place: Place,
}

/// What a CPU has of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuSlabs {
    pub active: u32,
    /// Objects of the active slab that the CPU may take.
    pub free: u16,
    /// Head of the partial list, linked by `after`.
    pub partial: u32,
    pub count: u32,
}

/// The node's partial list.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSlabs {
    pub first: u32,
    pub last: u32,
    pub count: u32,
}

/// A cache.
#[derive(Debug)]
pub(super) struct SlabCache {
    id: usize,
    pub geometry: Geometry,
    mobility: Mobility,
    pub cpus: Vec<CpuSlabs>,
    pub node: NodeSlabs,
    pub slabs: Vec<Slab>,
    /// A bit for each object, set if it is free; `words` words for each slab.
    pub bits: Vec<u64>,
    words: usize,
    /// Head of the unused slab numbers, linked by `after`.
    unused: u32,
    /// Frames in slabs.
    pub frames: u64,
}

impl SlabCache {
    /// A cache without slabs; `id` goes into its objects' handles.
    pub fn new(id: usize, geometry: Geometry, mobility: Mobility, cpus: usize) -> SlabCache {
        SlabCache {
            id,
            geometry,
            mobility,
            cpus: vec![CpuSlabs { active: NONE, free: 0, partial: NONE, count: 0 }; cpus],
            node: NodeSlabs { first: NONE, last: NONE, count: 0 },
            slabs: Vec::new(),
            bits: Vec::new(),
            words: (geometry.objects(geometry.order) as usize).div_ceil(64),
            unused: NONE,
            frames: 0,
        }
    }

    /// The bits of a slab's objects.
    pub fn bits_of(&self, slab: u32) -> &[u64] {
        &self.bits[slab as usize * self.words..][..self.words]
    }

    /// Allocates an object; also says what it cost beyond the fast path.
    #[inline]
    pub fn alloc(
        &mut self,
        cpu: usize,
        pages: &mut Pages,
        costs: &Costs,
    ) -> Result<(Object, u64), OutOfMemory> {
        let extra_ns = if self.cpus[cpu].free == 0 { self.refill(cpu, pages, costs)? } else { 0 };
        let own = &mut self.cpus[cpu];
        own.free -= 1;
        let number = own.active;
        let slab = &mut self.slabs[number as usize];
        let base = number as usize * self.words;
        let mut word = slab.lowest as usize;
        while self.bits[base + word] == 0 {
            word += 1;
        }
        slab.lowest = word as u16;
        let bits = &mut self.bits[base + word];
        let object = (word * 64) as u16 + bits.trailing_zeros() as u16;
        *bits &= *bits - 1;
        Ok((Object::of_slab(self.id, number, object, slab.generation), extra_ns))
    }

    /// Frees an object; says what it cost beyond the fast path.
    #[inline]
    pub fn free(
        &mut self,
        cpu: usize,
        number: u32,
        object: u16,
        generation: u16,
        pages: &mut Pages,
        costs: &Costs,
    ) -> u64 {
        let slab = &mut self.slabs[number as usize];
        let word = object as usize / 64;
        let bits = &mut self.bits[number as usize * self.words + word];
        let bit = 1 << (object % 64);
        let in_use = slab.generation == generation && slab.place != Place::Unused && *bits & bit == 0;
        assert!(in_use, "object {object} of slab {number} was freed but is not in use");
        *bits |= bit;
        slab.lowest = slab.lowest.min(word as u16);
        let own = &mut self.cpus[cpu];
        if own.active == number {
            own.free += 1;
            return 0;
        }
        slab.free += 1;
        costs.slab_remote_ns + self.settle(cpu, number, pages, costs)
    }

    /// Puts a slab, into which an object was freed from outside, where it now belongs.
    fn settle(&mut self, cpu: usize, number: u32, pages: &mut Pages, costs: &Costs) -> u64 {
        let slab = self.slabs[number as usize];
        match slab.place {
            Place::Full => self.keep_partial(cpu, number, pages, costs),
            Place::NodeList if slab.free == slab.objects && self.node.count >= self.geometry.node_slabs => {
                self.leave_node(number);
                costs.slab_partial_ns + self.discard(cpu, number, pages, costs)
            }
            _ => 0,
        }
    }

    /// Whether a CPU can allocate without a new slab.
    pub fn has_free(&self, cpu: usize) -> bool {
        let own = self.cpus[cpu];
        let active = own.active != NONE && self.slabs[own.active as usize].free > 0;
        own.free > 0 || active || own.partial != NONE || self.node.first != NONE
    }

    /// Finds a slab with free objects and makes it active.
    #[cold]
    fn refill(&mut self, cpu: usize, pages: &mut Pages, costs: &Costs) -> Result<u64, OutOfMemory> {
        let active = self.cpus[cpu].active;
        if active != NONE {
            if self.slabs[active as usize].free > 0 {
                self.activate(cpu, active);
                return Ok(costs.slab_remote_ns);
            }
            self.slabs[active as usize].place = Place::Full;
            self.cpus[cpu].active = NONE;
        }
        let partial = self.cpus[cpu].partial;
        if partial != NONE {
            let own = &mut self.cpus[cpu];
            own.partial = self.slabs[partial as usize].after;
            own.count -= 1;
            self.activate(cpu, partial);
            return Ok(costs.slab_remote_ns);
        }
        match self.fetch(cpu, costs) {
            Some(extra_ns) => Ok(extra_ns),
            None => self.grow(cpu, pages, costs),
        }
    }

    /// Takes the node's first slab as active one, and some more for the CPU's list.
    fn fetch(&mut self, cpu: usize, costs: &Costs) -> Option<u64> {
        let first = self.node.first;
        if first == NONE {
            return None;
        }
        self.leave_node(first);
        self.activate(cpu, first);
        let mut extra_ns = costs.slab_partial_ns;
        for _ in 0..=self.geometry.cpu_slabs / 2 {
            let next = self.node.first;
            if next == NONE {
                break;
            }
            self.leave_node(next);
            self.join_cpu(cpu, next);
            extra_ns += costs.slab_partial_ns;
        }
        Some(extra_ns)
    }

    /// Makes a new slab and makes it active.
    fn grow(&mut self, cpu: usize, pages: &mut Pages, costs: &Costs) -> Result<u64, OutOfMemory> {
        let Geometry { order, least_order, .. } = self.geometry;
        let large = if order > least_order { Pressed::Fails } else { Pressed::Drains };
        let (frame, order, page_ns) = match pages.alloc(cpu, order, self.mobility, large, costs) {
            Ok((frame, page_ns)) => (frame, order, page_ns),
            Err(error) if large == Pressed::Drains => return Err(error),
            Err(_) => {
                let (frame, page_ns) =
                    pages.alloc(cpu, least_order, self.mobility, Pressed::Drains, costs)?;
                (frame, least_order, page_ns)
            }
        };
        let number = self.new_slab(frame, order);
        self.activate(cpu, number);
        Ok(costs.slab_new_ns + page_ns)
    }

    /// Gives a number to a new slab, all of whose objects are free.
    fn new_slab(&mut self, frame: u32, order: u8) -> u32 {
        let objects = self.geometry.objects(order);
        let fresh = Slab {
            frame,
            before: NONE,
            after: NONE,
            objects,
            free: objects,
            lowest: 0,
            generation: 0,
            order,
            place: Place::Full,
        };
        let number = match self.unused {
            NONE => {
                self.slabs.push(fresh);
                self.bits.resize(self.slabs.len() * self.words, 0);
                self.slabs.len() as u32 - 1
            }
            number => {
                let slot = &mut self.slabs[number as usize];
                self.unused = slot.after;
                *slot = Slab { generation: slot.generation, ..fresh };
                number
            }
        };
        let words = &mut self.bits[number as usize * self.words..][..self.words];
        for (word, bits) in words.iter_mut().enumerate() {
            let left = (objects as usize).saturating_sub(word * 64);
            *bits = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        }
        self.frames += 1 << order;
        number
    }

    /// Gives a slab's block back; the slab is on no list.
    pub fn discard(&mut self, cpu: usize, number: u32, pages: &mut Pages, costs: &Costs) -> u64 {
        let slab = &mut self.slabs[number as usize];
        let (frame, order) = (slab.frame, slab.order);
        slab.place = Place::Unused;
        slab.generation = (slab.generation + 1) % GENERATIONS;
        slab.after = self.unused;
        self.unused = number;
        self.frames -= 1 << order;
        costs.slab_new_ns + pages.free(cpu, frame, order, costs)
    }

    /// Makes a slab with free objects, on no list, the CPU's active one.
    fn activate(&mut self, cpu: usize, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let own = &mut self.cpus[cpu];
        slab.place = Place::Active;
        own.active = number;
        own.free = slab.free;
        slab.free = 0;
    }

    /// Puts a slab that was full on the CPU's list; a list that has as many as it may first moves to the node's.
    fn keep_partial(&mut self, cpu: usize, number: u32, pages: &mut Pages, costs: &Costs) -> u64 {
        let surplus = self.cpus[cpu].count >= self.geometry.cpu_slabs;
        let extra_ns = if surplus { self.unload(cpu, pages, costs) } else { 0 };
        self.join_cpu(cpu, number);
        extra_ns
    }

    fn join_cpu(&mut self, cpu: usize, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let own = &mut self.cpus[cpu];
        slab.place = Place::CpuList;
        slab.after = own.partial;
        own.partial = number;
        own.count += 1;
    }

    /// Moves the CPU's whole list to the node's, but gives back empty slabs once the node has enough.
    pub fn unload(&mut self, cpu: usize, pages: &mut Pages, costs: &Costs) -> u64 {
        let mut at = self.cpus[cpu].partial;
        self.cpus[cpu].partial = NONE;
        self.cpus[cpu].count = 0;
        let mut extra_ns = 0;
        while at != NONE {
            let after = self.slabs[at as usize].after;
            extra_ns += costs.slab_partial_ns + self.join_node(cpu, at, pages, costs);
            at = after;
        }
        extra_ns
    }

    /// Puts a slab with free objects at the tail of the node's list, or gives it back.
    pub fn join_node(&mut self, cpu: usize, number: u32, pages: &mut Pages, costs: &Costs) -> u64 {
        let slab = &mut self.slabs[number as usize];
        if slab.free == slab.objects && self.node.count >= self.geometry.node_slabs {
            return self.discard(cpu, number, pages, costs);
        }
        slab.place = Place::NodeList;
        slab.before = self.node.last;
        slab.after = NONE;
        match self.node.last {
            NONE => self.node.first = number,
            last => self.slabs[last as usize].after = number,
        }
        self.node.last = number;
        self.node.count += 1;
        0
    }

    pub fn leave_node(&mut self, number: u32) {
        let Slab { before, after, .. } = self.slabs[number as usize];
        match before {
            NONE => self.node.first = after,
            before => self.slabs[before as usize].after = after,
        }
        match after {
            NONE => self.node.last = before,
            after => self.slabs[after as usize].before = before,
        }
        self.node.count -= 1;
    }
}
