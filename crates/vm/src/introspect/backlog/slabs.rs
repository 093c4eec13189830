//! Which slab cache an object is of: its page tells, and the kernel's list of all caches confirms it.
//!
//! | kernel | a page is a slab if |
//! |---|---|
//! | before 6.10 | its flags have `PG_slab` |
//! | since 6.11 | the highest byte of `page_type` is `PGTY_slab` |
//!
//! Source: include/linux/page-flags.h, mm/slab.h (`struct slab`), read of the kernel's type information.

use std::cell::RefCell;
use std::collections::HashMap;

use super::memory::Memory;
use super::places::Places;
use crate::Result;
use crate::introspect::PAGE_BYTES;

/// A slab cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its name. Caches of one size may have been merged: then it is the first's.
    pub name: String,
    /// What an object of it takes, bytes.
    pub object_bytes: u64,
}

/// Most caches; a kernel has some hundred.
const CACHES: usize = 4096;
/// Longest name that is read, bytes.
const NAME_BYTES: u64 = 48;
/// Largest object, bytes: the page allocator's largest block.
const OBJECT_BYTES: u32 = 4 << 20;
/// Most pages whose cache is kept.
const KEPT: usize = 1 << 17;

/// Where a page's description says that it is a slab.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A bit of the 8-byte flags at this offset.
    Flag { at: u64, bit: u32 },
    /// The highest byte of the 4-byte type at this offset.
    Type { at: u64, value: u32 },
    /// Nowhere: what the page says of its cache decides.
    Unknown,
}

/// All caches of a guest.
#[derive(Debug)]
pub struct Slabs<'a> {
    memory: &'a Memory<'a>,
    caches: Vec<Cache>,
    by_address: HashMap<u64, usize>,
    pages: RefCell<HashMap<u64, Option<usize>>>,
    layout: Option<Layout>,
}

#[derive(Debug)]
struct Layout {
    vmemmap: u64,
    page_bytes: u64,
    compound_head: u64,
    cache: u64,
    kind: Kind,
}

impl Layout {
    fn of(memory: &Memory, places: &Places) -> Result<Layout> {
        let btf = places.btf;
        let flag = btf.enum_value("pageflags", "PG_slab").ok().and_then(|bit| u32::try_from(bit).ok());
        let value = btf.enum_value("pagetype", "PGTY_slab").ok().and_then(|value| u32::try_from(value).ok());
        let kind = match (flag.filter(|bit| *bit < 64), value) {
            (Some(bit), _) => Kind::Flag { at: places.offset("page", "flags")?, bit },
            (_, Some(value)) => Kind::Type { at: places.offset("page", "page_type")?, value },
            _ => Kind::Unknown,
        };
        Ok(Layout {
            vmemmap: places.read(memory, places.symbol("vmemmap_base")?)?,
            page_bytes: places.size_of("page")?,
            compound_head: places.offset("page", "compound_head")?,
            // A slab's description has the page's place (5.17 and later; before, it was the page's own).
            cache: places.offset("slab", "slab_cache").or_else(|_| places.offset("page", "slab_cache"))?,
            kind,
        })
    }
}

impl<'a> Slabs<'a> {
    /// Reads the list of all caches. Where that is not possible, no object's cache is known, and `problem` tells why.
    pub fn read(memory: &'a Memory<'a>, places: &Places) -> (Slabs<'a>, Option<String>) {
        let mut slabs = Slabs {
            memory,
            caches: Vec::new(),
            by_address: HashMap::new(),
            pages: RefCell::default(),
            layout: None,
        };
        let read = Layout::of(memory, places).and_then(|layout| {
            slabs.layout = Some(layout);
            slabs.caches(places)
        });
        (slabs, read.err().map(|error| error.to_string()))
    }

    /// The caches, in the order of their numbers.
    pub fn all(&self) -> &[Cache] {
        &self.caches
    }

    fn caches(&mut self, places: &Places) -> Result<()> {
        let (list, name) = (places.offset("kmem_cache", "list")?, places.offset("kmem_cache", "name")?);
        let (size, head) = (places.offset("kmem_cache", "size")?, places.symbol("slab_caches")?);
        let mut link = places.read(self.memory, head)?;
        while link != head && self.caches.len() < CACHES {
            let Some((next, cache)) = self.cache(link.wrapping_sub(list), list, name, size) else { break };
            if self.by_address.insert(link.wrapping_sub(list), self.caches.len()).is_some() {
                break;
            }
            self.caches.push(cache);
            link = next;
        }
        Ok(())
    }

    fn cache(&self, address: u64, list: u64, name: u64, size: u64) -> Option<(u64, Cache)> {
        let at = |offset: u64| address.checked_add(offset);
        let object_bytes = self.memory.half(at(size)?)?;
        let name = self.memory.text(self.memory.word(at(name)?)?, NAME_BYTES)?;
        let is_plausible = (8..=OBJECT_BYTES).contains(&object_bytes);
        is_plausible
            .then_some((self.memory.word(at(list)?)?, Cache { name, object_bytes: object_bytes.into() }))
    }

    /// The number of the cache that the object at this address is of, if it is a slab's.
    pub fn cache_of(&self, address: u64) -> Option<usize> {
        let page = self.memory.physical(address)? / PAGE_BYTES;
        if let Some(cache) = self.pages.borrow().get(&page) {
            return *cache;
        }
        let cache = self.cache_of_page(page);
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= KEPT {
            pages.clear();
        }
        pages.insert(page, cache);
        cache
    }

    fn cache_of_page(&self, page: u64) -> Option<usize> {
        let layout = self.layout.as_ref()?;
        let description = layout.vmemmap.checked_add(page.checked_mul(layout.page_bytes)?)?;
        // The pages of a larger block lead to its first; bit 0 tells.
        let head = self.memory.word(description.checked_add(layout.compound_head)?)?;
        let description = if head & 1 == 1 { head - 1 } else { description };
        let at = |offset: u64| description.checked_add(offset);
        let is_slab = match layout.kind {
            Kind::Flag { at: offset, bit } => self.memory.word(at(offset)?)? >> bit & 1 == 1,
            Kind::Type { at: offset, value } => self.memory.half(at(offset)?)? >> 24 == value,
            Kind::Unknown => true,
        };
        let cache = self.memory.word(at(layout.cache)?).filter(|_| is_slab)?;
        self.by_address.get(&cache).copied()
    }
}
