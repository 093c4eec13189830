//! The shared libraries that programs need, found below some roots, those of unpacked packages or the host's: what an ELF
//! file names in `DT_NEEDED` (System V ABI, "Dynamic Section"), and what those name in turn. No program is run for it.
//!
//! The C library names its loader like any other library, so that is found too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, StringTable};

use super::{ImageError, Initramfs, Result, Unpacked, error};

/// Where packages have libraries, below their roots: with /usr merged, and before that; and where Ceph's, which fio needs, have
/// one among themselves.
const IN_PACKAGES: [&str; 3] =
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/ceph"];

/// Where a host has libraries: its own first, then the distribution's; as in the ld.so.conf of Debian, and of
/// distributions that put 64-bit libraries into lib64.
const ON_HOST: [&str; 6] = [
    "/usr/local/lib",
    "/usr/local/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
];

/// The loader's name in a guest, beside the libraries.
const LOADER: &str = "ld.so";

/// The files of all libraries that `programs` need, and of those in `further`, by name.
///
/// # Errors
/// A library that is in none of the packages, a program that cannot be read.
pub(crate) fn in_packages(
    packages: &[Unpacked],
    programs: &[PathBuf],
    further: &[&str],
) -> Result<BTreeMap<String, PathBuf>> {
    let places =
        packages.iter().flat_map(|package| IN_PACKAGES.map(|directory| package.root.join(directory)));
    closure(&places.collect::<Vec<_>>(), programs, further).map_err(|missing| match missing {
        Missing::Library { name, .. } => ImageError::PackageLacks {
            package: packages.iter().map(|package| package.id.as_str()).collect::<Vec<_>>().join(", "),
            what: format!("library {name}"),
        },
        Missing::Other(error) => error,
    })
}

/// The files of all of the host's libraries that `programs` need, by name.
///
/// # Errors
/// A library that is in none of the usual directories, a program that cannot be read.
pub(crate) fn on_host(programs: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>> {
    closure(&ON_HOST.map(PathBuf::from), programs, &[]).map_err(|missing| match missing {
        Missing::Library { name, wanted_by } => ImageError::NoLibrary {
            program: wanted_by.display().to_string(),
            library: name,
            directories: ON_HOST.join(", "),
        },
        Missing::Other(error) => error,
    })
}

/// Adds libraries to a guest's file system; their loader gets the name under which the guest calls it.
pub(crate) fn add(
    archive: &mut Initramfs,
    directory: &str,
    libraries: &BTreeMap<String, PathBuf>,
) -> Result<()> {
    for (library, path) in libraries {
        let name = if is_loader(library) { LOADER } else { library };
        archive.program_from(&format!("{directory}/{name}"), path)?;
    }
    Ok(())
}

/// Whether a library's name is that of the loader (System V ABI, x86-64 supplement: `ld-linux-x86-64.so.2`).
fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux")
}

/// Why a closure is not complete.
enum Missing {
    /// No directory has the library that this file wants.
    Library {
        name: String,
        wanted_by: PathBuf,
    },
    Other(ImageError),
}

impl From<ImageError> for Missing {
    fn from(error: ImageError) -> Missing {
        Missing::Other(error)
    }
}

fn closure(
    directories: &[PathBuf],
    programs: &[PathBuf],
    further: &[&str],
) -> Result<BTreeMap<String, PathBuf>, Missing> {
    let mut found = BTreeMap::new();
    // Names, and the file that each comes from.
    let mut wanted: Vec<(String, PathBuf)> =
        further.iter().map(|name| ((*name).to_owned(), PathBuf::new())).collect();
    let of = |path: &Path| -> Result<Vec<(String, PathBuf)>> {
        Ok(needed(path)?.into_iter().map(|name| (name, path.to_owned())).collect())
    };
    for program in programs {
        wanted.extend(of(program)?);
    }
    // Each name is looked for once, so cycles end.
    while let Some((name, wanted_by)) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let places = directories.iter().map(|directory| directory.join(&name));
        let Some(path) = places.into_iter().find(|path| path.exists()) else {
            return Err(Missing::Library { name, wanted_by });
        };
        wanted.extend(of(&path)?);
        found.insert(name, path);
    }
    Ok(found)
}

/// The names in the file's dynamic section. A name with a slash would lead elsewhere, and is left out.
fn needed(path: &Path) -> Result<Vec<String>> {
    let data = error::read(path)?;
    let names = parse(&data).map_err(|problem| ImageError::BadFile {
        path: path.to_owned(),
        kind: "program",
        problem,
    })?;
    Ok(names.into_iter().filter(|name| !name.contains('/')).collect())
}

fn parse(data: &[u8]) -> Result<Vec<String>, String> {
    let text = |error: object::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(data).map_err(text)?;
    let endian = header.endian().map_err(text)?;
    let sections = header.sections(endian, data).map_err(text)?;
    let Some((entries, link)) = sections.dynamic(endian, data).map_err(text)? else { return Ok(Vec::new()) };
    let strings: StringTable = sections.strings(endian, data, link).map_err(text)?;
    let names = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED).map(|entry| {
        let bytes = entry.string(endian, strings).map_err(text)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let names = needed(&std::env::current_exe().unwrap()).unwrap();
        assert!(names.contains(&"libc.so.6".to_owned()), "{names:?}");
    }

    #[test]
    fn the_hosts_libraries_are_found_with_what_they_need_and_their_loader() {
        let found = on_host(&[std::env::current_exe().unwrap()]).unwrap();
        assert!(found.contains_key("libc.so.6"), "{found:?}");
        assert!(found.keys().any(|name| is_loader(name)), "{found:?}");
    }

    #[test]
    fn what_is_no_program_or_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "text").unwrap();
        let error = in_packages(&[], &[path], &[]).unwrap_err().to_string();
        assert!(error.contains("tool: not a program"), "{error}");
        let packages = [Unpacked { id: "p_1".into(), root: dir.path().to_owned() }];
        let error = in_packages(&packages, &[], &["libx.so.1"]).unwrap_err().to_string();
        assert!(error.contains("p_1: no library libx.so.1"), "{error}");
        let program = std::env::current_exe().unwrap();
        let missing = closure(&[dir.path().to_owned()], std::slice::from_ref(&program), &[]);
        assert!(matches!(missing, Err(Missing::Library { wanted_by, .. }) if wanted_by == program));
    }
}
