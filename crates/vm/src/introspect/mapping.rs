//! A guest's memory as a file that is mapped read-only into this process.
//!
//! The guest writes it at any time, so every access is a relaxed atomic load of an aligned word.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::qemu::GuestMemory;
use crate::{Result, VmError};

/// The mapping of a file whose size is sealed.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the mapping is shared and only read, through atomic loads, so any thread may do so.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn of(memory: &GuestMemory) -> Result<Mapping> {
        let bytes = memory.bytes;
        // SAFETY: a new mapping at an address of the kernel's choice; the file's size is sealed, so no access
        // within `bytes` can fault.
        let base = unsafe {
            let (length, none) = (bytes as usize, std::ptr::null_mut());
            rustix::mm::mmap(none, length, ProtFlags::READ, MapFlags::SHARED, memory, 0)
        }
        .map_err(|errno| VmError::Io { doing: "mapping the guest's memory".into(), source: errno.into() })?;
        Ok(Mapping { base: NonNull::new(base.cast()).expect("mmap gives no null page"), bytes })
    }

    /// The 8-byte value at this offset.
    ///
    /// # Panics
    /// If it does not lie within, aligned.
    pub(super) fn word(&self, offset: usize) -> u64 {
        self.check(offset, 8);
        // SAFETY: 8 aligned bytes at this offset lie within the mapping, which lives as long as `self`. Relaxed: a
        // sample is a snapshot of each word, no ordering between words is assumed.
        unsafe { (*self.base.as_ptr().add(offset).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }

    /// The 4-byte value at this offset.
    ///
    /// # Panics
    /// If it does not lie within, aligned.
    pub(super) fn half(&self, offset: usize) -> u32 {
        self.check(offset, 4);
        // SAFETY: as in `word`, with 4 bytes.
        unsafe { (*self.base.as_ptr().add(offset).cast::<AtomicU32>()).load(Ordering::Relaxed) }
    }

    fn check(&self, offset: usize, size: usize) {
        assert!(offset.is_multiple_of(size) && offset as u64 + size as u64 <= self.bytes);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing borrows from it beyond `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes as usize) };
    }
}
