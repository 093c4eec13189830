//! The distribution's fio with the libraries that it needs, for guests. It runs under its own loader, apart from the host's
//! programs: those are built for the host's libraries, this one for the packages'.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::cache::key_of;
use super::{Cache, Initramfs, Result, libraries, packages};
use crate::Step;

/// The package. It is linked with the libraries of all its engines, of which a guest uses none: 80 MB.
const PACKAGE: &str = "fio";
/// The program in its package.
const PROGRAM: &str = "usr/bin/fio";
/// Where it is in the guest; `guest/fio.c` names the same place.
const ROOT: &str = "packaged";

/// What was gathered.
pub(crate) struct PackagedFio {
    program: PathBuf,
    libraries: BTreeMap<String, PathBuf>,
    /// The package, and where each library is in the cache.
    pub key: String,
}

/// Gathers it, from the cache where it is there.
pub(crate) fn gather(cache: &Cache, progress: &mut Step) -> Result<PackagedFio> {
    let package = packages::with_libraries(cache, PACKAGE, progress)?;
    let program = package.find(&[PROGRAM])?;
    let found = libraries::in_packages(std::slice::from_ref(&package), std::slice::from_ref(&program), &[])?;
    // A library's own version is not in the name of the entry.
    let files = found.values().map(|path| path.to_string_lossy().into_owned());
    let parts: Vec<String> = files.chain([package.id]).collect();
    Ok(PackagedFio { program, libraries: found, key: key_of(parts.iter().map(|part| part.as_bytes())) })
}

impl PackagedFio {
    /// Adds it to a guest's file system.
    pub fn add(&self, archive: &mut Initramfs) -> Result<()> {
        archive.program_from(&format!("{ROOT}/bin/fio"), &self.program)?;
        libraries::add(archive, &format!("{ROOT}/lib"), &self.libraries)
    }
}
