//! Random use of the memory against a reference that knows only which blocks and objects are live.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::frames::Kind;
use super::*;

const CPUS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Pages { cpu: usize, order: u8, mobility: Mobility },
    FreePages { cpu: usize, which: prop::sample::Index },
    Objects { cpu: usize, cache: usize, count: usize },
    FreeObjects { cpu: usize, which: prop::sample::Index, count: usize },
    Shrink,
}

fn mobility() -> impl Strategy<Value = Mobility> {
    prop::sample::select(Mobility::ALL.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let order = prop_oneof![6 => 0..4u8, 2 => 4..9u8, 1 => 9..=10u8];
    prop_oneof![
        8 => (0..CPUS, order, mobility()).prop_map(|(cpu, order, mobility)| Step::Pages { cpu, order, mobility }),
        7 => (0..CPUS, any::<prop::sample::Index>()).prop_map(|(cpu, which)| Step::FreePages { cpu, which }),
        5 => (0..CPUS, 0..CACHES.len(), 1..200usize)
            .prop_map(|(cpu, cache, count)| Step::Objects { cpu, cache, count }),
        4 => (0..CPUS, any::<prop::sample::Index>(), 1..250usize)
            .prop_map(|(cpu, which, count)| Step::FreeObjects { cpu, which, count }),
        1 => Just(Step::Shrink),
    ]
}

/// Object sizes of the caches: a bitmap of several words; of one; a slab order above its least one; pages.
const CACHES: [u32; 5] = [8, 200, 1024, 3000, 20_000];

/// The reference.
struct Model {
    memory: Memory,
    caches: Vec<Cache>,
    blocks: BTreeMap<u32, u8>,
    objects: BTreeSet<Object>,
}

impl Model {
    fn new(bytes: u64) -> Model {
        let mut memory = memory(bytes, CPUS);
        let caches = CACHES.map(|bytes| memory.add_cache(bytes, Mobility::Reclaimable)).to_vec();
        Model { memory, caches, blocks: BTreeMap::new(), objects: BTreeSet::new() }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Pages { cpu, order, mobility } => {
                if let Ok((Frame(frame), _)) = self.memory.alloc_pages(cpu, order, mobility) {
                    self.add_block(frame, order);
                }
            }
            Step::FreePages { cpu, ref which } => {
                if !self.blocks.is_empty() {
                    let (&frame, &order) = self.blocks.iter().nth(which.index(self.blocks.len())).unwrap();
                    self.blocks.remove(&frame);
                    self.memory.free_pages(cpu, Frame(frame), order);
                }
            }
            Step::Objects { cpu, cache, count } => {
                for _ in 0..count {
                    let Ok((object, _)) = self.memory.alloc(cpu, self.caches[cache]) else { break };
                    assert!(self.objects.insert(object), "{object:?} is live already");
                }
            }
            Step::FreeObjects { cpu, ref which, count } => {
                let start = if self.objects.is_empty() { 0 } else { which.index(self.objects.len()) };
                let freed: Vec<Object> = self.objects.iter().copied().skip(start).take(count).collect();
                for object in freed {
                    self.objects.remove(&object);
                    self.memory.free(cpu, object);
                }
            }
            Step::Shrink => self.memory.shrink(),
        }
    }

    fn add_block(&mut self, frame: u32, order: u8) {
        let size = 1 << order;
        assert_eq!(frame % size, 0, "block {frame} of order {order} is not aligned");
        assert!(u64::from(frame + size) * FRAME_BYTES <= self.memory.managed_bytes());
        let overlap = self.blocks.range(..frame + size).next_back().filter(|&(&f, &o)| f + (1 << o) > frame);
        assert_eq!(overlap, None, "block {frame} of order {order} overlaps");
        self.blocks.insert(frame, order);
    }

    /// Frames not on buddy lists, by what the model knows and by the slab figures.
    fn verify(&self) {
        self.memory.check().unwrap();
        let pages: u64 = self.blocks.values().map(|&order| 1 << order).sum();
        let taken = (pages + listed(&self.memory)) * FRAME_BYTES + self.memory.slab_bytes();
        assert_eq!(self.memory.footprint_bytes(), taken);
        assert_eq!(self.memory.free_bytes() + taken, self.memory.managed_bytes());
    }

    /// Blocks, by order, that cover the free frames if as large as can be: what buddy lists must hold.
    fn free_blocks(&self) -> Vec<u64> {
        let frames = (self.memory.managed_bytes() / FRAME_BYTES) as u32;
        let mut free = vec![true; frames as usize];
        for frame in 0..frames {
            if let Some(head) = self.memory.pages.frames.head(frame)
                && head.kind != Kind::Free
            {
                free[frame as usize..][..1 << head.order].fill(false);
            }
        }
        let mut blocks = vec![0; MAX_ORDER as usize + 1];
        let mut at = 0;
        while at < free.len() {
            let fits = |&order: &u8| {
                at % (1 << order) == 0
                    && free.get(at..at + (1 << order)).is_some_and(|block| block.iter().all(|f| *f))
            };
            match (0..=MAX_ORDER).rev().find(fits) {
                Some(order) => {
                    blocks[order as usize] += 1;
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
        blocks
    }

    fn verify_index(&self) {
        let blocks = self.free_blocks();
        let free: u64 = blocks.iter().enumerate().map(|(order, &count)| count << order).sum();
        for order in 0..=MAX_ORDER {
            assert_eq!(self.memory.free_blocks(order), blocks[order as usize], "order {order}");
            let suitable: u64 = (order..=MAX_ORDER).map(|o| blocks[o as usize] << o).sum();
            let index = if free == 0 { 1.0 } else { (free - suitable) as f64 / free as f64 };
            assert_eq!(self.memory.unusable_index(order), index, "order {order}");
        }
    }

    fn free_all(&mut self) {
        for (at, (frame, order)) in std::mem::take(&mut self.blocks).into_iter().enumerate() {
            self.memory.free_pages(at % CPUS, Frame(frame), order);
        }
        for (at, object) in std::mem::take(&mut self.objects).into_iter().enumerate() {
            self.memory.free(at % CPUS, object);
        }
        self.memory.shrink();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A small memory, so that it is often full and blocks of other mobilities are claimed; its size is no multiple
    /// of anything.
    #[test]
    fn random_use_of_a_small_memory(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new(21 * MIB + 37 * FRAME_BYTES + 99);
        let fresh: Vec<u64> = (0..=MAX_ORDER).map(|order| model.memory.free_blocks(order)).collect();
        for step in &steps {
            model.apply(step);
            model.verify();
        }
        model.verify_index();
        model.free_all();
        model.verify();
        let after: Vec<u64> = (0..=MAX_ORDER).map(|order| model.memory.free_blocks(order)).collect();
        prop_assert_eq!(after, fresh);
    }

    #[test]
    fn the_same_use_gives_the_same_memory(steps in prop::collection::vec(step(), 1..60)) {
        let mut models = [Model::new(24 * MIB), Model::new(24 * MIB)];
        for step in &steps {
            models.iter_mut().for_each(|model| model.apply(step));
        }
        prop_assert_eq!(&models[0].objects, &models[1].objects);
        prop_assert_eq!(&models[0].blocks, &models[1].blocks);
    }
}
