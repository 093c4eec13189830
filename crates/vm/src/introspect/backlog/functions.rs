//! Names of functions in a guest's modules, from each module's own table of symbols.
//!
//! Source: include/linux/module.h (`struct module`, `struct mod_kallsyms`) as the kernel's types have it, and elf(5)
//! (`Elf64_Sym`). Invariant: at most [`MODULES`] modules and [`SYMBOLS`] of their symbols are looked at.

use std::collections::BTreeMap;

use super::memory::Memory;
use super::places::Places;
use crate::image::btf::Btf;
use crate::introspect::Symbols;

/// A function's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// The module that it is of; `None` for the kernel itself.
    pub module: Option<String>,
}

/// Most modules; a large machine has some hundred.
const MODULES: usize = 1024;
/// Most symbols that are looked at, over all modules; one has up to some 10,000.
const SYMBOLS: u64 = 1 << 18;
/// Longest text of a module, bytes.
const TEXT_BYTES: u32 = 64 << 20;
/// Longest name that is read, bytes.
const NAME_BYTES: u64 = 128;
/// `Elf64_Sym`: size, and in it the value's place; the name's place in the strings is its first word's half.
const SYMBOL_BYTES: u64 = 24;
const VALUE: u64 = 8;

/// Where things lie in `struct module`.
struct Layout {
    list: u64,
    name: u64,
    text: u64,
    text_bytes: u64,
    tables: u64,
    symbols: u64,
    count: u64,
    strings: u64,
}

impl Layout {
    fn of(places: &Places) -> Option<Layout> {
        let at = |structure, path| places.offset(structure, path).ok();
        // Since 6.4 a module's text is the first of several pieces of memory.
        let piece = |new, old| at("module", new).or_else(|| at("module", old));
        Some(Layout {
            list: at("module", "list")?,
            name: at("module", "name")?,
            text: piece("mem[0].base", "core_layout.base")?,
            text_bytes: piece("mem[0].size", "core_layout.size")?,
            tables: at("module", "kallsyms")?,
            symbols: at("mod_kallsyms", "symtab")?,
            count: at("mod_kallsyms", "num_symtab")?,
            strings: at("mod_kallsyms", "strtab")?,
        })
    }
}

/// Those of these functions that are of modules.
pub fn of_modules(
    memory: &Memory,
    btf: &Btf,
    symbols: &Symbols,
    functions: &[u64],
) -> BTreeMap<u64, Function> {
    let places = Places { btf, symbols };
    let mut found = BTreeMap::new();
    let head = places.symbol("modules").ok();
    let Some((layout, head)) = Layout::of(&places).zip(head) else { return found };
    let (mut left, mut link) = (SYMBOLS, memory.word(head).unwrap_or(head));
    for _ in 0..MODULES {
        if link == head || functions.is_empty() {
            break;
        }
        let module = link.wrapping_sub(layout.list);
        let Some(next) = memory.word(link) else { break };
        let _ = of_module(memory, &layout, module, functions, &mut left, &mut found);
        link = next;
    }
    found
}

/// Adds those functions that are of this module. `None` if a part of it is nowhere.
fn of_module(
    memory: &Memory,
    layout: &Layout,
    module: u64,
    functions: &[u64],
    left: &mut u64,
    found: &mut BTreeMap<u64, Function>,
) -> Option<()> {
    let word = |base: u64, offset: u64| memory.word(base.checked_add(offset)?);
    let text = word(module, layout.text)?;
    let bytes = memory.half(module.checked_add(layout.text_bytes)?)?.min(TEXT_BYTES);
    let end = text.checked_add(bytes.into())?;
    let mut wanted: Vec<u64> =
        functions.iter().copied().filter(|address| (text..end).contains(address)).collect();
    if wanted.is_empty() {
        return Some(());
    }
    let name = memory.text(module.checked_add(layout.name)?, NAME_BYTES)?;
    let tables = word(module, layout.tables)?;
    let (symbols, strings) = (word(tables, layout.symbols)?, word(tables, layout.strings)?);
    let count = u64::from(memory.half(tables.checked_add(layout.count)?)?);
    for number in 0..count {
        *left = left.checked_sub(1)?;
        let symbol = symbols.checked_add(number * SYMBOL_BYTES)?;
        let value = word(symbol, VALUE)?;
        let Some(at) = wanted.iter().position(|address| *address == value) else { continue };
        let string = strings.checked_add(u64::from(memory.half(symbol)?))?;
        let function = Function { name: memory.text(string, NAME_BYTES)?, module: Some(name.clone()) };
        if function.name.is_empty() {
            continue;
        }
        found.insert(wanted.swap_remove(at), function);
        if wanted.is_empty() {
            break;
        }
    }
    Some(())
}
