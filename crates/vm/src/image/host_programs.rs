//! Programs of the host's in a guest: each without its debug information, and the host's shared libraries that it needs,
//! with their loader. They run under that loader, so that the guest's own C library does not matter.
//!
//! Invariant: the key says every byte of the programs and of the libraries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cache::key_of;
use super::{Cache, Initramfs, Result, command, error, libraries};
use crate::Step;

/// Where they are in the guest; `guest/program.c` names the same places.
const PROGRAMS: &str = "programs/bin";
const LIBRARIES: &str = "programs/lib";

/// What was gathered.
pub(crate) struct HostPrograms {
    /// The directory that holds the programs.
    dir: PathBuf,
    /// The file of each library, by the name under which it is looked for.
    libraries: BTreeMap<String, PathBuf>,
    /// The key of all of it.
    pub key: String,
}

/// Gathers the programs of these paths, whose file names differ. `None` if there are none.
pub(crate) fn gather(cache: &Cache, paths: &[PathBuf], progress: &mut Step) -> Result<Option<HostPrograms>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let libraries = libraries::on_host(paths)?;
    let key = key_of_files(paths.iter().chain(libraries.values()))?;
    let dir = cache.make("host-programs", &key, |dir| {
        progress("taking the programs that the guest runs");
        for path in paths {
            let (from, to) = (path.to_string_lossy(), dir.join(name(path)));
            command::run("strip", &["-o", &to.to_string_lossy(), &from], dir)?;
        }
        Ok(())
    })?;
    Ok(Some(HostPrograms { dir, libraries, key }))
}

impl HostPrograms {
    /// Adds them to a guest's file system.
    pub fn add(&self, archive: &mut Initramfs) -> Result<()> {
        for path in error::list(&self.dir)? {
            archive.program_from(&format!("{PROGRAMS}/{}", name(&path)), &path)?;
        }
        libraries::add(archive, LIBRARIES, &self.libraries)
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn key_of_files<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<String> {
    let mut parts = Vec::new();
    for path in paths {
        // A digest each, so that one file at a time is in memory.
        let content = key_of([error::read(path)?.as_slice()]);
        parts.push(format!("{} {content}", name(path)));
    }
    Ok(key_of(parts.iter().map(|part| part.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_name_is_in_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let key = |paths: &[PathBuf]| key_of_files(paths.iter()).unwrap();
        let first = key(&[path("a", "x"), path("b", "y")]);
        assert_eq!(first, key(&[path("a", "x"), path("b", "y")]));
        assert_ne!(first, key(&[path("a", "x"), path("b", "z")]));
        assert_ne!(first, key(&[path("a", "x"), path("c", "y")]));
    }
}
