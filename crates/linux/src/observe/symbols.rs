//! Names of the running kernel's functions, from `/proc/kallsyms`.
//!
//! A kernel has more than 100,000; they are kept in two pieces of memory, of some 4 MB together.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::proc::ProcRoot;
use crate::{Error, Result};

/// Addresses of functions, with their names.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Addresses, ascending, and where the name begins and ends.
    functions: Vec<(u64, u32, u32)>,
    names: String,
}

impl Symbols {
    /// Those of the running kernel and its modules.
    ///
    /// # Errors
    /// The list cannot be read, or hides the addresses.
    pub fn read(root: &ProcRoot) -> Result<Symbols> {
        let way_out = "run as root; if that does not help, write 1 to /proc/sys/kernel/kptr_restrict";
        let path = root.path().join("kallsyms");
        let failed = |e| Error::io("read", &path, e, way_out);
        let mut symbols = Symbols::default();
        let (mut file, mut line) = (BufReader::new(File::open(&path).map_err(failed)?), String::new());
        while file.read_line(&mut line).map_err(failed)? > 0 {
            symbols.add(&line);
            line.clear();
        }
        if symbols.functions.is_empty() {
            let hidden = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            return Err(Error::io("read the addresses in", path, hidden, way_out));
        }
        Ok(symbols.sorted())
    }

    /// Those of a list with an address, a type and a name in each line. Addresses that are hidden are 0, and left out.
    pub fn of(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        text.lines().for_each(|line| symbols.add(line));
        symbols.sorted()
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0);
        let bounds = (u32::try_from(self.names.len()), u32::try_from(self.names.len() + name.len()));
        let (Some(address), "t" | "T" | "w" | "W", (Ok(begin), Ok(end))) = (address, kind, bounds) else {
            return;
        };
        self.names.push_str(name);
        self.functions.push((address, begin, end));
    }

    fn sorted(mut self) -> Symbols {
        // Of several names of one address the last one counts, and a stable sort keeps the list's order.
        self.functions.sort_by_key(|(address, ..)| *address);
        self.functions.reverse();
        self.functions.dedup_by_key(|(address, ..)| *address);
        self.functions.reverse();
        self.functions.shrink_to_fit();
        self.names.shrink_to_fit();
        self
    }

    fn text(&self, (_, begin, end): (u64, u32, u32)) -> &str {
        &self.names[begin as usize..end as usize]
    }

    /// The function that has this address in it.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(begin, ..)| *begin <= address);
        Some(self.text(self.functions[after.checked_sub(1)?]))
    }

    /// Whether the kernel has a function of this name.
    pub fn has(&self, name: &str) -> bool {
        self.addresses(name).is_some()
    }

    /// The addresses from the begin of a function to that of the next one.
    pub fn addresses(&self, name: &str) -> Option<Range<u64>> {
        let at = self.functions.iter().position(|function| self.text(*function) == name)?;
        let end = self.functions.get(at + 1).map_or(u64::MAX, |(address, ..)| *address);
        Some(self.functions[at].0..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let text = "0000000000000000 T hidden\nffffffff81000100 t second\t[module]\nffffffff81000000 T other_name\n\
                    ffffffff81000000 T first\nffffffff81000180 D data\nnonsense\nffffffff81000200\n";
        let symbols = Symbols::of(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0190), Some("second"));
        assert_eq!(symbols.name(0xffff_ffff_8000_0000), None);
        assert!(symbols.has("second") && !symbols.has("data") && !symbols.has("hidden"));
        assert_eq!(symbols.addresses("first"), Some(0xffff_ffff_8100_0000..0xffff_ffff_8100_0100));
        assert_eq!(symbols.addresses("second"), Some(0xffff_ffff_8100_0100..u64::MAX));
        assert_eq!(symbols.addresses("third"), None);
    }
}
