//! The memory of a guest in a file: an ELF core as QEMU's `dump-guest-memory` (paging off) and `virsh dump --memory-only` write
//! it, or the raw memory, as of a `memory-backend-file`.
//!
//! Invariant: nothing that the file says is trusted. Its headers are read from its first [`HEADER_BYTES`]; parts that lie
//! outside the file are left out; what lies in no part is zero.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{EM_X86_64, ET_CORE, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::introspect::{Foreign, PAGE_BYTES, Split};
use crate::{Result, VmError};

/// The program headers must lie within so many bytes from the file's begin. QEMU puts them there.
const HEADER_BYTES: u64 = 1 << 20;
/// Most parts; QEMU writes some ten.
const PARTS: usize = 4096;
/// Memory above this physical address is left out: 4 TiB.
const HIGHEST: u64 = 4 << 40;
/// No guest whose kernel could be found has less memory, bytes.
const SMALLEST: u64 = 16 << 20;

/// A file with the memory of a guest.
#[derive(Debug)]
pub struct Dump {
    file: File,
    /// In the order of their addresses, none overlapping.
    parts: Vec<Part>,
    /// Where the last part ends.
    pub bytes: u64,
    /// The possible layouts of the memory in physical addresses.
    pub splits: [Split; 2],
}

/// A part of the memory that lies in one piece in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u64,
    end: u64,
    /// Of the start, in the file.
    at: u64,
}

/// Formats that are no plain memory, by their first bytes.
const REFUSED: [(&[u8], &str); 4] = [
    (b"KDUMP   ", "a compressed dump of kdump"),
    (b"makedumpfile", "a flat dump of makedumpfile or of QEMU"),
    (b"DISKDUMP", "a dump of diskdump"),
    (b"QEVM", "a saved state of QEMU"),
];
const ELF: &[u8] = b"\x7fELF";

impl Dump {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no memory of a guest.
    pub fn open(path: &Path) -> Result<Dump> {
        let io = |doing: &str| VmError::io(format!("{doing} {}", path.display()));
        let metadata = std::fs::metadata(path).map_err(io("opening"))?;
        let refused = |why: String| VmError::Introspect(format!("{}: {why}", path.display()));
        // Opening a FIFO would wait for its writer.
        if !metadata.is_file() {
            return Err(refused("not a file".into()));
        }
        let file = File::open(path).map_err(io("opening"))?;
        let bytes = file.metadata().map_err(io("opening"))?.len();
        let mut head = Vec::new();
        (&file).take(HEADER_BYTES).read_to_end(&mut head).map_err(io("reading"))?;
        let way_out =
            "make one with QEMU's monitor: dump-guest-memory FILE, or with virsh dump --memory-only";
        if let Some((_, what)) = REFUSED.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(refused(format!(
                "it is {what}, which is not supported; {way_out} (without compression)"
            )));
        }
        if head.starts_with(ELF) {
            let parts = parts(&head, bytes).map_err(|why| refused(format!("{why}; {way_out}")))?;
            let end = parts.last().map_or(0, |part| part.end);
            return Ok(Dump { file, parts, bytes: end, splits: [Split::NONE; 2] });
        }
        if bytes < SMALLEST || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(refused(format!(
                "it is neither an ELF core nor the raw memory of a guest; {way_out}"
            )));
        }
        let parts = vec![Part { start: 0, end: bytes.min(HIGHEST), at: 0 }];
        Ok(Dump { file, parts, bytes: bytes.min(HIGHEST), splits: [Split::PC, Split::Q35] })
    }

    /// Another handle of the same file.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn duplicate(&self) -> Result<Dump> {
        let file = self.file.try_clone().map_err(VmError::io("opening the dump again"))?;
        Ok(Dump { file, parts: self.parts.clone(), ..*self })
    }

    /// The parts that this range touches.
    fn touched(&self, from: u64, to: u64) -> &[Part] {
        let first = self.parts.partition_point(|part| part.end <= from);
        let count = self.parts[first..].partition_point(|part| part.start < to);
        &self.parts[first..first + count]
    }
}

/// The parts of an ELF core in a file of so many bytes, of which `head` is the begin.
fn parts(head: &[u8], bytes: u64) -> Result<Vec<Part>, String> {
    let damaged = |error: object::Error| format!("its ELF headers are damaged: {error}");
    let header = FileHeader64::<LittleEndian>::parse(head).map_err(damaged)?;
    let endian = LittleEndian;
    if header.e_type(endian) != ET_CORE || header.e_machine(endian) != EM_X86_64 {
        return Err("it is an ELF file, but no core of an x86-64 machine".into());
    }
    let segments = header.program_headers(endian, head).map_err(damaged)?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).take(PARTS);
    let part = |start: u64, at: u64, length: u64| {
        let length = length.min(bytes.checked_sub(at)?).min(HIGHEST.checked_sub(start)?);
        (length > 0).then_some(Part { start, end: start + length, at })
    };
    let mut parts: Vec<Part> = loaded
        .filter_map(|segment| {
            part(segment.p_paddr(endian), segment.p_offset(endian), segment.p_filesz(endian))
        })
        .collect();
    parts.sort_by_key(|part| part.start);
    // With paging on, QEMU writes memory once for each address that it is mapped at.
    let mut end = 0;
    parts.retain_mut(|part| {
        let cut = end.max(part.start) - part.start;
        (part.start, part.at) = (part.start.saturating_add(cut), part.at.saturating_add(cut));
        end = end.max(part.end);
        part.start < part.end
    });
    if parts.is_empty() { Err("it holds no memory".into()) } else { Ok(parts) }
}

impl Foreign for Dump {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let Some(to) = offset.checked_add(buffer.len() as u64).filter(|to| *to <= self.bytes) else {
            return false;
        };
        buffer.fill(0);
        self.touched(offset, to).iter().all(|part| {
            let (from, to) = (part.start.max(offset), part.end.min(to));
            let piece = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            self.file.read_exact_at(piece, part.at + (from - part.start)).is_ok()
        })
    }

    /// There is nothing to search in a hole.
    fn read_touched(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let to = offset.saturating_add(buffer.len() as u64);
        !self.touched(offset, to).is_empty() && self.read(offset, buffer)
    }
}

#[cfg(test)]
mod tests;
