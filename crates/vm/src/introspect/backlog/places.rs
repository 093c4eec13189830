//! Where in a guest's kernel the lists of callbacks begin. Layouts come from the kernel's type information, addresses from
//! its symbols.

use super::memory::Memory;
use crate::image::btf::Btf;
use crate::introspect::Symbols;
use crate::{Result, VmError};

/// Most CPUs whose lists are walked.
const CPUS: usize = 64;
/// Most elements of the small arrays in `kfree_rcu_cpu`.
const ELEMENTS: usize = 8;

/// The sources of places.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Layouts.
    pub btf: &'a Btf,
    /// Addresses.
    pub symbols: &'a Symbols,
}

/// The lists of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuLists {
    /// `rcu_data.cblist.head`.
    pub head: u64,
    /// `rcu_data.cblist.tails[0]`: the end of the callbacks whose grace period is over.
    pub ready: u64,
    /// `rcu_data.cblist.len`.
    pub len: u64,
    /// `rcu_data.nocb_bypass.head`.
    pub bypass: Option<u64>,
    /// `krc`, what `kfree_rcu` has of the CPU.
    pub krc: Option<u64>,
}

/// What `kfree_rcu` keeps of a CPU: lists of `rcu_head`s, and arrays of pointers to objects. Offsets, bytes.
#[derive(Clone, Debug)]
pub struct Krc {
    /// Heads of lists.
    pub lists: Vec<u64>,
    /// Where blocks of pointers begin.
    pub blocks: Vec<u64>,
    /// Whether blocks are in rings (`list_head`, since 6.4), or in lists that end.
    pub in_rings: bool,
    /// In a block: the link, the number of pointers, the pointers.
    pub link: u64,
    /// See `link`.
    pub count: u64,
    /// See `link`.
    pub records: u64,
}

impl Places<'_> {
    /// A symbol's address.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        let address = self.symbols.get(name).copied().filter(|address| *address != 0);
        address.ok_or_else(|| VmError::Introspect(format!("the guest's kernel has no symbol {name}")))
    }

    /// Where a field lies in a structure, bytes.
    pub fn offset(&self, structure: &str, path: &str) -> Result<u64> {
        Ok(self.btf.offset(structure, path)?.offset_bytes as u64)
    }

    /// A structure's size, bytes; not 0.
    pub fn size_of(&self, structure: &str) -> Result<u64> {
        match self.btf.size_of(structure)? as u64 {
            0 => Err(VmError::Introspect(format!("struct {structure} has no size"))),
            bytes => Ok(bytes),
        }
    }

    /// The word at an address.
    pub fn read(&self, memory: &Memory, address: u64) -> Result<u64> {
        let outside =
            || VmError::Introspect(format!("kernel address {address:#x} is outside the guest's memory"));
        memory.word(address).ok_or_else(outside)
    }

    /// The lists of the first `cpus` CPUs.
    pub fn lists(&self, memory: &Memory, cpus: usize) -> Result<Vec<CpuLists>> {
        let head = self.btf.offset("callback_head", "next")?.offset_bytes;
        let function = self.btf.offset("callback_head", "func")?.offset_bytes;
        if (head, function) != (0, 8) {
            return Err(VmError::Introspect("an rcu_head is not a link and a function".into()));
        }
        (0..cpus.min(CPUS) as u64).map(|cpu| self.cpu(memory, cpu)).collect()
    }

    fn cpu(&self, memory: &Memory, cpu: u64) -> Result<CpuLists> {
        let base = self.read(memory, self.symbol("__per_cpu_offset")?.wrapping_add(8 * cpu))?;
        let data = base.wrapping_add(self.symbol("rcu_data")?);
        let at = |path: &str| Ok::<_, VmError>(data.wrapping_add(self.offset("rcu_data", path)?));
        Ok(CpuLists {
            head: at("cblist.head")?,
            ready: at("cblist.tails")?,
            len: at("cblist.len")?,
            // With CONFIG_RCU_NOCB_CPU.
            bypass: at("nocb_bypass.head").ok(),
            krc: self.symbol("krc").ok().map(|krc| base.wrapping_add(krc)),
        })
    }

    /// The layout of what `kfree_rcu` keeps of each CPU.
    ///
    /// # Errors
    /// This kernel has another one.
    pub fn krc(&self) -> Result<Krc> {
        let (whole, block) = ("kfree_rcu_cpu", "kvfree_rcu_bulk_data");
        let batches = self.btf.offset(whole, "krw_arr")?.count.min(ELEMENTS);
        let mut lists = vec![self.offset(whole, "head")?];
        for batch in 0..batches {
            lists.push(self.offset(whole, &format!("krw_arr[{batch}].head_free"))?);
        }
        let in_rings = self.btf.offset(whole, "bulk_head").is_ok();
        let (fresh, waiting, link) = match in_rings {
            true => ("bulk_head", "bulk_head_free", "list"),
            false => ("bkvhead", "bkvhead_free", "next"),
        };
        let field = self.btf.offset(whole, fresh)?;
        let mut blocks = Vec::new();
        for channel in 0..field.count.min(ELEMENTS) {
            blocks.push(self.offset(whole, &format!("{fresh}[{channel}]"))?);
            for batch in 0..batches {
                blocks.push(self.offset(whole, &format!("krw_arr[{batch}].{waiting}[{channel}]"))?);
            }
        }
        Ok(Krc {
            lists,
            blocks,
            in_rings,
            link: self.offset(block, link)?,
            count: self.offset(block, "nr_records")?,
            records: self.offset(block, "records")?,
        })
    }
}
