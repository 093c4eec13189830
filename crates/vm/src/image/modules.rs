//! The drivers a guest loads: a module and all it depends on, each after those it needs.
//!
//! A package's tree has no `modules.dep` (depmod makes it when the package is installed), so the order comes
//! from the modules themselves: `depends=` in `.modinfo` (scripts/mod/modpost.c writes it).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::decompress::decompress;
use super::{ImageError, Result, error};

/// Most modules looked at under one directory; a full distribution kernel has about 6,000.
const MODULES_MAX: usize = 50_000;

/// A module, ready to be put into an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// As the kernel says it, with `_` for `-`.
    pub name: String,
    /// The ELF file, not compressed.
    pub content: Vec<u8>,
}

/// The modules to load, in order, so that all of `wanted` are there. Built-in ones are left out.
pub(crate) fn closure(dir: &Path, release: &str, wanted: &[&str]) -> Result<Vec<Module>> {
    let tree = Tree { dir, release, files: files_under(dir)?, built_in: built_in(dir)? };
    let mut order = Vec::new();
    let mut visited = BTreeSet::new();
    for name in wanted {
        tree.visit(&normal(name), &mut visited, &mut order)?;
    }
    Ok(order)
}

struct Tree<'a> {
    dir: &'a Path,
    release: &'a str,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl Tree<'_> {
    /// Depth first, so that what a module needs comes before it. `visited` ends cycles, and bounds the depth
    /// by the number of modules.
    fn visit(&self, name: &str, visited: &mut BTreeSet<String>, order: &mut Vec<Module>) -> Result<()> {
        if self.built_in.contains(name) || !visited.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| ImageError::NoModule {
            release: self.release.to_owned(),
            module: name.to_owned(),
            dir: self.dir.to_owned(),
        })?;
        let raw = error::read(path)?;
        let content = decompress(path, &raw)?.unwrap_or(raw);
        for needed in depends(path, &content)? {
            self.visit(&needed, visited, order)?;
        }
        order.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// The kernel takes `-` and `_` in a module's name for the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// The module's name if this is the file of one.
fn module_name(file_name: &str) -> Option<String> {
    let stem = file_name.split_once(".ko")?;
    matches!(stem.1, "" | ".xz" | ".zst" | ".gz").then(|| normal(stem.0))
}

/// All module files by name. Links (`build`, `source`) are not followed.
fn files_under(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).map_err(ImageError::io(&dir))? {
            let entry = entry.map_err(ImageError::io(&dir))?;
            let kind = entry.file_type().map_err(ImageError::io(&dir))?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if let Some(name) = entry.file_name().to_str().and_then(module_name)
                && files.len() < MODULES_MAX
            {
                files.insert(name, entry.path());
            }
        }
    }
    Ok(files)
}

/// The names in `modules.builtin`; a kernel without that file has none that we know of.
fn built_in(dir: &Path) -> Result<BTreeSet<String>> {
    let path = dir.join("modules.builtin");
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let text = error::read(&path)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect())
}

/// What the module says it depends on.
fn depends(path: &Path, elf: &[u8]) -> Result<Vec<String>> {
    let bad = |problem: String| ImageError::BadFile { path: path.to_owned(), kind: "kernel module", problem };
    let file = object::File::parse(elf).map_err(|error| bad(error.to_string()))?;
    let section = file.section_by_name(".modinfo").ok_or_else(|| bad("no .modinfo section".to_owned()))?;
    Ok(modinfo_depends(section.data().map_err(|error| bad(error.to_string()))?))
}

/// `.modinfo` is KEY=VALUE texts, each ended by a zero; `depends` is a list with commas.
fn modinfo_depends(modinfo: &[u8]) -> Vec<String> {
    let value = modinfo.split(|&byte| byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(normal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(module_name("virtio-rng.ko.xz").unwrap(), "virtio_rng");
        assert_eq!(module_name("virtio.ko").unwrap(), "virtio");
        assert!(module_name("virtio.ko.txt").is_none() && module_name("modules.dep").is_none());
    }

    #[test]
    fn modinfo() {
        let text = b"license=GPL\0\0depends=virtio-ring,virtio\0name=x\0";
        assert_eq!(modinfo_depends(text), ["virtio_ring", "virtio"]);
        assert!(modinfo_depends(b"depends=\0").is_empty() && modinfo_depends(b"").is_empty());
    }

    #[test]
    fn built_in_modules_need_no_file_and_missing_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio_pci.ko\n").unwrap();
        assert!(closure(dir.path(), "6.1", &["virtio-pci"]).unwrap().is_empty());
        let error = closure(dir.path(), "6.1", &["virtio_console"]).unwrap_err().to_string();
        assert!(error.contains("virtio_console") && error.contains("6.1"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_module_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x.ko"), "text").unwrap();
        let error = closure(dir.path(), "6.1", &["x"]).unwrap_err().to_string();
        assert!(error.contains("x.ko"), "{error}");
    }
}
