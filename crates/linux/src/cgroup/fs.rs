//! The few operations on a cgroup file system, as a trait, so that tests can record and refuse them.
//!
//! Invariant: a value is written in one write(2), as the kernel requires.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The most bytes read from one control file (`tasks` with some 500,000 threads).
const MAX_CONTROL_BYTES: u64 = 4 << 20;

/// The most child directories listed of one directory.
const MAX_CHILDREN: usize = 4096;

/// A cgroup file system: the real one, unless a test does otherwise.
pub(crate) trait ControlFs: std::fmt::Debug + Send + Sync {
    /// Makes a directory in an existing one.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    /// Removes a directory that has neither children nor tasks.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    /// Writes an existing control file.
    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
    }

    /// Reads a control file.
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(MAX_CONTROL_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Lists the child directories.
    fn children(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && found.len() < MAX_CHILDREN {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// The real file system.
#[derive(Debug)]
pub(crate) struct RealFs;

impl ControlFs for RealFs {}
