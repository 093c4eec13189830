//! Names of the running kernel's functions, from `/proc/kallsyms`.

use std::collections::BTreeMap;

use crate::proc::ProcRoot;
use crate::{Error, Result};

/// Addresses of functions, with their names.
#[derive(Clone, Debug, Default)]
pub struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// Those of the running kernel and its modules.
    ///
    /// # Errors
    /// The list cannot be read, or hides the addresses.
    pub fn read(root: &ProcRoot) -> Result<Symbols> {
        let way_out = "run as root; if that does not help, write 1 to /proc/sys/kernel/kptr_restrict";
        let path = root.path().join("kallsyms");
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e, way_out))?;
        let symbols = Symbols::of(&text);
        if symbols.0.is_empty() {
            let hidden = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            return Err(Error::io("read the addresses in", path, hidden, way_out));
        }
        Ok(symbols)
    }

    /// Those of a list with an address, a type and a name in each line. Addresses that are hidden are 0, and left out.
    pub fn of(text: &str) -> Symbols {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
            let is_function = matches!(words.next()?, "t" | "T" | "w" | "W");
            Some((address, words.next()?.to_string())).filter(|_| is_function)
        };
        Symbols(text.lines().filter_map(line).collect())
    }

    /// The function that has this address in it.
    pub fn name(&self, address: u64) -> Option<&str> {
        self.0.range(..=address).next_back().map(|(_, name)| name.as_str())
    }

    /// Whether the kernel has a function of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.values().any(|known| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let text = "0000000000000000 T hidden\nffffffff81000000 T first\nffffffff81000100 t second\t[module]\n\
                    ffffffff81000180 D data\nnonsense\nffffffff81000200\n";
        let symbols = Symbols::of(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0190), Some("second"));
        assert_eq!(symbols.name(0xffff_ffff_8000_0000), None);
        assert!(symbols.has("second") && !symbols.has("data") && !symbols.has("hidden"));
    }
}
