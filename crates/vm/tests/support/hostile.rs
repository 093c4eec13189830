//! What a hostile guest does to its own memory: the words that the host reads, and what is written over them. All of it
//! follows from a seed.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use reprieve_study::statistics;
use reprieve_vm::image::btf::Btf;
use reprieve_vm::introspect::{Ram, Symbols};

/// The kernel's image lies here; what is beyond the map of 1 GiB is no address of it.
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Most words of one round.
const WOUNDS_MAX: usize = 40;

/// Some memory of the guest's kernel.
#[derive(Clone, Debug)]
pub struct Place {
    /// In the kernel's words.
    pub what: String,
    /// Its address there; of 8 bytes' alignment.
    pub address: u64,
    /// And in the memory's file, which here is its physical address too.
    pub offset: u64,
}

/// A word that is to be written over.
#[derive(Clone, Debug)]
pub struct Wound {
    pub what: String,
    pub offset: u64,
    pub value: u64,
}

/// What is known of a healthy guest.
pub struct Anatomy {
    /// The very words that the host reads.
    read: Vec<Place>,
    /// Structures around them: place and bytes.
    around: Vec<(Place, u64)>,
    direct_map: u64,
    bytes: u64,
}

/// Finds places, in a guest that is healthy.
struct Surgeon<'a> {
    ram: &'a Ram,
    btf: &'a Btf,
    symbols: &'a Symbols,
    anatomy: Anatomy,
}

impl Anatomy {
    pub fn of(ram: &Ram, btf: &Btf, symbols: &Symbols, cpus: u64, bytes: u64) -> Anatomy {
        let direct_map = ram.read(symbols["page_offset_base"]).unwrap();
        let anatomy = Anatomy { read: Vec::new(), around: Vec::new(), direct_map, bytes };
        let mut surgeon = Surgeon { ram, btf, symbols, anatomy };
        for name in ["linux_banner", "page_offset_base", "rcu_num_lvls", "rcu_num_nodes"] {
            surgeon.word(name, symbols[name]);
        }
        // The host does not read these; a guest without them is damaged all the same.
        for name in ["saved_command_line", "jiffies_64", "vmemmap_base"] {
            symbols.get(name).into_iter().for_each(|address| surgeon.word(name, *address));
        }
        surgeon.rcu();
        (0..cpus).for_each(|cpu| surgeon.cpu(cpu));
        surgeon.zones();
        surgeon.anatomy
    }

    /// One word that the host reads, with what is to be written over it.
    pub fn wound(&self, what: &str, value: u64) -> Wound {
        let place = self.read.iter().find(|place| place.what == what).unwrap_or_else(|| panic!("no {what}"));
        Wound { what: what.into(), offset: place.offset, value }
    }

    /// The words that this seed writes over, and with what.
    pub fn wounds(&self, seed: u64) -> Vec<Wound> {
        let mut rng = statistics::stream(seed, "wounds");
        let mut wounds = BTreeMap::new();
        // Mostly few: the more words are wrong, the sooner the host refuses all of it.
        let count = if rng.random_bool(0.8) { rng.random_range(1..=4) } else { WOUNDS_MAX };
        for _ in 0..count {
            let place = match rng.random_bool(0.8) {
                true => self.read[rng.random_range(0..self.read.len())].clone(),
                false => self.anywhere(&mut rng),
            };
            let value = self.value(&place, &mut rng);
            wounds.insert(place.offset, Wound { what: place.what, offset: place.offset, value });
        }
        wounds.into_values().collect()
    }

    fn anywhere(&self, rng: &mut ChaCha8Rng) -> Place {
        let (place, bytes) = &self.around[rng.random_range(0..self.around.len())];
        let on = 8 * rng.random_range(0..bytes / 8);
        Place {
            what: format!("{}+{on:#x}", place.what),
            address: place.address + on,
            offset: place.offset + on,
        }
    }

    /// What is written over a place: mostly what could be believed, or just not.
    fn value(&self, place: &Place, rng: &mut ChaCha8Rng) -> u64 {
        let other = self.read[rng.random_range(0..self.read.len())].address;
        let end = self.direct_map + self.bytes;
        match rng.random_range(0..20) {
            0 => 0,
            1 => u64::MAX,
            2 => place.address,
            3 => self.direct_map + place.offset,
            4 => place.address & !0xfff,
            5 => end,
            6 => end - 8,
            7 => end - 4,
            8 => self.direct_map - 8,
            9 => KERNEL_MAP + (1 << 30) - 8,
            10 => KERNEL_MAP + self.bytes - 8,
            // Not canonical.
            11 => 0x0000_8000_0000_0000 + place.offset,
            12 => 0xffff_7fff_ffff_fff8,
            13 => other + rng.random_range(1..8),
            14 => other,
            15 => 1 << rng.random_range(0..64),
            16 => i64::MAX as u64 - rng.random_range(0..64),
            17 => u64::MAX - rng.random_range(0..64),
            18 => rng.random_range(0..70),
            _ => rng.random(),
        }
    }
}

impl Surgeon<'_> {
    fn at(&self, structure: &str, path: &str) -> u64 {
        self.btf.offset(structure, path).unwrap().offset_bytes as u64
    }

    fn place(&self, what: &str, address: u64) -> Place {
        let address = address & !7;
        // The file's offset of an address of either map: all of this memory lies below the hole.
        let offset = address.checked_sub(KERNEL_MAP).unwrap_or_else(|| address - self.anatomy.direct_map);
        Place { what: what.into(), address, offset }
    }

    fn word(&mut self, what: &str, address: u64) {
        let place = self.place(what, address);
        self.anatomy.read.push(place);
    }

    fn whole(&mut self, what: &str, address: u64, bytes: u64) {
        let place = self.place(what, address);
        self.anatomy.around.push((place, bytes));
    }

    fn rcu(&mut self) {
        let state = self.symbols["rcu_state"];
        self.whole("rcu_state", state, self.btf.size_of("rcu_state").unwrap() as u64);
        self.word("rcu_state.gp_seq", state + self.at("rcu_state", "gp_seq"));
        self.word("rcu_state.gp_kthread", state + self.at("rcu_state", "gp_kthread"));
        for level in 0..2 {
            self.word("rcu_state.level", state + self.at("rcu_state", "level") + 8 * level);
        }
        let node = state + self.at("rcu_state", "node");
        for path in ["qsmask", "grplo"] {
            self.word(&format!("rcu_node.{path}"), node + self.at("rcu_node", path));
        }
        let task = self.ram.read(state + self.at("rcu_state", "gp_kthread")).unwrap();
        self.word("task_struct.on_cpu", task + self.at("task_struct", "on_cpu"));
        let cpu = self.btf.offset("task_struct", "thread_info.cpu").is_ok();
        self.word("its cpu", task + self.at("task_struct", if cpu { "thread_info.cpu" } else { "cpu" }));
    }

    fn cpu(&mut self, cpu: u64) {
        let table = self.symbols["__per_cpu_offset"] + 8 * cpu;
        self.word("__per_cpu_offset", table);
        let base = self.ram.read(table).unwrap();
        let data = base.wrapping_add(self.symbols["rcu_data"]);
        self.whole("rcu_data", data, self.btf.size_of("rcu_data").unwrap() as u64);
        self.word("rcu_data.cblist.len", data + self.at("rcu_data", "cblist.len"));
        self.word("rcu_data.cblist.head", data + self.at("rcu_data", "cblist.head"));
        if let Some(count) = self.symbols.get("__preempt_count") {
            self.word("__preempt_count", base.wrapping_add(*count));
        }
        let times = base.wrapping_add(self.symbols["kernel_cpustat"]);
        (0..8).for_each(|item| self.word("kernel_cpustat", times + 8 * item));
    }

    fn zones(&mut self) {
        let items = self.symbols["vm_node_stat"];
        for name in ["NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B"] {
            let item = self.btf.enum_value("node_stat_item", name).unwrap() as u64;
            self.word(name, items + 8 * item);
        }
        let node = match self.symbols.get("node_data") {
            Some(table) => {
                (0..2).for_each(|node| self.word("node_data", table + 8 * node));
                self.ram.read(*table).unwrap()
            }
            None => self.symbols["contig_page_data"],
        };
        self.whole("pglist_data", node, self.btf.size_of("pglist_data").unwrap() as u64);
        self.word("pglist_data.nr_zones", node + self.at("pglist_data", "nr_zones"));
        let bytes = self.btf.size_of("zone").unwrap() as u64;
        for index in 0..3 {
            let zone = node + self.at("pglist_data", "node_zones") + index * bytes;
            self.word("zone.name", zone + self.at("zone", "name"));
            self.word("zone.managed_pages", zone + self.at("zone", "managed_pages"));
            let area = self.btf.size_of("free_area").unwrap() as u64;
            for order in 0..11 {
                let free = zone + self.at("zone", "free_area") + order * area;
                self.word("free_area.nr_free", free + self.at("free_area", "nr_free"));
                self.word("free_area.free_list", free);
            }
        }
    }
}
