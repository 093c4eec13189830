//! The guest's memory as a file of this process: a memfd whose size is sealed, so that QEMU can neither
//! shrink it under our mapping (which would end us with SIGBUS) nor make it grow.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::{Result, VmError};

/// The memory of one guest.
#[derive(Debug)]
pub struct GuestMemory {
    file: OwnedFd,
    /// Its size.
    pub bytes: u64,
}

impl GuestMemory {
    /// Makes zeroed memory; pages are only taken from the host when the guest touches them.
    pub fn new(bytes: u64) -> Result<GuestMemory> {
        let failed = |doing: &'static str| move |errno: rustix::io::Errno| VmError::io(doing)(errno.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("guest-memory", flags).map_err(failed("making the guest's memory"))?;
        rustix::fs::ftruncate(&file, bytes).map_err(failed("sizing the guest's memory"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed("sealing the guest's memory"))?;
        // QEMU opens it by path under another user.
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o666))
            .map_err(failed("opening the guest's memory to QEMU"))?;
        Ok(GuestMemory { file, bytes })
    }

    /// Another handle of the same memory.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(VmError::io("duplicating the guest's memory"))
    }
}

impl AsFd for GuestMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
