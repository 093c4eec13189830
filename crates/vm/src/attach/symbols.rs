//! Reads a file of symbols: a copy of the guest's `/proc/kallsyms`, or its kernel's `System.map`. Its lines have the
//! form `ADDRESS TYPE NAME`. Lines of modules have a fourth word and are left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::kernel::WANTED;
use crate::introspect::Symbols;
use crate::{Result, VmError};

/// Longest file that is read, bytes. Distributions' files have about 10 MB.
const FILE_BYTES: u64 = 256 << 20;

/// Reads the needed symbols from a file.
///
/// # Errors
/// The file cannot be read, or lacks the kernel's start. It lacks it if it was copied without root's rights.
pub fn read(path: &Path) -> Result<Symbols> {
    let opened = File::open(path).map_err(VmError::io(format!("opening {}", path.display())))?;
    let mut symbols = Symbols::new();
    for line in BufReader::new(opened.take(FILE_BYTES)).split(b'\n') {
        let line = line.map_err(VmError::io(format!("reading {}", path.display())))?;
        let Ok(line) = std::str::from_utf8(&line) else { continue };
        if let Some((name, address)) = symbol(line) {
            symbols.entry(name.to_string()).or_insert(address);
        }
    }
    match symbols.get("_text") {
        Some(1..) => Ok(symbols),
        _ => Err(VmError::Introspect(format!(
            "{} has no address of _text: it must be the guest's System.map, or a copy of its /proc/kallsyms that root made",
            path.display()
        ))),
    }
}

/// The names of the kernel's functions at these addresses. `shift` is by how much the running kernel's addresses exceed those of
/// the file; it wraps around.
///
/// # Errors
/// The file cannot be read.
pub fn functions(path: &Path, shift: u64, addresses: &[u64]) -> Result<BTreeMap<u64, String>> {
    let opened = File::open(path).map_err(VmError::io(format!("opening {}", path.display())))?;
    let mut functions = BTreeMap::new();
    for line in BufReader::new(opened.take(FILE_BYTES)).split(b'\n') {
        let line = line.map_err(VmError::io(format!("reading {}", path.display())))?;
        let Ok(line) = std::str::from_utf8(&line) else { continue };
        let Some((name, address)) = any_symbol(line) else { continue };
        let address = address.wrapping_add(shift);
        if addresses.contains(&address) {
            functions.entry(address).or_insert_with(|| name.to_string());
        }
    }
    Ok(functions)
}

fn symbol(line: &str) -> Option<(&str, u64)> {
    any_symbol(line).filter(|(name, _)| WANTED.contains(name))
}

fn any_symbol(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1)?;
    words.next().is_none().then_some((name, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Symbols> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn the_first_of_a_name_counts_and_none_of_a_module() {
        let text = "0000000000012340 A rcu_data\nffffffff81000000 T _text\nffffffff82000000 D rcu_state\t[x]\n\
                    ffffffff82000010 D rcu_state\nffffffff82000020 D rcu_state\nnonsense\n";
        let symbols = of(text).unwrap();
        assert_eq!((symbols["rcu_state"], symbols["rcu_data"]), (0xffff_ffff_8200_0010, 0x12340));
        assert_eq!(symbols.len(), 3);
    }

    #[test]
    fn functions_are_named_where_the_kernel_has_moved_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1000 T _text\n1020 t first\n1020 t second\n1040 t other\t[x]\n")
            .unwrap();
        let named = functions(file.path(), 0x200, &[0x1220, 0x1240, 0x1020]).unwrap();
        assert_eq!(named, BTreeMap::from([(0x1220, "first".to_string())]));
    }

    #[test]
    fn a_file_without_addresses_is_refused() {
        for text in ["", "0000000000000000 T _text\n", "Not really the map\n"] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains("has no address of _text"), "{error}");
        }
    }
}
