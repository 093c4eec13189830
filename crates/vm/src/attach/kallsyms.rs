//! The kernel's table of its own symbols, in the bytes of its memory.
//!
//! `scripts/kallsyms` writes it into every kernel with CONFIG_KALLSYMS. Names are strings of bytes; each byte stands
//! for one of 256 *tokens*, and a token is a text. The tables have no header and no fixed place. They are found through
//! the table of tokens: digits always stand for themselves in it, so the bytes of its ten digits, with their
//! terminating zeros, are known. The other tables are before and after it, each at a multiple of 8 bytes from the start
//! of the kernel:
//!
//! | kernel | order |
//! |---|---|
//! | before 6.2 | offsets, relative_base, num_syms, names, markers, **token_table**, token_index |
//! | 6.2, 6.3, Debian's 6.1 | the same, with seqs_of_names of 3 bytes a symbol after markers |
//! | since 6.4 | num_syms, names, markers, **token_table**, token_index, offsets, relative_base |
//!
//! Source: the tables of Linux 6.1 and 6.12, looked at in memory. Invariant: any bytes give an answer or none, in bounded time: every table is looked for
//! within limits, with a budget of steps, and the addresses must ascend.

use std::collections::{BTreeMap, BTreeSet};

use crate::introspect::{KERNEL_MAP, KERNEL_MAP_BYTES, Symbols};

/// Tokens `0` to `9`, with their terminating zeros. No other place in a kernel has these bytes.
pub const DIGITS: &[u8; 20] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";
/// The number of the token `0`.
const ZERO: usize = b'0' as usize;
const TOKENS: usize = 256;
/// Most symbols; Debian's kernels have some 200,000.
const SYMBOLS_MAX: usize = 1 << 20;
/// Each marker says where the names of the next group of this many symbols begin.
const MARKED: usize = 256;
/// Longest name as it is stored, bytes.
const NAME_BYTES_MAX: usize = 512;
/// Most steps that one attempt takes; a real kernel's tables take some millions.
const STEPS_MAX: usize = 32 << 20;
/// All tables lie within this much before and after the tokens, bytes.
pub const BEFORE: usize = 24 << 20;
/// No table ends farther after the tokens than this, bytes.
pub const AFTER: usize = 8 << 20;

/// The symbols with these names and their addresses. If a name occurs several times, the first one counts.
///
/// `bytes` is a piece of a kernel's memory that begins at a multiple of 8 bytes, and `digits` is the offset of
/// [`DIGITS`] in it. `None` if there are no tables.
pub fn decode(bytes: &[u8], digits: usize, wanted: &[&str]) -> Option<Symbols> {
    let mut budget = Budget(STEPS_MAX);
    let tokens = Tokens::find(bytes, digits)?;
    let (count, names) = place_of_names(bytes, tokens.begin, &mut budget)?;
    let addresses = Addresses::find(bytes, &tokens, names, count)?;
    let mut symbols = Symbols::new();
    let (mut at, mut name) = (names, Vec::new());
    for index in 0..count {
        let (codes, next) = entry(bytes, at)?;
        at = next;
        name.clear();
        budget.spend(codes.len())?;
        for code in codes {
            name.extend_from_slice(tokens.text(bytes, *code));
            if name.len() > NAME_BYTES_MAX {
                break;
            }
        }
        // The first character is the symbol's type.
        let Some(name) = name.get(1..).and_then(|name| std::str::from_utf8(name).ok()) else { continue };
        if wanted.contains(&name) && !symbols.contains_key(name) {
            symbols.insert(name.to_string(), addresses.get(bytes, index)?);
        }
    }
    Some(symbols)
}

/// The names of the functions at these addresses, each with the first name that it has; those without a symbol of their own are
/// left out. `bytes` and `digits` are as for [`decode`].
pub fn names(bytes: &[u8], digits: usize, functions: &[u64]) -> Option<BTreeMap<u64, String>> {
    let mut budget = Budget(STEPS_MAX);
    let tokens = Tokens::find(bytes, digits)?;
    let (count, names) = place_of_names(bytes, tokens.begin, &mut budget)?;
    let addresses = Addresses::find(bytes, &tokens, names, count)?;
    let wanted: BTreeSet<u64> = functions.iter().copied().collect();
    let (mut at, mut found) = (names, BTreeMap::new());
    for index in 0..count {
        let (codes, next) = entry(bytes, at)?;
        at = next;
        budget.spend(1)?;
        let address = addresses.get(bytes, index)?;
        if !wanted.contains(&address) || found.contains_key(&address) {
            continue;
        }
        budget.spend(codes.len())?;
        let name: Vec<u8> = codes.iter().flat_map(|code| tokens.text(bytes, *code)).copied().collect();
        // The first character is the symbol's type. No name of a function has another character than these.
        let name = name.get(1..).unwrap_or_default();
        if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic) {
            found.insert(address, String::from_utf8_lossy(name).into_owned());
        }
    }
    Some(found)
}

/// Steps that may still be taken: tables can be made so that each place looks like the beginning of one.
struct Budget(usize);

impl Budget {
    /// `None` if none are left.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }
}

/// The table of tokens, and behind it where each begins.
struct Tokens {
    begin: usize,
    /// Where each token begins, counted from `begin`.
    starts: [usize; TOKENS],
    /// Where the index ends.
    end: usize,
}

impl Tokens {
    fn find(bytes: &[u8], digits: usize) -> Option<Tokens> {
        let mut at = digits;
        for _ in ZERO..TOKENS {
            at = text_end(bytes, at)? + 1;
        }
        let index = at.next_multiple_of(8);
        let start = |token: usize| -> Option<usize> {
            Some(u16::from_le_bytes(array(bytes, index + 2 * token)?).into())
        };
        let begin = digits.checked_sub(start(ZERO)?)?;
        let mut starts = [0; TOKENS];
        let mut expected = 0;
        for (token, place) in starts.iter_mut().enumerate() {
            *place = start(token)?;
            if *place != expected {
                return None;
            }
            expected = text_end(bytes, begin + expected)? + 1 - begin;
        }
        begin.is_multiple_of(8).then_some(Tokens { begin, starts, end: index + 2 * TOKENS })
    }

    fn text<'a>(&self, bytes: &'a [u8], code: u8) -> &'a [u8] {
        let from = self.begin + self.starts[usize::from(code)];
        text_end(bytes, from).map_or(&[], |to| &bytes[from..to])
    }
}

/// Where the text that begins here ends.
fn text_end(bytes: &[u8], from: usize) -> Option<usize> {
    let text = bytes.get(from..)?;
    Some(from + text.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0)?)
}

/// How many symbols there are, and where their names begin. Before the tokens end the markers, or the numbers of symbols in
/// the order of their names, 3 bytes each, and before these the markers.
fn place_of_names(bytes: &[u8], tokens: usize, budget: &mut Budget) -> Option<(usize, usize)> {
    let lowest = tokens.saturating_sub(3 * SYMBOLS_MAX);
    let mut ends = (0..).map_while(|steps| tokens.checked_sub(8 * steps).filter(|end| *end >= lowest));
    ends.find_map(|end| {
        // Without a budget, the rest of the places ends at once.
        let (count, names) = names_before(bytes, end, budget)?;
        (end == tokens || end + (3 * count).next_multiple_of(8) == tokens).then_some((count, names))
    })
}

/// The same, if the markers end here.
fn names_before(bytes: &[u8], end: usize, budget: &mut Budget) -> Option<(usize, usize)> {
    budget.spend(1)?;
    let number = |at: usize| -> Option<usize> { Some(u32::from_le_bytes(array(bytes, at)?) as usize) };
    let padded = end.checked_sub(4).filter(|last| number(*last) == Some(0));
    let end = padded.unwrap_or(end);
    let mut first = end.checked_sub(4)?;
    let last = number(first)?;
    let mut value = last;
    for _ in 0..SYMBOLS_MAX / MARKED {
        if value == 0 {
            break;
        }
        budget.spend(1)?;
        first = first.checked_sub(4)?;
        let before = number(first)?;
        if before >= value || value - before > MARKED * NAME_BYTES_MAX {
            return None;
        }
        value = before;
    }
    let markers = (end - first) / 4;
    if value != 0 || markers < 2 || !first.is_multiple_of(8) {
        return None;
    }
    // Fewer than 257 names follow the last marker. The number of symbols is stored before the first name.
    let latest = (first.checked_sub(last)?) & !7;
    let earliest = latest.saturating_sub(MARKED * NAME_BYTES_MAX).max(8);
    let second = number(first + 4)?;
    let mut places =
        (0..).map_while(|steps| latest.checked_sub(8 * steps).filter(|names| *names >= earliest));
    places.find_map(|names| {
        budget.spend(1)?;
        let count = number(names - 8)?;
        let fits = count.div_ceil(MARKED) == markers && number(names - 4)? == 0;
        (fits && block_bytes(bytes, names, budget)? == second).then_some((count, names))
    })
}

/// Bytes of the names of 256 symbols.
fn block_bytes(bytes: &[u8], names: usize, budget: &mut Budget) -> Option<usize> {
    budget.spend(MARKED)?;
    let end = (0..MARKED).try_fold(names, |at, _| Some(entry(bytes, at)?.1))?;
    Some(end - names)
}

/// The codes of a name, and where the next name begins. The length of a name takes one byte. Since 6.1 it takes two if
/// bit 7 of the first is set.
fn entry(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let first = usize::from(*bytes.get(at)?);
    let (length, from) = match first {
        0 => return None,
        0x80.. => (first & 0x7f | usize::from(*bytes.get(at + 1)?) << 7, at + 2),
        _ => (first, at + 1),
    };
    let codes = bytes.get(from..from.checked_add(length)?).filter(|codes| codes.len() <= NAME_BYTES_MAX)?;
    Some((codes, from + length))
}

/// The symbols' addresses, 4 bytes each.
struct Addresses {
    /// Where the table begins.
    at: usize,
    /// The address that most symbols are relative to.
    base: u64,
    /// If set (CONFIG_KALLSYMS_ABSOLUTE_PERCPU, until 6.15), numbers from 0 on are per-CPU offsets, and a number below
    /// 0 stands for `base - 1 - number`. If not, all numbers are added to `base`.
    absolute_per_cpu: bool,
}

impl Addresses {
    fn find(bytes: &[u8], tokens: &Tokens, names: usize, count: usize) -> Option<Addresses> {
        let table_bytes = (4 * count).next_multiple_of(8);
        let after = tokens.end.next_multiple_of(8);
        let before = names.checked_sub(16).and_then(|base| Some((base.checked_sub(table_bytes)?, base)));
        let places = [Some((after, after + table_bytes)), before];
        places.into_iter().flatten().find_map(|(at, base)| {
            let base = u64::from_le_bytes(array(bytes, base)?);
            if !(KERNEL_MAP..KERNEL_MAP + KERNEL_MAP_BYTES).contains(&base) {
                return None;
            }
            [true, false].into_iter().find_map(|absolute_per_cpu| {
                let found = Addresses { at, base, absolute_per_cpu };
                found.ascend(bytes, count).then_some(found)
            })
        })
    }

    /// Whether the addresses ascend, as in every kernel, which looks symbols up by their addresses. Those of its image are
    /// the last: if they are not there, the numbers were read in the wrong way.
    fn ascend(&self, bytes: &[u8], count: usize) -> bool {
        let mut before = 0;
        let is_sorted = (0..count).all(|index| {
            let Some(address) = self.get(bytes, index) else { return false };
            let follows = address >= before;
            before = address;
            follows
        });
        is_sorted && before >= KERNEL_MAP
    }

    fn get(&self, bytes: &[u8], index: usize) -> Option<u64> {
        let number = i32::from_le_bytes(array(bytes, self.at + 4 * index)?);
        match self.absolute_per_cpu {
            true if number >= 0 => Some(number as u64),
            true => Some(self.base.wrapping_sub(1).wrapping_sub(i64::from(number) as u64)),
            false => Some(self.base.wrapping_add(u64::from(number as u32))),
        }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
pub(super) mod tests;
