//! The shared libraries that programs need, found in unpacked packages: what an ELF file names in `DT_NEEDED` (System V
//! ABI, "Dynamic Section"), and what those name in turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, StringTable};

use super::error::{self, ImageError};
use super::packages::Unpacked;

/// Where packages have libraries, below their roots: with /usr merged, and before that.
const DIRECTORIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// The files of all libraries that `programs` need, and of those in `further`, by name.
///
/// # Errors
/// A library that is in none of the packages, a program that cannot be read.
pub(crate) fn closure(
    packages: &[Unpacked],
    programs: &[PathBuf],
    further: &[&str],
) -> Result<BTreeMap<String, PathBuf>, ImageError> {
    let mut found = BTreeMap::new();
    let mut wanted: Vec<String> = further.iter().map(|name| (*name).to_owned()).collect();
    for program in programs {
        wanted.extend(needed(program)?);
    }
    // Each name is looked for once, so cycles end.
    while let Some(name) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let path = find(packages, &name)?;
        wanted.extend(needed(&path)?);
        found.insert(name, path);
    }
    Ok(found)
}

fn find(packages: &[Unpacked], name: &str) -> Result<PathBuf, ImageError> {
    let places = packages
        .iter()
        .flat_map(|package| DIRECTORIES.iter().map(move |directory| package.root.join(directory).join(name)));
    places.into_iter().find(|path| path.exists()).ok_or_else(|| ImageError::PackageLacks {
        package: packages.iter().map(|package| package.id.as_str()).collect::<Vec<_>>().join(", "),
        what: format!("library {name}"),
    })
}

/// The names in the file's dynamic section. A name with a slash would lead elsewhere, and is left out.
fn needed(path: &Path) -> Result<Vec<String>, ImageError> {
    let data = error::read(path)?;
    let names = parse(&data).map_err(|problem| ImageError::BadProgram { path: path.to_owned(), problem })?;
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
    fn what_is_no_program_or_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "text").unwrap();
        let error = closure(&[], &[path], &[]).unwrap_err().to_string();
        assert!(error.contains("tool: not a program"), "{error}");
        let packages = [Unpacked { package: "p".into(), id: "p_1".into(), root: dir.path().to_owned() }];
        let error = closure(&packages, &[], &["libx.so.1"]).unwrap_err().to_string();
        assert!(error.contains("p_1: no library libx.so.1"), "{error}");
    }
}
