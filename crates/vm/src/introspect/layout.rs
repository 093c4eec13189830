//! Where in the guest's memory the things stand that are sampled.
//!
//! Layouts come from the guest kernel's BTF, addresses from its symbols, which it told once at boot; no
//! offset is written down here. Everything is checked once, against the kernel's own banner and the bounds of
//! the memory, so that sampling cannot fail later. Where kernels differ, the variants are tried in order and
//! the comment names the version.

use std::collections::BTreeMap;

use super::ram::{Half, KERNEL_MAP, KERNEL_MAP_BYTES, PAGE_BYTES, Ram, Word};
use crate::image::btf::Btf;
use crate::{Result, VmError};

/// Most CPUs, leaves and zones that are followed; a guest's own numbers are not trusted beyond.
const MAX_CPUS: u64 = 64;
const MAX_LEAVES: u64 = 64;
/// The largest offset of a member, bytes: far beyond that of any, and a guest's own types are not trusted beyond.
const MOST_OFFSET_BYTES: u64 = 16 << 20;
const MAX_ZONES: u64 = 8;
const MAX_ORDERS: u64 = 32;
const MAX_ELEMENTS: u64 = 256;

/// One leaf of the `rcu_node` tree.
#[derive(Debug)]
pub struct Leaf {
    /// `qsmask`: bit b is set while CPU `first_cpu + b` holds up the grace period.
    pub mask: Word,
    /// `grplo`.
    pub first_cpu: u32,
    /// The address of the `rcu_node`.
    pub address: u64,
}

/// What is read of each CPU.
#[derive(Debug)]
pub struct PerCpu {
    /// `rcu_data.cblist.len`.
    pub callbacks: Word,
    /// `preempt_count`.
    pub preempt_count: Half,
    /// System, irq, softirq time.
    pub kernel_time: Vec<Word>,
    /// Idle and iowait time.
    pub idle_time: Vec<Word>,
    /// User and nice time.
    pub user_time: Vec<Word>,
}

/// One memory zone with pages.
#[derive(Debug)]
pub struct Zone {
    /// `DMA32`, `Normal`, ...
    pub name: String,
    /// Pages that the buddy allocator manages.
    pub managed_pages: Word,
    /// `free_area[order].nr_free`.
    pub free_blocks: Vec<Word>,
}

/// The grace-period kthread.
#[derive(Debug)]
pub struct GpKthread {
    /// Whether it is on a CPU.
    pub on_cpu: Half,
    /// Whether it runs or waits to run.
    pub on_rq: Half,
    /// On which CPU.
    pub cpu: Half,
}

/// All places.
#[derive(Debug)]
pub struct Layout {
    /// `rcu_state.gp_seq`.
    pub gp_seq: Word,
    /// `jiffies_64`.
    pub jiffies: Word,
    /// The leaves in order of their CPUs.
    pub leaves: Vec<Leaf>,
    /// The grace-period kthread.
    pub gp_kthread: GpKthread,
    /// The CPUs that are online.
    pub cpus: Vec<PerCpu>,
    /// The zones of all memory nodes that have pages.
    pub zones: Vec<Zone>,
    /// Slab counters, in pages.
    pub slab: Vec<Word>,
    /// Pages of the whole guest.
    pub memory_pages: u64,
}

/// The symbols that a guest told.
pub type Symbols = BTreeMap<String, u64>;

/// The sources that places are found from.
struct Finder<'a> {
    ram: &'a Ram,
    btf: &'a Btf,
    symbols: &'a Symbols,
}

impl Layout {
    /// Finds all places in a guest that has booted with `cpus` vCPUs. Sets the memory's linear map.
    pub fn find(
        ram: &mut Ram,
        btf: &Btf,
        symbols: &Symbols,
        release: &str,
        cpus: usize,
        memory_bytes: u64,
    ) -> Result<Layout> {
        let mut layout = Layout::find_rcu(ram, btf, symbols, release, cpus, memory_bytes)?;
        let finder = Finder { ram, btf, symbols };
        for (cpu, places) in (0..).zip(&mut layout.cpus) {
            finder.times(cpu, places).map_err(within("the per-CPU area"))?;
        }
        layout.zones = finder.zones().map_err(within("the memory zones"))?;
        layout.slab = finder.slab().map_err(within("the slab counters"))?;
        Ok(layout)
    }

    /// As [`Layout::find`], but RCU's places alone: there are no zones, slab counters and CPU times.
    pub fn find_rcu(
        ram: &mut Ram,
        btf: &Btf,
        symbols: &Symbols,
        release: &str,
        cpus: usize,
        memory_bytes: u64,
    ) -> Result<Layout> {
        let finder = Finder { ram, btf, symbols };
        finder.check_banner(release)?;
        let direct_map = ram.read(finder.symbol("page_offset_base")?)?;
        ram.set_direct_map(direct_map);
        let finder = Finder { ram, btf, symbols };
        let rcu_state = finder.symbol("rcu_state")?;
        let cpu = |cpu| finder.cpu(cpu).map_err(within("the per-CPU area"));
        Ok(Layout {
            gp_seq: ram.word(rcu_state + finder.offset("rcu_state", "gp_seq")?)?,
            jiffies: ram.word(finder.symbol("jiffies_64")?)?,
            leaves: finder.leaves(rcu_state).map_err(within("the rcu_node tree"))?,
            gp_kthread: finder.gp_kthread(rcu_state).map_err(within("the grace-period kthread"))?,
            cpus: (0..(cpus as u64).min(MAX_CPUS)).map(cpu).collect::<Result<_, _>>()?,
            zones: Vec::new(),
            slab: Vec::new(),
            memory_pages: memory_bytes / PAGE_BYTES,
        })
    }
}

/// For `map_err`: names what was being looked for, since an address alone says little.
fn within(what: &'static str) -> impl FnOnce(VmError) -> VmError {
    move |error| match error {
        VmError::Introspect(problem) => VmError::Introspect(format!("{what}: {problem}")),
        other => other,
    }
}

/// An address of the guest's that offsets can be added to without overflow: nothing lies above the kernel's image.
fn bounded(address: u64) -> Result<u64> {
    let outside = || VmError::Introspect(format!("{address:#x} is no address of the kernel's image or data"));
    (address < KERNEL_MAP + KERNEL_MAP_BYTES).then_some(address).ok_or_else(outside)
}

impl Finder<'_> {
    fn symbol(&self, name: &str) -> Result<u64> {
        let address = self.symbols.get(name).copied().filter(|address| *address != 0);
        let address = address.ok_or_else(|| {
            VmError::Introspect(format!("the guest's kernel did not tell the symbol {name}"))
        })?;
        bounded(address)
    }

    /// The address that stands at an address.
    fn pointer(&self, address: u64) -> Result<u64> {
        bounded(self.ram.read(address)?)
    }

    fn offset(&self, structure: &str, path: &str) -> Result<u64> {
        let offset = self.btf.offset(structure, path)?.offset_bytes as u64;
        let far = || VmError::Introspect(format!("{path} lies {offset:#x} bytes into struct {structure}"));
        (offset <= MOST_OFFSET_BYTES).then_some(offset).ok_or_else(far)
    }

    fn size_of(&self, structure: &str) -> Result<u64> {
        match self.btf.size_of(structure)? as u64 {
            0 => Err(VmError::Introspect(format!("struct {structure} has no size"))),
            bytes => Ok(bytes),
        }
    }

    /// Offset of an enumerator's element in a table of 8-byte values.
    fn element(&self, enumeration: &str, name: &str) -> Result<u64> {
        let value = self.btf.enum_value(enumeration, name)?;
        let index = u64::try_from(value).ok().filter(|index| *index < MAX_ELEMENTS);
        let broken = || VmError::Introspect(format!("{name} has the value {value}"));
        index.map(|index| 8 * index).ok_or_else(broken)
    }

    /// The kernel must lie where it was linked: its banner must be at its symbol.
    fn check_banner(&self, release: &str) -> Result<()> {
        let address = self.symbol("linux_banner")?;
        let banner = if address >= KERNEL_MAP { self.ram.read_text(address, 128)? } else { String::new() };
        if banner.starts_with(&format!("Linux version {release} ")) {
            return Ok(());
        }
        Err(VmError::Introspect(format!(
            "no kernel banner at {address:#x}: the kernel is not where it was linked; is nokaslr on its command line?"
        )))
    }

    /// Leaves of the tree: from the last level's first node to the last node (kernel/rcu/rcu.h,
    /// `rcu_for_each_leaf_node`). Both counts are variables of the kernel since they depend on boot parameters.
    fn leaves(&self, rcu_state: u64) -> Result<Vec<Leaf>> {
        let levels = self.ram.read_half(self.symbol("rcu_num_lvls")?)? as u64;
        let nodes = self.ram.read_half(self.symbol("rcu_num_nodes")?)? as u64;
        let node_bytes = self.size_of("rcu_node")?;
        let first_node = rcu_state + self.offset("rcu_state", "node")?;
        let level = rcu_state + self.offset("rcu_state", "level")?;
        let broken = || VmError::Introspect(format!("an rcu_node tree of {levels} levels and {nodes} nodes"));
        if !(1..=4).contains(&levels) {
            return Err(broken());
        }
        let first_leaf = self.ram.read(level + 8 * (levels - 1))?;
        let end = nodes.checked_mul(node_bytes).and_then(|bytes| first_node.checked_add(bytes));
        let end = bounded(end.ok_or_else(broken)?)?;
        if first_leaf < first_node || first_leaf >= end || (end - first_leaf) / node_bytes > MAX_LEAVES {
            return Err(broken());
        }
        let (mask, low) = (self.offset("rcu_node", "qsmask")?, self.offset("rcu_node", "grplo")?);
        let addresses = (first_leaf..end).step_by(node_bytes as usize);
        let leaf = |address: u64| {
            let (mask, first_cpu) = (self.ram.word(address + mask)?, self.ram.read_half(address + low)?);
            Ok(Leaf { mask, first_cpu, address })
        };
        let leaves: Vec<Leaf> = addresses.map(leaf).collect::<Result<_>>()?;
        // Each leaf has the CPUs that follow those of the one before, one a bit.
        let follows = |pair: &[Leaf]| (1..=64).contains(&pair[1].first_cpu.saturating_sub(pair[0].first_cpu));
        if leaves.first().is_none_or(|leaf| leaf.first_cpu != 0) || !leaves.windows(2).all(follows) {
            let first: Vec<u32> = leaves.iter().map(|leaf| leaf.first_cpu).collect();
            return Err(VmError::Introspect(format!("leaves that begin with the CPUs {first:?}")));
        }
        Ok(leaves)
    }

    fn gp_kthread(&self, rcu_state: u64) -> Result<GpKthread> {
        let task = self.pointer(rcu_state + self.offset("rcu_state", "gp_kthread")?)?;
        Ok(GpKthread {
            on_cpu: self.ram.half(task + self.offset("task_struct", "on_cpu")?)?,
            on_rq: self.ram.half(task + self.offset("task_struct", "on_rq")?)?,
            // In thread_info since 5.16.
            cpu: self.ram.half(task + self.either("task_struct", "thread_info.cpu", "cpu")?)?,
        })
    }

    fn either(&self, structure: &str, path: &str, other: &str) -> Result<u64> {
        self.offset(structure, path).or_else(|_| self.offset(structure, other))
    }

    /// The address of a per-CPU variable.
    fn per_cpu(&self, cpu: u64, name: &str) -> Result<u64> {
        let base = self.ram.read(self.symbol("__per_cpu_offset")? + 8 * cpu)?;
        bounded(base.wrapping_add(self.symbol(name)?))
    }

    /// What RCU has of a CPU, without its times.
    fn cpu(&self, cpu: u64) -> Result<PerCpu> {
        // A plain per-CPU variable before 6.2 and since 6.15, in between a member of pcpu_hot.
        let preempt_count = match self.symbols.contains_key("pcpu_hot") {
            true => self.per_cpu(cpu, "pcpu_hot")? + self.offset("pcpu_hot", "preempt_count")?,
            false => self.per_cpu(cpu, "__preempt_count")?,
        };
        let callbacks = self.per_cpu(cpu, "rcu_data")? + self.offset("rcu_data", "cblist.len")?;
        let none = Vec::new;
        Ok(PerCpu {
            callbacks: self.ram.word(callbacks)?,
            preempt_count: self.ram.half(preempt_count)?,
            kernel_time: none(),
            idle_time: none(),
            user_time: none(),
        })
    }

    fn times(&self, cpu: u64, places: &mut PerCpu) -> Result<()> {
        let times = self.per_cpu(cpu, "kernel_cpustat")? + self.offset("kernel_cpustat", "cpustat")?;
        let time = |names: &[&str]| -> Result<Vec<Word>> {
            names.iter().map(|name| self.ram.word(times + self.element("cpu_usage_stat", name)?)).collect()
        };
        places.kernel_time = time(&["CPUTIME_SYSTEM", "CPUTIME_IRQ", "CPUTIME_SOFTIRQ"])?;
        places.idle_time = time(&["CPUTIME_IDLE", "CPUTIME_IOWAIT"])?;
        places.user_time = time(&["CPUTIME_USER", "CPUTIME_NICE"])?;
        Ok(())
    }

    /// The zones with pages of every memory node: `node_data[]` with NUMA, else `contig_page_data`.
    fn zones(&self) -> Result<Vec<Zone>> {
        let nodes = match self.symbol("node_data") {
            Ok(table) => (0..MAX_ZONES)
                .map(|node| self.pointer(table + 8 * node))
                .take_while(|node| matches!(node, Ok(1..)))
                .collect::<Result<_, _>>()?,
            Err(_) => vec![self.symbol("contig_page_data")?],
        };
        let (first, zone_bytes) = (self.offset("pglist_data", "node_zones")?, self.size_of("zone")?);
        let count = self.offset("pglist_data", "nr_zones")?;
        let mut zones = Vec::new();
        for node in nodes {
            let count = u64::from(self.ram.read_half(node + count)?);
            if count > MAX_ZONES {
                return Err(VmError::Introspect(format!("a memory node of {count} zones")));
            }
            for index in 0..count {
                let zone = self.zone(node + first + index * zone_bytes)?;
                zones.extend((self.ram.get(zone.managed_pages) > 0).then_some(zone));
            }
        }
        if zones.is_empty() {
            return Err(VmError::Introspect("no memory zone has pages".into()));
        }
        Ok(zones)
    }

    fn zone(&self, address: u64) -> Result<Zone> {
        let areas = self.btf.offset("zone", "free_area")?;
        let (first, areas_bytes) = (address + areas.offset_bytes as u64, areas.size_bytes as u64);
        let (area_bytes, free) = (self.size_of("free_area")?, self.offset("free_area", "nr_free")?);
        let orders = (areas_bytes / area_bytes).min(MAX_ORDERS);
        let blocks = (0..orders).map(|order| self.ram.word(first + order * area_bytes + free));
        let name = self.pointer(address + self.offset("zone", "name")?)?;
        Ok(Zone {
            name: self.ram.read_text(name, 32)?,
            managed_pages: self.ram.word(address + self.offset("zone", "managed_pages")?)?,
            free_blocks: blocks.collect::<Result<_, _>>()?,
        })
    }

    fn slab(&self) -> Result<Vec<Word>> {
        let table = self.symbol("vm_node_stat")?;
        let item = |name: &str| self.ram.word(table + self.element("node_stat_item", name)?);
        ["NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B"].into_iter().map(item).collect()
    }
}
