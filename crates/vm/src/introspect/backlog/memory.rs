//! Any kernel address of a guest: of the linear map, and through the kernel's page tables also of its modules, its `vmemmap`
//! and its stacks.
//!
//! Source: Intel SDM volume 3, 4-level and 5-level paging; Documentation/arch/x86/x86_64/mm.rst. Invariant: a translation
//! takes one read a level, whatever the tables hold.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::introspect::{KERNEL_MAP, PAGE_BYTES, Ram, Symbols};

/// Bits of an entry: present; and of an entry above the last level, a large page.
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// The physical address in an entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// With 5 levels the linear map begins below this address, with 4 above.
const FOUR_LEVELS: u64 = 0xffff_8000_0000_0000;
/// Most translations that are kept.
const KEPT: usize = 1 << 16;

/// A guest's memory by kernel addresses.
#[derive(Debug)]
pub struct Memory<'a> {
    ram: &'a Ram,
    /// The kernel's top table, if its place is known.
    top: Option<u64>,
    /// Where pages lie in the linear map.
    pages: RefCell<HashMap<u64, u64>>,
}

impl<'a> Memory<'a> {
    /// The memory of a kernel with these symbols. Without `init_top_pgt` it has the linear map and the image alone.
    pub fn new(ram: &'a Ram, symbols: &Symbols) -> Memory<'a> {
        Memory { ram, top: symbols.get("init_top_pgt").copied(), pages: RefCell::default() }
    }

    /// The aligned 8-byte value at this address.
    pub fn word(&self, address: u64) -> Option<u64> {
        self.ram.read(self.linear(address)?).ok()
    }

    /// The aligned 4-byte value at this address.
    pub fn half(&self, address: u64) -> Option<u32> {
        self.ram.read_half(self.linear(address)?).ok()
    }

    /// The two aligned 8-byte values from this address on.
    pub fn pair(&self, address: u64) -> Option<[u64; 2]> {
        match address % PAGE_BYTES {
            at if at < PAGE_BYTES - 8 => self.ram.read_pair(self.linear(address)?).ok(),
            _ => Some([self.word(address)?, self.word(address.checked_add(8)?)?]),
        }
    }

    /// The text at this address, up to a zero byte and at most `limit` bytes; what is not printable ASCII is `?`.
    pub fn text(&self, address: u64, limit: u64) -> Option<String> {
        let mut text = String::new();
        for at in address..address.checked_add(limit)? {
            match self.word(at & !7)?.to_le_bytes()[(at & 7) as usize] {
                0 => break,
                byte if byte == b' ' || byte.is_ascii_graphic() => text.push(byte.into()),
                _ => text.push('?'),
            }
        }
        Some(text)
    }

    /// The physical address of an address in the linear map.
    pub fn physical(&self, address: u64) -> Option<u64> {
        let is_linear = address < KERNEL_MAP && self.ram.contains(address);
        is_linear.then(|| address - self.ram.direct_map())
    }

    /// The same place in the linear map, or in the image if there are no tables.
    fn linear(&self, address: u64) -> Option<u64> {
        if address < KERNEL_MAP && self.ram.contains(address) {
            return Some(address);
        }
        let (page, within) = (address / PAGE_BYTES, address % PAGE_BYTES);
        if let Some(linear) = self.pages.borrow().get(&page) {
            return linear.checked_add(within);
        }
        let Some(top) = self.top else { return (address >= KERNEL_MAP).then_some(address) };
        let linear = self.translate(top, page * PAGE_BYTES)?;
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= KEPT {
            pages.clear();
        }
        pages.insert(page, linear);
        linear.checked_add(within)
    }

    fn translate(&self, top: u64, address: u64) -> Option<u64> {
        let levels = if self.ram.direct_map() < FOUR_LEVELS { 5 } else { 4 };
        let mut table = top;
        for level in (0..levels).rev() {
            let shift = 12 + 9 * level;
            let entry = self.ram.read(table.checked_add(8 * (address >> shift & 511))?).ok()?;
            if entry & PRESENT == 0 {
                return None;
            }
            let is_page = level == 0 || level <= 2 && entry & LARGE != 0;
            let within = if is_page { (1 << shift) - 1 } else { 0 };
            table = self.ram.direct_map().checked_add(entry & ADDRESS & !within)?;
            if is_page {
                let linear = table.checked_add(address & within)?;
                // A hostile linear map could reach into the image, whose addresses mean something else.
                return (linear < KERNEL_MAP).then_some(linear);
            }
            if table >= KERNEL_MAP {
                return None;
            }
        }
        None
    }
}
