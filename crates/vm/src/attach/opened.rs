//! A guest whose memory is looked into once: it runs, is paused, or is a file.
//!
//! A dump holds no process and no clock that advances. Its kernel is found as that of a guest is, and if several kernels lie
//! in it, such as one that an earlier boot has left behind, the first counts in which everything fits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use reprieve_linux::proc::ProcRoot;

use super::{Dump, Given, Kernel, LONGEST, LONGEST_PER_GIB, ProcessMemory, Qemu, Search};
use super::{ended, is_there, kallsyms, process, reader, symbols, types};
use crate::image::btf::Btf;
use crate::introspect::backlog::{self, Backlog, Function, Memory};
use crate::introspect::{Foreign, Reader, Split, Symbols};
use crate::{Result, VmError};

/// Time between two looks at a kernel's clock. A kernel whose clock does not advance for some seconds counts as standing still;
/// nothing depends on that but a remark, and the choice between several kernels.
const CLOCK_PAUSE: Duration = Duration::from_millis(35);
/// Most CPUs of a dump.
const CPUS: usize = 64;

/// A guest's memory in which the kernel was found.
#[derive(Debug)]
pub struct Opened {
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Reads RCU's state. It does not read zones, slabs or CPU times.
    pub reader: Reader,
    /// Whether the clock of the guest's kernel stands still: the guest is paused, or has died.
    pub stands_still: bool,
    /// Other kernels that stand still in the same memory.
    pub other_kernels: usize,
    btf: Btf,
    source: Source,
    given: Given,
    given_symbols: Option<Symbols>,
}

/// Where the memory is.
#[derive(Debug)]
struct Source {
    memory: Box<dyn Foreign>,
    bytes: u64,
    splits: [Split; 2],
    /// CPUs, if they are known without the kernel.
    cpus: Option<usize>,
}

/// Opens a guest's memory.
///
/// # Errors
/// As [`super::attach`], but the guest need not run.
pub fn guest(root: &ProcRoot, qemu: &Qemu, given: &Given, is_raised: &dyn Fn() -> bool) -> Result<Opened> {
    let start = process::guest_memory(root, qemu)?;
    let bytes = qemu.memory_bytes;
    let open =
        || -> Result<Box<dyn Foreign>> { Ok(Box::new(ProcessMemory::open(root, qemu.pid, start, bytes)?)) };
    let source = Source { memory: open()?, bytes, splits: qemu.splits, cpus: Some(qemu.vcpus.len()) };
    // The PID may have been reused before the memory was opened.
    if !is_there(root, qemu) {
        return Err(ended(qemu));
    }
    Opened::find(source, given, true, &open, is_raised)
}

/// Opens a file with a guest's memory.
///
/// # Errors
/// It is no memory of a guest; no kernel is in it; its type information is missing or another kernel's.
pub fn dump(path: &Path, given: &Given, is_raised: &dyn Fn() -> bool) -> Result<Opened> {
    let dump = Dump::open(path)?;
    let open = || -> Result<Box<dyn Foreign>> { Ok(Box::new(dump.duplicate()?)) };
    let source = Source { memory: open()?, bytes: dump.bytes, splits: dump.splits, cpus: None };
    Opened::find(source, given, false, &open, is_raised)
}

impl Opened {
    fn find(
        source: Source,
        given: &Given,
        is_live: bool,
        open: &dyn Fn() -> Result<Box<dyn Foreign>>,
        is_raised: &dyn Fn() -> bool,
    ) -> Result<Opened> {
        let gib = u32::try_from(source.bytes >> 30).unwrap_or(u32::MAX);
        let deadline = Instant::now() + LONGEST + LONGEST_PER_GIB.saturating_mul(gib);
        let is_over = || is_raised() || Instant::now() >= deadline;
        let given_symbols = given.symbols.as_deref().map(symbols::read).transpose()?;
        let search = source.search(&is_over);
        let (kernels, stands_still) = search.present(given_symbols.as_ref(), is_live)?;
        let other_kernels = kernels.len().saturating_sub(1);
        let mut first = None;
        for kernel in kernels {
            let fits = types(&search, &kernel, given).and_then(|btf| {
                let cpus = source.cpus.or_else(|| search.cpus(&kernel)).filter(|cpus| *cpus > 0);
                let cpus = cpus.ok_or_else(|| {
                    VmError::Introspect("the kernel does not say how many CPUs it has (nr_cpu_ids)".into())
                })?;
                let (reader, _) = reader(open, &kernel, &btf, source.bytes, cpus.min(CPUS))?;
                Ok((reader, btf))
            });
            match fits {
                Ok((reader, btf)) => {
                    let given = given.clone();
                    return Ok(Opened {
                        kernel,
                        reader,
                        stands_still,
                        other_kernels,
                        btf,
                        source,
                        given,
                        given_symbols,
                    });
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| VmError::Introspect("no kernel was found".into())))
    }

    /// The objects that wait for a grace period. It ends soon once `is_over`.
    ///
    /// # Errors
    /// RCU's lists are not where the kernel's types and symbols say; the guest has ended.
    pub fn backlog(&self, is_over: &dyn Fn() -> bool) -> Result<Backlog> {
        Backlog::of(&self.reader, &self.btf, &self.kernel.symbols, is_over)
    }

    /// The names of functions of the guest's kernel and its modules. Those without a name are left out.
    pub fn functions(&self, addresses: &[u64]) -> BTreeMap<u64, Function> {
        let own = match (&self.given.symbols, &self.given_symbols) {
            (Some(path), Some(given)) => {
                let of = |symbols: &Symbols| symbols.get("_text").copied().unwrap_or(0);
                let shift = of(&self.kernel.symbols).wrapping_sub(of(given));
                symbols::functions(path, shift, addresses).unwrap_or_default()
            }
            _ => self.of_kernel(addresses).unwrap_or_default(),
        };
        let named = |(address, name)| (address, Function { name, module: None });
        let mut functions: BTreeMap<u64, Function> = own.into_iter().map(named).collect();
        let memory = Memory::new(self.reader.ram(), &self.kernel.symbols);
        functions.extend(backlog::of_modules(&memory, &self.btf, &self.kernel.symbols, addresses));
        functions
    }

    fn of_kernel(&self, addresses: &[u64]) -> Option<BTreeMap<u64, String>> {
        let (bytes, digits) = self.source.search(&|| false).table(self.kernel.table?)?;
        kallsyms::names(&bytes, digits, addresses)
    }
}

impl Source {
    fn search<'a>(&'a self, is_over: &'a dyn Fn() -> bool) -> Search<'a> {
        let Source { memory, bytes, splits, .. } = self;
        Search { memory: memory.as_ref(), bytes: *bytes, splits: *splits, pause: CLOCK_PAUSE, is_over }
    }
}
