//! The guest's memory, mapped read-only into this process.
//!
//! The guest writes it at any time, so every access is a relaxed atomic load of an aligned word. An address
//! is checked and translated once, when a [`Word`] or [`Half`] is made; reading one cannot fail.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::qemu::GuestMemory;
use crate::{Result, VmError};

/// Size of a page of the guest.
pub const PAGE_BYTES: u64 = 4096;
/// Where the kernel maps its own image on x86-64 (`__START_KERNEL_map`, Documentation/arch/x86/x86_64/mm.rst).
pub const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Length of that map.
pub const KERNEL_MAP_BYTES: u64 = 1 << 30;
/// QEMU's `pc` machine puts memory beyond this above 4 GiB when it has [`SPLIT_FROM`] bytes or more
/// (`hw/i386/pc_piix.c`, "max-ram-below-4g").
const SPLIT_LOW: u64 = 0xc000_0000;
const SPLIT_FROM: u64 = 0xe000_0000;
const FOUR_GIB: u64 = 1 << 32;

/// A checked place of 8 bytes in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(usize);

/// A checked place of 4 bytes in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half(usize);

/// A guest's memory.
#[derive(Debug)]
pub struct Ram {
    base: NonNull<u8>,
    bytes: u64,
    /// Where physical memory is mapped linearly (`page_offset_base`); 0 until it is known.
    direct_map: u64,
}

// SAFETY: the mapping is shared and only read, through atomic loads, so any thread may do so.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

impl Ram {
    /// Maps the memory of a guest.
    pub fn map(memory: &GuestMemory) -> Result<Ram> {
        let bytes = memory.bytes;
        // SAFETY: a new mapping at an address of the kernel's choice; the file's size is sealed, so no access
        // within `bytes` can fault.
        let base = unsafe {
            let (length, none) = (bytes as usize, std::ptr::null_mut());
            rustix::mm::mmap(none, length, ProtFlags::READ, MapFlags::SHARED, memory, 0)
        }
        .map_err(|errno| VmError::Io { doing: "mapping the guest's memory".into(), source: errno.into() })?;
        let base = NonNull::new(base.cast()).expect("mmap gives no null page");
        Ok(Ram { base, bytes, direct_map: 0 })
    }

    /// Says where the guest's linear map of physical memory begins.
    pub fn set_direct_map(&mut self, address: u64) {
        self.direct_map = address;
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
        // SAFETY: `place` checked that 8 aligned bytes at this offset lie within the mapping, which lives as
        // long as `self`. Relaxed: a sample is a snapshot of each word, no ordering between words is assumed.
        unsafe { (*self.base.as_ptr().add(word.0).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }

    /// The value at a place now.
    pub fn get_half(&self, half: Half) -> u32 {
        // SAFETY: as in `get`, with 4 bytes.
        unsafe { (*self.base.as_ptr().add(half.0).cast::<AtomicU32>()).load(Ordering::Relaxed) }
    }

    /// The 8-byte value at a kernel address.
    pub fn read(&self, address: u64) -> Result<u64> {
        self.word(address).map(|word| self.get(word))
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
        let low = if self.bytes >= SPLIT_FROM { SPLIT_LOW } else { self.bytes };
        let offset = match physical {
            p if p < low => p,
            p if p >= FOUR_GIB => p - FOUR_GIB + low,
            _ => return Err(outside()),
        };
        // The linear map begins where the guest says: that need not be at a multiple of anything.
        if !address.is_multiple_of(size) || !offset.is_multiple_of(size) {
            return Err(VmError::Introspect(format!("kernel address {address:#x} is not aligned to {size}")));
        }
        if offset.checked_add(size).is_none_or(|end| end > self.bytes) {
            return Err(outside());
        }
        Ok(offset as usize)
    }

    /// Physical address of a kernel address: of the kernel's image (loaded where it was linked for, which
    /// `nokaslr` makes so) or of the linear map.
    fn physical(&self, address: u64) -> Option<u64> {
        if address >= KERNEL_MAP {
            return Some(address - KERNEL_MAP).filter(|offset| *offset < KERNEL_MAP_BYTES);
        }
        if self.direct_map == 0 {
            return None;
        }
        address.checked_sub(self.direct_map)
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing borrows from it beyond `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes as usize) };
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
        let ram = ram(4 << 30, &[(SPLIT_LOW, 5)]);
        assert_eq!(ram.read(DIRECT + FOUR_GIB).unwrap(), 5);
        assert!(ram.read(DIRECT + SPLIT_LOW).is_err());
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
