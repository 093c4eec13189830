//! The guest's file system: a newc cpio archive (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Deterministic: sorted, all times and owners zero, so equal content gives equal bytes. Directories come
//! before what is in them, made as needed. Not compressed: an emulated guest would spend longer on unpacking
//! than the host on copying.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cpio::newc::Builder;

use super::{ImageError, Result, error};

/// Largest file, bytes; newc itself ends at 4 GiB.
const FILE_BYTES_MAX: usize = 256 << 20;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
const LINK: u32 = 0o120_777;

/// An archive in the making. Names are relative to the root: `bin/sh`.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    mode: u32,
    content: Vec<u8>,
}

impl Initramfs {
    /// An empty directory, as a place to mount something.
    pub fn directory(&mut self, name: &str) -> Result<()> {
        self.add(name, DIRECTORY, Vec::new())
    }

    /// A file that can be executed.
    pub fn program(&mut self, name: &str, content: Vec<u8>) -> Result<()> {
        self.add(name, PROGRAM, content)
    }

    /// A program copied from `path`.
    pub fn program_from(&mut self, name: &str, path: &Path) -> Result<()> {
        self.program(name, error::read(path)?)
    }

    /// A file that is only read.
    pub fn data(&mut self, name: &str, content: Vec<u8>) -> Result<()> {
        self.add(name, DATA, content)
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) -> Result<()> {
        self.add(name, LINK, target.as_bytes().to_vec())
    }

    fn add(&mut self, name: &str, mode: u32, content: Vec<u8>) -> Result<()> {
        let refuse =
            |problem: &str| ImageError::Archive { name: name.to_owned(), problem: problem.to_owned() };
        if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(refuse("not a plain relative name"));
        }
        if content.len() > FILE_BYTES_MAX {
            return Err(refuse("too large for a guest"));
        }
        for (at, _) in name.match_indices('/') {
            let parent = self.entries.entry(name[..at].to_owned());
            let parent = parent.or_insert(Entry { mode: DIRECTORY, content: Vec::new() });
            if parent.mode != DIRECTORY {
                return Err(refuse("lies in something that is not a directory"));
            }
        }
        match self.entries.insert(name.to_owned(), Entry { mode, content }) {
            Some(old) if old.mode != DIRECTORY || mode != DIRECTORY => Err(refuse("there twice")),
            _ => Ok(()),
        }
    }

    /// Writes the archive to a new file.
    pub fn write_to(&self, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(ImageError::io(path))?;
        self.write(BufWriter::new(file)).map_err(ImageError::io(path))
    }

    /// Writes the archive. Sorted by name, a directory comes before what is in it.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        for (number, (name, entry)) in (1..).zip(&self.entries) {
            let links = if entry.mode == DIRECTORY { 2 } else { 1 };
            let header = Builder::new(name).ino(number).mode(entry.mode).nlink(links);
            let mut writer = header.write(&mut out, entry.content.len() as u32);
            writer.write_all(&entry.content)?;
            writer.finish()?;
        }
        cpio::newc::trailer(&mut out)?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Initramfs {
        let mut archive = Initramfs::default();
        archive.program("bin/busybox", b"x".to_vec()).unwrap();
        archive.link("bin/sh", "busybox").unwrap();
        archive.directory("proc").unwrap();
        archive.directory("bin").unwrap();
        archive.data("lib/a/order", b"virtio.ko\n".to_vec()).unwrap();
        archive
    }

    fn bytes(archive: &Initramfs) -> Vec<u8> {
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn equal_content_gives_equal_bytes_with_directories_first() {
        let archive = bytes(&sample());
        assert_eq!(archive, bytes(&sample()));
        let mut names = Vec::new();
        let mut rest = archive.as_slice();
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            assert_eq!((reader.entry().mtime(), reader.entry().uid(), reader.entry().gid()), (0, 0, 0));
            names.push((reader.entry().name().to_owned(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
        let names: Vec<_> = names.iter().map(|(name, mode)| (name.as_str(), *mode)).collect();
        assert_eq!(
            names,
            [
                ("bin", DIRECTORY),
                ("bin/busybox", PROGRAM),
                ("bin/sh", LINK),
                ("lib", DIRECTORY),
                ("lib/a", DIRECTORY),
                ("lib/a/order", DATA),
                ("proc", DIRECTORY)
            ]
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let mut archive = sample();
        for name in ["/bin/x", "../x", "", "bin//x", "bin/sh/x", "bin/sh"] {
            assert!(archive.data(name, Vec::new()).is_err(), "{name}");
        }
    }
}
