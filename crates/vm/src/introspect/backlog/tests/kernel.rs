//! A kernel made by hand in 1 MiB of memory, with two CPUs and something on each of their lists.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::types::{Form, types};
use crate::Result;
use crate::image::btf::Btf;
use crate::introspect::{Foreign, KERNEL_MAP, Layout, Ram, Reader, Split, Symbols};

pub const BYTES: u64 = 1 << 20;
pub const DIRECT: u64 = 0xffff_8880_0000_0000;
/// The memory is mapped here once more, and in it lie the pages' descriptions.
pub const VMEMMAP: u64 = 0xffff_ea00_0000_0000 + PAGES;
pub const MODULE: u64 = 0xffff_ffff_c000_0000;
/// A function of the module, and one of the kernel.
pub const FREES: u64 = MODULE + 0x1010;
pub const OWN: u64 = KERNEL_MAP + 0x9800;
const RELEASE: &str = "6.1.0-made";

// Physical addresses.
pub const STATE: u64 = 0xa000;
const NODE: u64 = STATE + 64;
const TASK: u64 = 0xb000;
pub const CPUS: [u64; 2] = [0xc000, 0xe000];
/// In a CPU's area.
pub const DATA: u64 = 0x100;
pub const KRC: u64 = 0x400;
const CACHES: u64 = 0x1_0000;
const PAGES: u64 = 0x4_0000;
/// Objects: of dentries, and in the second page of a slab of larger ones.
pub const DENTRIES: u64 = 0x2_0000;
pub const LARGE: u64 = 0x2_2000;
pub const BLOCKS: u64 = 0x7_0000;
/// In a block, the link.
pub const LINK: u64 = 8;

/// The memory, and what knows it.
pub struct Made {
    pub bytes: Vec<u8>,
    pub btf: Btf,
    pub symbols: Symbols,
    form: Form,
}

impl Made {
    pub fn new(form: Form) -> Made {
        let mut made = Made { bytes: vec![0; BYTES as usize], btf: types(form), symbols: symbols(), form };
        made.tables();
        made.variables();
        made.caches();
        made.module();
        made.lists();
        made.blocks();
        made
    }

    pub fn put(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn half(&mut self, at: u64, value: u32) {
        self.bytes[at as usize..][..4].copy_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, at: u64, text: &str) {
        self.bytes[at as usize..][..text.len()].copy_from_slice(text.as_bytes());
    }

    /// Page tables: the image and the pages' descriptions by large pages, the module by small ones.
    fn tables(&mut self) {
        let present = |address: u64| address | 1;
        let large = 0x81;
        for (at, entry) in [
            (0x1000 + 8 * 511, present(0x2000)),
            (0x1000 + 8 * 468, present(0x6000)),
            (0x2000 + 8 * 510, present(0x3000)),
            (0x2000 + 8 * 511, present(0x4000)),
            (0x3000, large),
            (0x4000, present(0x5000)),
            (0x5000, present(0x6_0000)),
            (0x5008, present(0x6_1000)),
            (0x5010, present(0x6_2000)),
            (0x6000, present(0x7000)),
            (0x7000, large),
        ] {
            self.put(at, entry);
        }
    }

    fn variables(&mut self) {
        self.put(0x8000, DIRECT);
        self.put(0x8008, VMEMMAP);
        self.put(0x8010, 1300);
        self.put(0x8018, 1);
        self.put(0x8020, 1);
        // 4 ms.
        self.half(0x8060, 4_000_000 << 8);
        self.half(0x8064, 8);
        self.text(0x9000, &format!("Linux version {RELEASE} (x)"));
        self.put(STATE, 5);
        self.put(STATE + 8, 1000);
        self.put(STATE + 16, DIRECT + TASK);
        self.put(STATE + 24, KERNEL_MAP + NODE);
        self.put(NODE, 0b10);
        self.put(NODE + 16, DIRECT + TASK + 32);
        self.put(TASK + 32, KERNEL_MAP + NODE + 24);
        self.half(TASK + 12, 77);
        self.text(TASK + 16, "reader");
        for (cpu, area) in (0..).zip(CPUS) {
            self.put(0x8100 + 8 * cpu, DIRECT + area);
            self.half(area + DATA + 48, cpu as u32);
        }
    }

    fn caches(&mut self) {
        let caches = [("dentry", 192), ("kmalloc-2k", 2048)];
        self.put(0x8030, DIRECT + CACHES + 16);
        for (number, (name, bytes)) in (0..).zip(caches) {
            let at = CACHES + 0x100 * number;
            self.half(at, bytes);
            self.put(at + 8, DIRECT + at + 0x80);
            self.text(at + 0x80, name);
            self.put(at + 16, if number == 0 { DIRECT + at + 0x110 } else { KERNEL_MAP + 0x8030 });
        }
        for (page, cache) in [(DENTRIES, CACHES), (LARGE - 0x1000, CACHES + 0x100)] {
            let page = PAGES + page / 4096 * 64;
            match self.form {
                Form::Linux61 => self.put(page, 1 << 9),
                Form::Linux612 => self.half(page + 48, 0xf5 << 24),
            }
            self.put(page + 24, DIRECT + cache);
        }
        // The second page of a larger slab.
        self.put(PAGES + LARGE / 4096 * 64 + 8, (VMEMMAP + (LARGE / 4096 - 1) * 64) | 1);
    }

    fn module(&mut self) {
        self.put(0x8040, MODULE);
        self.put(0x6_0000, KERNEL_MAP + 0x8040);
        self.text(0x6_0010, "planted");
        self.put(0x6_0000 + 72, MODULE + 0x1000);
        self.half(0x6_0000 + 80, 0x1000);
        self.put(0x6_0000 + 144, MODULE + 0x2000);
        self.put(0x6_2000, MODULE + 0x2100);
        self.half(0x6_2008, 2);
        self.put(0x6_2010, MODULE + 0x2200);
        self.put(0x6_2108, MODULE + 0x1000);
        self.half(0x6_2118, 7);
        self.put(0x6_2120, FREES);
        self.text(0x6_2200, "\0other\0frees");
    }

    /// A list that begins here, of these objects and functions. Gives the address of the last link.
    fn list(&mut self, head: u64, objects: &[(u64, u64)]) -> u64 {
        let mut place = head;
        for (object, function) in objects {
            self.put(place, DIRECT + object);
            self.put(object + 8, *function);
            place = *object;
        }
        self.put(place, 0);
        DIRECT + place
    }

    /// CPU 0: three dentries and two others, of which one more is counted. CPU 1: a dentry in the bypass.
    fn lists(&mut self) {
        let data = CPUS[0] + DATA;
        let dentry = |number: u64| DENTRIES + 192 * number + 16;
        let large = |number: u64| LARGE + 2048 * number;
        let objects =
            [(dentry(0), FREES), (dentry(1), FREES), (large(0), OWN), (dentry(2), FREES), (large(1), OWN)];
        let last = self.list(data, &objects);
        self.put(data + 8, DIRECT + dentry(1));
        self.put(data + 8 + 24, last);
        self.put(data + 40, 6);
        let other = CPUS[1] + DATA;
        self.put(other + 40, 1);
        self.list(other + 56, &[(dentry(3), FREES)]);
    }

    /// `kfree_rcu`, on CPU 0: one in the list, two in that of batch 1, and blocks of 3 and of 1 pointers; on CPU 1: a block of 2
    /// in batch 0.
    fn blocks(&mut self) {
        let dentry = |number: u64| DENTRIES + 192 * number + 16;
        let krc = CPUS[0] + KRC;
        self.list(krc, &[(dentry(4), 16)]);
        self.list(krc + 40 + 40, &[(dentry(5), 16), (dentry(6), 16)]);
        let head = match self.form {
            Form::Linux61 => 8,
            Form::Linux612 => 16,
        };
        if self.form == Form::Linux612 {
            for area in CPUS {
                for place in [8, 24, 48, 64, 88, 104].map(|offset| area + KRC + offset) {
                    self.put(place, DIRECT + place);
                }
            }
        }
        let (first, second, third) = (BLOCKS, BLOCKS + 0x1000, BLOCKS + 0x2000);
        // What leads to a block, where in it the next one's place is, and what ends it all.
        let (to, count, end): (_, _, fn(u64) -> u64) = match self.form {
            Form::Linux61 => (0, 0, |_| 0),
            Form::Linux612 => (8, 24, |place| DIRECT + place),
        };
        let (one, other) = (krc + 8, CPUS[1] + KRC + 40 + 8 + head);
        for (place, value) in [
            (one, DIRECT + first + to),
            (first + LINK, DIRECT + second + to),
            (second + LINK, end(one)),
            (other, DIRECT + third + to),
            (third + LINK, end(other)),
        ] {
            self.put(place, value);
        }
        for (block, objects) in [(first, 3), (second, 1), (third, 2)] {
            self.put(block + count, objects);
            let records = block + if count == 0 { 16 } else { 32 };
            (0..objects).for_each(|number| self.put(records + 8 * number, DIRECT + dentry(7)));
        }
    }

    /// A reader of this memory in which these words are others.
    pub fn reader(&self, image: &Arc<Image>) -> Result<Reader> {
        let mut ram = Ram::foreign(Box::new(Shared(image.clone())), BYTES, Split::PC, 0);
        let layout = Layout::find_rcu(&mut ram, &self.btf, &self.symbols, RELEASE, CPUS.len(), BYTES)?;
        Ok(Reader::new(ram, layout))
    }
}

fn symbols() -> Symbols {
    let variables = [
        ("page_offset_base", 0x8000),
        ("vmemmap_base", 0x8008),
        ("jiffies_64", 0x8010),
        ("rcu_num_lvls", 0x8018),
        ("rcu_num_nodes", 0x8020),
        ("slab_caches", 0x8030),
        ("modules", 0x8040),
        ("clocksource_jiffies", 0x8060),
        ("__per_cpu_offset", 0x8100),
        ("linux_banner", 0x9000),
        ("rcu_state", STATE),
        ("init_top_pgt", 0x1000),
    ];
    let per_cpu = [("rcu_data", DATA), ("krc", KRC), ("__preempt_count", 0x80)];
    let variables = variables.map(|(name, at)| (name.to_string(), KERNEL_MAP + at));
    variables.into_iter().chain(per_cpu.map(|(name, at)| (name.to_string(), at))).collect()
}

/// A memory, some of whose words are others than they should be: always, or at every other read of the word.
#[derive(Debug, Default)]
pub struct Image {
    pub bytes: Arc<Vec<u8>>,
    pub wounds: HashMap<u64, Wound>,
    pub is_moving: bool,
    pub reads: AtomicU64,
    /// Offsets of the words that were read, if they are to be remembered.
    pub log: Option<Mutex<BTreeSet<u64>>>,
}

/// What is read in a word's place, and how often that was.
#[derive(Debug)]
pub struct Wound(pub u64, pub AtomicU64);

#[derive(Debug)]
struct Shared(Arc<Image>);

impl Foreign for Shared {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let image = &self.0;
        let from = offset as usize;
        let Some(piece) = image.bytes.get(from..from.saturating_add(buffer.len())) else { return false };
        buffer.copy_from_slice(piece);
        image.reads.fetch_add(1, Ordering::Relaxed);
        for word in (offset & !7..offset + buffer.len() as u64).step_by(8) {
            if let Some(log) = &image.log {
                log.lock().unwrap().insert(word);
            }
            let Some(Wound(value, reads)) = image.wounds.get(&word) else { continue };
            if reads.fetch_add(1, Ordering::Relaxed) & 1 == 1 && image.is_moving {
                continue;
            }
            for (byte, at) in value.to_le_bytes().into_iter().zip(word..) {
                if let Some(place) = at.checked_sub(offset).and_then(|at| buffer.get_mut(at as usize)) {
                    *place = byte;
                }
            }
        }
        true
    }
}
