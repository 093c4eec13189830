//! Finds the running kernel in a guest's memory: its place, its symbols and its type information.
//!
//! An x86-64 kernel is in one piece, at a multiple of 2 MiB of physical memory, and is mapped at another multiple of 2
//! MiB from [`KERNEL_MAP`] on. With KASLR, both are chosen at boot. The kernel's variable `phys_base` holds their
//! difference. A place in memory counts as a kernel if it has the kernel's banner, and if `phys_base` agrees with the
//! place. This rules out copies, such as an image in the page cache. It does not rule out a kernel that an earlier boot
//! has left behind, but that one does not run, so its clock, `jiffies_64`, stands still.
//!
//! Nothing here is trusted: the search ends when its caller says so, only so many places are tried, all sizes have limits, and what is found is checked by `introspect` again.

use std::time::Duration;

use memchr::memmem;

use super::kallsyms::{self, AFTER, BEFORE, DIGITS};
use crate::image::btf::Btf;
use crate::introspect::{Foreign, KERNEL_MAP, KERNEL_MAP_BYTES, PAGE_BYTES, Split, Symbols};
use crate::{Result, VmError};

/// Size of the pieces in which memory is searched, bytes.
const PIECE: u64 = 4 << 20;
/// The kernel's alignment in physical memory and in its map (CONFIG_PHYSICAL_ALIGN is 2 MiB or more).
const ALIGN: u64 = 2 << 20;
/// Longest kernel image, bytes. The other half of the map is for modules.
const IMAGE_BYTES: u64 = 512 << 20;
/// Largest type information, bytes.
const BTF_BYTES: u64 = 64 << 20;
const BANNER: &[u8] = b"Linux version ";
/// A kernel whose clock has not advanced after this many looks does not run. The clock of an idle kernel without ticks
/// advances only at its next timer, which can be a few seconds away.
const CLOCK_TRIES: u32 = 60;
/// Time between two looks at a kernel's clock.
pub const CLOCK_PAUSE: Duration = Duration::from_millis(100);

/// The symbols to search for: those that `introspect` needs, and those that are needed here.
pub const WANTED: [&str; 21] = [
    "_text",
    "linux_banner",
    "phys_base",
    "page_offset_base",
    "jiffies_64",
    "rcu_state",
    "rcu_data",
    "rcu_num_lvls",
    "rcu_num_nodes",
    "__per_cpu_offset",
    "pcpu_hot",
    "__preempt_count",
    "__start_BTF",
    "__stop_BTF",
    "nr_cpu_ids",
    "vmemmap_base",
    "init_top_pgt",
    "slab_caches",
    "krc",
    "modules",
    "clocksource_jiffies",
];

/// A search of a guest's memory.
pub struct Search<'a> {
    /// The guest's memory.
    pub memory: &'a dyn Foreign,
    /// Its size, bytes.
    pub bytes: u64,
    /// The possible layouts of the memory in physical addresses, the likeliest first.
    pub splits: [Split; 2],
    /// Time between two looks at a kernel's clock, normally [`CLOCK_PAUSE`].
    pub pause: Duration,
    /// Whether to give up: asked at each step of the search.
    pub is_over: &'a dyn Fn() -> bool,
}

/// A kernel that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel's release, for example `6.1.0-44-cloud-amd64`.
    pub release: String,
    /// Addresses of the symbols of [`WANTED`] that the kernel has.
    pub symbols: Symbols,
    /// The value of the kernel's variable of this name.
    pub phys_base: u64,
    /// The possible layouts of the memory in physical addresses.
    pub splits: Vec<Split>,
    /// Offset of the kernel's `_text` in the memory, bytes.
    pub text_offset: u64,
    /// Offset of the digits in its own table of symbols, if it was found by that.
    pub table: Option<u64>,
}

impl Search<'_> {
    /// Finds the running kernel by its own tables of symbols, or by the given ones.
    ///
    /// # Errors
    /// There is no kernel, or its clock stands still.
    pub fn running(&self, given: Option<&Symbols>) -> Result<Kernel> {
        let mut stands_still = None;
        let found = self.look(given, &mut |kernel: &Kernel| {
            let runs = self.runs(kernel);
            stands_still = stands_still.take().or_else(|| (!runs).then(|| kernel.release.clone()));
            runs
        });
        match (found, stands_still) {
            (Some(kernel), _) => Ok(kernel),
            (None, Some(release)) if !(self.is_over)() => Err(VmError::Introspect(format!(
                "the guest's kernel {release} stands still: the guest is paused, has died, or is being started; try again \
                 once it runs"
            ))),
            (None, _) => Err(self.absent(given)),
        }
    }

    /// The running kernel, or else all that stand still, and whether they do. If the memory is not live, none runs.
    ///
    /// # Errors
    /// There is no kernel.
    pub fn present(&self, given: Option<&Symbols>, is_live: bool) -> Result<(Vec<Kernel>, bool)> {
        let mut still = Vec::new();
        let found = self.look(given, &mut |kernel: &Kernel| {
            let runs = is_live && self.runs(kernel);
            if !runs && still.len() < MAX_PLACES && !still.contains(kernel) {
                still.push(kernel.clone());
            }
            runs
        });
        match found {
            Some(kernel) => Ok((vec![kernel], false)),
            None if still.is_empty() => Err(self.absent(given)),
            None => Ok((still, true)),
        }
    }

    fn look(&self, given: Option<&Symbols>, is_running: &mut dyn FnMut(&Kernel) -> bool) -> Option<Kernel> {
        match given {
            None => self.by_tables(is_running),
            Some(symbols) => self.by_symbols(symbols, is_running),
        }
    }

    /// Why no kernel was found.
    fn absent(&self, given: Option<&Symbols>) -> VmError {
        let problem = match given {
            _ if (self.is_over)() => {
                "the search for its kernel took too long, or was interrupted: try again, or give --symbols FILE, \
                 which makes it shorter"
            }
            None => {
                "no Linux kernel with its symbols is in the guest's memory: it has not booted yet, is not \
                 Linux on x86-64, hides its memory (SEV, TDX), or was built without CONFIG_KALLSYMS_ALL: then give \
                 --symbols FILE, a copy of the guest's System.map or (as root) /proc/kallsyms"
            }
            Some(_) => {
                "no kernel that these --symbols fit is in the guest's memory: are they of the kernel that \
                 it has booted, and was /proc/kallsyms read as root?"
            }
        };
        VmError::Introspect(problem.into())
    }

    /// Searches the memory for tables of symbols.
    fn by_tables(&self, is_running: &mut dyn FnMut(&Kernel) -> bool) -> Option<Kernel> {
        let digits = memmem::Finder::new(DIGITS);
        // The next piece repeats the end of this one, in case the digits lie across the border.
        let mut piece = vec![0; (PIECE + PAGE_BYTES) as usize];
        let (mut at, mut tried) = (0, 0);
        while at < self.bytes && !(self.is_over)() {
            let length = (PIECE + PAGE_BYTES).min(self.bytes - at) as usize;
            let piece = &mut piece[..length];
            if self.memory.read_touched(at, piece) {
                let places: Vec<usize> = digits.find_iter(piece).take(MAX_PLACES).collect();
                for place in places {
                    tried += 1;
                    if tried > MAX_PLACES_IN_ALL || (self.is_over)() {
                        return None;
                    }
                    let found = self.by_table(at + place as u64);
                    if let Some(kernel) = found.filter(|kernel| is_running(kernel)) {
                        return Some(kernel);
                    }
                }
            }
            at += PIECE;
        }
        None
    }

    /// The kernel whose table of tokens has its digits at this place.
    fn by_table(&self, digits: u64) -> Option<Kernel> {
        let (bytes, at) = self.table(digits)?;
        let symbols = kallsyms::decode(&bytes, at, &WANTED)?;
        let highest = digits / ALIGN * ALIGN;
        let mut texts = (0..=IMAGE_BYTES / ALIGN).map_while(|steps| highest.checked_sub(steps * ALIGN));
        let found =
            texts.find_map(|text| self.at(text, &symbols)).filter(|kernel| kernel.symbols == symbols)?;
        Some(Kernel { table: Some(digits), ..found })
    }

    /// The memory around a table of tokens, and where in it the table's digits are.
    pub fn table(&self, digits: u64) -> Option<(Vec<u8>, usize)> {
        let from = digits.saturating_sub(BEFORE as u64) / PAGE_BYTES * PAGE_BYTES;
        let to = digits.saturating_add(AFTER as u64).min(self.bytes);
        let mut bytes = vec![0; to.checked_sub(from)? as usize];
        self.memory.read_touched(from, &mut bytes).then(|| (bytes, (digits - from) as usize))
    }

    /// Tries all places at which a kernel with these symbols can be.
    fn by_symbols(&self, symbols: &Symbols, is_running: &mut dyn FnMut(&Kernel) -> bool) -> Option<Kernel> {
        let wanted = symbols.iter().filter(|(name, _)| WANTED.contains(&name.as_str()));
        let symbols: Symbols = wanted.map(|(name, address)| (name.clone(), *address)).collect();
        let texts = (0..self.bytes).step_by(ALIGN as usize);
        let texts = texts.take_while(|_| !(self.is_over)());
        texts.filter_map(|text| self.at(text, &symbols)).find(|kernel| is_running(kernel))
    }

    /// The kernel that has its `_text` at this offset, if there is one and its `phys_base` agrees.
    fn at(&self, text: u64, symbols: &Symbols) -> Option<Kernel> {
        let linked = *symbols.get("_text")?;
        let place = |name: &str| {
            let distance = symbols.get(name)?.checked_sub(linked).filter(|bytes| *bytes < IMAGE_BYTES)?;
            text.checked_add(distance)
        };
        let banner = self.banner(place("linux_banner")?)?;
        let phys_base = self.word(place("phys_base")?)?;
        // The place at which the kernel says that it is.
        let virtual_text = |split: &Split| {
            let physical = split.physical(self.bytes, text);
            let address = physical.wrapping_sub(phys_base).wrapping_add(KERNEL_MAP);
            let shift = address.wrapping_sub(linked);
            let in_map = (KERNEL_MAP..KERNEL_MAP + KERNEL_MAP_BYTES).contains(&address);
            (in_map && shift.is_multiple_of(ALIGN)).then_some(shift)
        };
        let shift = self.splits.iter().find_map(virtual_text)?;
        let splits: Vec<Split> =
            self.splits.iter().filter(|split| virtual_text(split) == Some(shift)).copied().collect();
        // Per-CPU symbols are offsets, which KASLR does not move.
        let moved = |(name, address): (&String, &u64)| {
            let moved = if *address >= KERNEL_MAP { address.wrapping_add(shift) } else { *address };
            (name.clone(), moved)
        };
        let symbols = symbols.iter().map(moved).collect();
        Some(Kernel { release: banner, symbols, phys_base, splits, text_offset: text, table: None })
    }

    /// The release in the banner at this offset.
    fn banner(&self, offset: u64) -> Option<String> {
        let mut text = [0; 96];
        // A quick check first, because nearly all places have no banner.
        let (start, _) = text.split_at_mut(BANNER.len());
        if !self.read_near(offset, start) || start != BANNER {
            return None;
        }
        self.read_near(offset, &mut text).then_some(())?;
        let release = text[BANNER.len()..].split(|byte| *byte == b' ').next()?;
        let is_plain = !release.is_empty() && release.iter().all(u8::is_ascii_graphic);
        is_plain.then(|| String::from_utf8_lossy(release).into_owned())
    }

    fn word(&self, offset: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read_near(offset, &mut word).then(|| u64::from_le_bytes(word))
    }

    /// Reads a few bytes without allocating their pages.
    fn read_near(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let from = offset / PAGE_BYTES * PAGE_BYTES;
        let mut pages = [0; 2 * PAGE_BYTES as usize];
        let length = (2 * PAGE_BYTES).min(self.bytes.saturating_sub(from)) as usize;
        let at = (offset - from) as usize;
        let pages = &mut pages[..length];
        let Some(end) = at.checked_add(buffer.len()).filter(|end| *end <= length) else { return false };
        if !self.memory.read_touched(from, pages) {
            return false;
        }
        buffer.copy_from_slice(&pages[at..end]);
        true
    }

    /// Whether the kernel's clock advances.
    fn runs(&self, kernel: &Kernel) -> bool {
        let Some(first) = self.clock(kernel) else { return false };
        (0..CLOCK_TRIES).take_while(|_| !(self.is_over)()).any(|_| {
            std::thread::sleep(self.pause);
            self.clock(kernel).is_some_and(|now| now != first)
        })
    }

    /// `jiffies_64`.
    pub fn clock(&self, kernel: &Kernel) -> Option<u64> {
        self.word(self.offset(kernel, "jiffies_64")?)
    }

    /// How many CPUs the kernel has at most (`nr_cpu_ids`).
    pub fn cpus(&self, kernel: &Kernel) -> Option<usize> {
        Some(self.word(self.offset(kernel, "nr_cpu_ids")?)? as u32 as usize)
    }

    fn offset(&self, kernel: &Kernel, symbol: &str) -> Option<u64> {
        let distance = kernel.symbols.get(symbol)?.checked_sub(*kernel.symbols.get("_text")?)?;
        kernel.text_offset.checked_add(distance)
    }

    /// The kernel's own type information.
    ///
    /// # Errors
    /// The kernel has none, or it is damaged.
    pub fn btf(&self, kernel: &Kernel) -> Result<Btf> {
        let lacks = |why: &str| {
            VmError::Introspect(format!(
                "{why}: give --btf FILE, a copy of the guest's /sys/kernel/btf/vmlinux or of the BTF of its kernel's package"
            ))
        };
        let range = self.offset(kernel, "__start_BTF").zip(self.offset(kernel, "__stop_BTF"));
        let (start, end) =
            range.ok_or_else(|| lacks("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)"))?;
        let length =
            end.checked_sub(start).filter(|bytes| (1..=BTF_BYTES).contains(bytes) && end <= self.bytes);
        let length = length.ok_or_else(|| lacks("the kernel's type information has no plausible size"))?;
        let mut bytes = vec![0; length as usize];
        if !self.memory.read(start, &mut bytes) {
            return Err(lacks("the kernel's type information cannot be read"));
        }
        Ok(Btf::parse(&bytes)?)
    }
}

/// The most places that are tried in a piece. A kernel has one.
const MAX_PLACES: usize = 16;
/// The same, of a whole memory: copies of kernels have some too, as page cache and earlier boots.
const MAX_PLACES_IN_ALL: usize = 64;

#[cfg(test)]
mod tests;
