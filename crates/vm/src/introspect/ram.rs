//! The guest's memory, read by the host: an address of its kernel is checked and translated once, when a [`Word`] or
//! [`Half`] is made.
//!
//! A lab guest's memory is mapped, and reading it cannot fail. That of a guest of others is read from its process, which
//! may end: then places hold 0, and [`Ram::is_lost`] says so.

use std::sync::atomic::{AtomicBool, Ordering};

use super::mapping::Mapping;
use crate::qemu::GuestMemory;
use crate::{Result, VmError};

/// Size of a page of the guest.
pub const PAGE_BYTES: u64 = 4096;
/// Where the kernel maps its own image on x86-64 (`__START_KERNEL_map`, Documentation/arch/x86/x86_64/mm.rst).
pub const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Length of that map.
pub const KERNEL_MAP_BYTES: u64 = 1 << 30;
const FOUR_GIB: u64 = 1 << 32;

/// A checked place of 8 bytes in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(usize);

/// A checked place of 4 bytes in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half(usize);

/// Which part of a guest's memory lies below 4 GiB in its physical addresses. The rest follows from 4 GiB on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// With this much memory or more it is split, bytes.
    from: u64,
    /// What then lies below, bytes.
    low: u64,
}

impl Split {
    /// QEMU's machine `pc` (hw/i386/pc_piix.c, "max-ram-below-4g").
    pub const PC: Split = Split { from: 0xe000_0000, low: 0xc000_0000 };
    /// A memory whose offsets are its physical addresses, as in a dump.
    pub const NONE: Split = Split { from: u64::MAX, low: u64::MAX };
    /// QEMU's machine `q35` (hw/i386/pc_q35.c).
    pub const Q35: Split = Split { from: 0xb000_0000, low: 0x8000_0000 };

    fn low_bytes(self, bytes: u64) -> u64 {
        if bytes >= self.from { self.low } else { bytes }
    }

    /// Where in a memory of so many bytes a physical address lies.
    pub fn offset(self, bytes: u64, physical: u64) -> Option<u64> {
        let low = self.low_bytes(bytes);
        match physical {
            p if p < low => Some(p),
            p if p >= FOUR_GIB => (p - FOUR_GIB).checked_add(low).filter(|offset| *offset < bytes),
            _ => None,
        }
    }

    /// The physical address of a place in a memory of so many bytes.
    pub fn physical(self, bytes: u64, offset: u64) -> u64 {
        let low = self.low_bytes(bytes);
        if offset < low { offset } else { offset - low + FOUR_GIB }
    }
}

/// The memory of a guest that this process has not mapped.
pub trait Foreign: std::fmt::Debug + Send + Sync {
    /// Fills the buffer with what lies at this offset of the guest's memory; `false` if that cannot be read.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool;

    /// As `read`, from the start of a page on; but a page that the guest has never touched is left zero, and not made.
    fn read_touched(&self, offset: u64, buffer: &mut [u8]) -> bool {
        self.read(offset, buffer)
    }
}

/// A guest's memory.
#[derive(Debug)]
pub struct Ram {
    source: Source,
    bytes: u64,
    split: Split,
    /// What the physical address of the kernel's image exceeds the linked one by (`phys_base`); wraps around.
    phys_base: u64,
    /// Where physical memory is mapped linearly (`page_offset_base`); 0 until it is known.
    direct_map: u64,
    lost: AtomicBool,
}

#[derive(Debug)]
enum Source {
    Mapped(Mapping),
    Foreign(Box<dyn Foreign>),
}

impl Ram {
    /// Maps the memory of a lab guest, whose machine is `pc`, and whose kernel lies where it was linked for.
    pub fn map(memory: &GuestMemory) -> Result<Ram> {
        Ok(Ram::new(Source::Mapped(Mapping::of(memory)?), memory.bytes, Split::PC, 0))
    }

    /// The memory of any guest, of so many bytes. `phys_base` is the kernel's variable of this name.
    pub fn foreign(memory: Box<dyn Foreign>, bytes: u64, split: Split, phys_base: u64) -> Ram {
        Ram::new(Source::Foreign(memory), bytes, split, phys_base)
    }

    fn new(source: Source, bytes: u64, split: Split, phys_base: u64) -> Ram {
        Ram { source, bytes, split, phys_base, direct_map: 0, lost: AtomicBool::new(false) }
    }

    /// Whether the memory could not be read at some time: its process has ended, or gave it up.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Says where the guest's linear map of physical memory begins.
    pub fn set_direct_map(&mut self, address: u64) {
        self.direct_map = address;
    }

    /// Where the guest's linear map of physical memory begins; 0 until it is known.
    pub fn direct_map(&self) -> u64 {
        self.direct_map
    }

    /// The place of an aligned 8-byte value at a kernel address.
    pub fn word(&self, address: u64) -> Result<Word> {
        self.place(address, 8).map(Word)
    }

    /// The place of an aligned 4-byte value at a kernel address.
    pub fn half(&self, address: u64) -> Result<Half> {
        self.place(address, 4).map(Half)
    }

    /// The value at a place now.
    pub fn get(&self, word: Word) -> u64 {
        match &self.source {
            Source::Mapped(mapping) => mapping.word(word.0),
            Source::Foreign(memory) => u64::from_le_bytes(self.fetch(memory.as_ref(), word.0)),
        }
    }

    /// The value at a place now.
    pub fn get_half(&self, half: Half) -> u32 {
        match &self.source {
            Source::Mapped(mapping) => mapping.half(half.0),
            Source::Foreign(memory) => u32::from_le_bytes(self.fetch(memory.as_ref(), half.0)),
        }
    }

    /// An aligned word lies within a page, and the kernel copies it as a whole.
    fn fetch<const N: usize>(&self, memory: &dyn Foreign, offset: usize) -> [u8; N] {
        let mut buffer = [0; N];
        if !memory.read(offset as u64, &mut buffer) {
            self.lost.store(true, Ordering::Relaxed);
            return [0; N];
        }
        buffer
    }

    /// The 8-byte value at a kernel address.
    pub fn read(&self, address: u64) -> Result<u64> {
        self.word(address).map(|word| self.get(word))
    }

    /// Whether a kernel address lies in the guest's memory, by the maps that are known here.
    pub fn contains(&self, address: u64) -> bool {
        self.physical(address).and_then(|physical| self.split.offset(self.bytes, physical)).is_some()
    }

    /// Two 8-byte values, one after the other, from a kernel address on: such as a link of a list, which is read with one
    /// call where that matters.
    pub fn read_pair(&self, address: u64) -> Result<[u64; 2]> {
        let (first, second) = (self.word(address)?, self.word(address.saturating_add(8))?);
        match &self.source {
            Source::Foreign(memory) if second.0 == first.0 + 8 && address % PAGE_BYTES < PAGE_BYTES - 8 => {
                let both = u128::from_le_bytes(self.fetch(memory.as_ref(), first.0));
                Ok([both as u64, (both >> 64) as u64])
            }
            _ => Ok([self.get(first), self.get(second)]),
        }
    }

    /// The 4-byte value at a kernel address.
    pub fn read_half(&self, address: u64) -> Result<u32> {
        self.half(address).map(|half| self.get_half(half))
    }

    /// A string that ends with a zero byte, at most `limit` bytes; what is not printable ASCII becomes `?`, for it may be
    /// shown on a terminal.
    pub fn read_text(&self, address: u64, limit: usize) -> Result<String> {
        let mut text = String::new();
        for at in address..address.saturating_add(limit as u64) {
            let word = self.read(at & !7)?.to_le_bytes();
            match word[(at & 7) as usize] {
                0 => break,
                byte if byte == b' ' || byte.is_ascii_graphic() => text.push(byte.into()),
                _ => text.push('?'),
            }
        }
        Ok(text)
    }

    fn place(&self, address: u64, size: u64) -> Result<usize> {
        let outside =
            || VmError::Introspect(format!("kernel address {address:#x} is outside the guest's memory"));
        let physical = self.physical(address).ok_or_else(outside)?;
        let offset = self.split.offset(self.bytes, physical).ok_or_else(outside)?;
        // The linear map begins where the guest says: that need not be at a multiple of anything.
        if !address.is_multiple_of(size) || !offset.is_multiple_of(size) {
            return Err(VmError::Introspect(format!("kernel address {address:#x} is not aligned to {size}")));
        }
        if offset.checked_add(size).is_none_or(|end| end > self.bytes) {
            return Err(outside());
        }
        Ok(offset as usize)
    }

    /// Physical address of a kernel address: of the kernel's image, or of the linear map.
    fn physical(&self, address: u64) -> Option<u64> {
        if address >= KERNEL_MAP {
            let linked = Some(address - KERNEL_MAP).filter(|offset| *offset < KERNEL_MAP_BYTES);
            return linked.map(|offset| offset.wrapping_add(self.phys_base));
        }
        if self.direct_map == 0 {
            return None;
        }
        address.checked_sub(self.direct_map)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const DIRECT: u64 = 0xff11_0000_0000_0000;

    fn ram(bytes: u64, poke: &[(u64, u64)]) -> Ram {
        let memory = GuestMemory::new(bytes).unwrap();
        for (offset, value) in poke {
            rustix::io::pwrite(memory.as_fd(), &value.to_le_bytes(), *offset).unwrap();
        }
        let mut ram = Ram::map(&memory).unwrap();
        ram.set_direct_map(DIRECT);
        ram
    }

    #[test]
    fn both_maps_lead_to_the_same_memory() {
        let ram = ram(1 << 20, &[(0x1000, 77)]);
        assert_eq!(ram.read(KERNEL_MAP + 0x1000).unwrap(), 77);
        assert_eq!(ram.read(DIRECT + 0x1000).unwrap(), 77);
        assert_eq!(ram.read_half(DIRECT + 0x1000).unwrap(), 77);
    }

    #[test]
    fn what_a_guest_could_invent_is_refused() {
        let ram = ram(1 << 20, &[]);
        let bad = [
            0,
            8,
            u64::MAX,
            u64::MAX - 7,
            DIRECT - 8,
            DIRECT + (1 << 20),
            KERNEL_MAP + (1 << 20),
            DIRECT + 4,
        ];
        for address in bad {
            assert!(ram.read(address).is_err(), "{address:#x}");
        }
        assert!(ram.read(DIRECT + (1 << 20) - 8).is_ok());
    }

    #[test]
    fn a_place_is_aligned_wherever_the_guest_has_its_linear_map() {
        let mut ram = ram(1 << 20, &[]);
        for distance in 1..8 {
            ram.set_direct_map(DIRECT + distance);
            assert!((0..64).all(|at| ram.read(DIRECT + at).is_err()), "{distance}");
        }
        ram.set_direct_map(DIRECT + 4);
        assert!(ram.read_half(DIRECT + 8).is_ok() && ram.read(DIRECT + 8).is_err());
    }

    #[test]
    fn memory_above_the_hole_follows_the_memory_below() {
        let ram = ram(4 << 30, &[(Split::PC.low, 5)]);
        assert_eq!(ram.read(DIRECT + FOUR_GIB).unwrap(), 5);
        assert!(ram.read(DIRECT + Split::PC.low).is_err());
        assert!(ram.read(DIRECT + FOUR_GIB + (1 << 30)).is_err());
    }

    #[test]
    fn text_is_bounded_and_plain() {
        let ram = ram(1 << 20, &[(0x20, u64::from_le_bytes(*b"Linux\x1b\xffv")), (0x28, 0x41)]);
        assert_eq!(ram.read_text(DIRECT + 0x20, 64).unwrap(), "Linux??vA");
        assert_eq!(ram.read_text(DIRECT + 0x20, 3).unwrap(), "Lin");
        assert!(ram.read_text(DIRECT + (1 << 20) - 8, 64).is_ok());
    }
}
