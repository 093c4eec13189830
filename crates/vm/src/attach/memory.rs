//! The memory of a process, read through `/proc/PID/mem`.
//!
//! This works for shared and private guest memory of any kind, without an option of QEMU. The open file refers to the
//! process's memory, not to its PID. So reads fail once the process has ended, and never return another process's
//! memory. The file is open read-only. Nothing is mapped, so nothing that the process does, such as truncating a file,
//! can harm this process. A read of a word takes about 1 us.
//!
//! Source: proc_pid_mem(5), proc_pid_pagemap(5).

use std::fs::File;
use std::os::unix::fs::FileExt;

use reprieve_linux::proc::ProcRoot;

use crate::introspect::{Foreign, PAGE_BYTES};
use crate::{Result, VmError};

/// Bits of a pagemap entry: the page is in memory, or swapped out.
const THERE: u64 = 0b11 << 62;

/// A range of a process's memory.
#[derive(Debug)]
pub struct ProcessMemory {
    memory: File,
    pages: File,
    start: u64,
    bytes: u64,
}

impl ProcessMemory {
    /// Opens `bytes` of a process's memory, from the address `start` on.
    pub fn open(root: &ProcRoot, pid: i32, start: u64, bytes: u64) -> Result<ProcessMemory> {
        let open = |name: &str| {
            let path = root.path().join(format!("{pid}/{name}"));
            File::open(&path).map_err(|error| match error.kind() {
                std::io::ErrorKind::PermissionDenied => VmError::Missing {
                    what: format!("permission to read {}", path.display()),
                    way_out: "run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH".into(),
                },
                _ => VmError::io(format!("opening {}", path.display()))(error),
            })
        };
        Ok(ProcessMemory { memory: open("mem")?, pages: open("pagemap")?, start, bytes })
    }

    fn contains(&self, offset: u64, length: usize) -> bool {
        offset.checked_add(length as u64).is_some_and(|end| end <= self.bytes)
    }

    fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> bool {
        self.memory.read_exact_at(buffer, self.start + offset).is_ok()
    }
}

impl Foreign for ProcessMemory {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        self.contains(offset, buffer.len()) && self.read_exact(offset, buffer)
    }

    fn read_touched(&self, offset: u64, buffer: &mut [u8]) -> bool {
        buffer.fill(0);
        if !self.contains(offset, buffer.len()) || !offset.is_multiple_of(PAGE_BYTES) {
            return false;
        }
        let page = PAGE_BYTES as usize;
        let mut entries = vec![0; buffer.len().div_ceil(page) * 8];
        let first = (self.start + offset) / PAGE_BYTES;
        if self.pages.read_exact_at(&mut entries, 8 * first).is_err() {
            return false;
        }
        let (entries, _) = entries.as_chunks();
        let is_there = |entry: &[u8; 8]| u64::from_le_bytes(*entry) & THERE != 0;
        let mut at = 0;
        for run in entries.chunk_by(|a, b| is_there(a) == is_there(b)) {
            let end = (at + run.len() * page).min(buffer.len());
            if is_there(&run[0]) {
                // A page that cannot be read stays zero. The guest has made it private, or it belongs to a device.
                let _ = self.read_exact(offset + at as u64, &mut buffer[at..end]);
            }
            at = end;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::introspect::{KERNEL_MAP, Ram};
    use crate::qemu::GuestMemory;

    fn own(bytes: &[u8]) -> ProcessMemory {
        let start = bytes.as_ptr() as u64;
        ProcessMemory::open(&ProcRoot::default(), std::process::id() as i32, start, bytes.len() as u64)
            .unwrap()
    }

    #[test]
    fn a_process_s_memory_is_read_within_its_stretch() {
        let bytes: Vec<u8> = (0..=255).collect();
        let memory = own(&bytes);
        let mut word = [0; 8];
        assert!(memory.read(8, &mut word) && word == [8, 9, 10, 11, 12, 13, 14, 15]);
        assert!(memory.read(248, &mut word) && !memory.read(249, &mut word));
        assert!(!memory.read(u64::MAX, &mut word));
    }

    #[test]
    fn pages_that_nobody_has_touched_are_not_made() {
        let page = PAGE_BYTES as usize;
        // The test finds the mapping by its size, which no other mapping of this process has.
        let file = GuestMemory::new(37 * PAGE_BYTES).unwrap();
        for written in [2, 5] {
            rustix::io::pwrite(file.as_fd(), &[7; 16], written * PAGE_BYTES).unwrap();
        }
        let ram = Ram::map(&file).unwrap();
        // A page counts as there once the process has touched it. A guest touches the pages that it uses.
        assert_ne!(ram.read(KERNEL_MAP + 2 * PAGE_BYTES).unwrap(), 0);
        let pid = std::process::id() as i32;
        let maps = ProcRoot::default().read_task(&format!("{pid}/maps")).unwrap();
        let range =
            maps.lines().find(|line| line.contains("guest-memory") && length(line) == 37 * PAGE_BYTES);
        let start = u64::from_str_radix(range.unwrap().split_once('-').unwrap().0, 16).unwrap();
        let memory = ProcessMemory::open(&ProcRoot::default(), pid, start, file.bytes).unwrap();
        let mut buffer = vec![1; 37 * page];
        assert!(memory.read_touched(0, &mut buffer));
        let seen: Vec<usize> = (0..buffer.len()).filter(|at| buffer[*at] != 0).collect();
        // When a page is touched, the kernel also maps the pages around it that the file has.
        assert_eq!(seen[..16], (2 * page..2 * page + 16).collect::<Vec<_>>());
        let blocks = rustix::fs::fstat(&file).unwrap().st_blocks;
        assert_eq!(blocks, 2 * 8, "of 512 bytes: two pages");
    }

    fn length(line: &str) -> u64 {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    }

    #[test]
    fn a_process_that_is_not_there_has_no_memory() {
        assert!(ProcessMemory::open(&ProcRoot::default(), i32::MAX, 0, 1).is_err());
    }
}
