//! Attaches to the QEMU guests of this host without their help, and reads RCU's state from their memory.
//!
//! `process` finds QEMU's processes and threads, and `memory` reads the guest's memory. `kernel` finds the running
//! kernel in that memory, with its type information and its symbols (through `kallsyms`, or from a file through
//! `symbols`). `opened` does the same for a look at a guest that may be paused, or for a `dump`. `introspect` uses these to find and read RCU's state. Nothing is written to the guest, and QEMU is
//! neither stopped nor asked.
//!
//! Invariant: whatever the guest's memory contains, attaching ends with a reader or with an error.

mod dump;
mod kallsyms;
mod kernel;
mod memory;
mod opened;
mod process;
mod symbols;
mod watched;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reprieve_linux::proc::ProcRoot;

pub use dump::Dump;
pub use kernel::{CLOCK_PAUSE, Kernel, Search, WANTED};
pub use memory::ProcessMemory;
pub use opened::{Opened, dump, guest};
pub use process::{MAX_VCPUS, Qemu, all, of, vcpu};
pub use watched::{Ended, Seen, Watched};

use crate::image::btf::Btf;
use crate::introspect::{Foreign, Layout, Ram, Reader, Word};
use crate::{Result, VmError};

/// Files that the user can give, to be used instead of the tables in the guest's memory.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// A file with the type information of the guest's kernel.
    pub btf: Option<PathBuf>,
    /// A file with the symbols of the guest's kernel.
    pub symbols: Option<PathBuf>,
}

/// A guest whose RCU state can be read.
#[derive(Debug)]
pub struct Attached {
    /// The guest's QEMU process.
    pub qemu: Qemu,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Reads RCU's state. It does not read zones, slabs or CPU times.
    pub reader: Reader,
    /// The clock of the guest's kernel. If it stands still while vCPUs run, this is no longer the running kernel.
    pub clock: Word,
}

/// The longest search, and what each GiB of memory adds to it: it is read at some GiB/s.
const LONGEST: Duration = Duration::from_secs(10);
const LONGEST_PER_GIB: Duration = Duration::from_millis(500);

/// Attaches to a guest. This can take seconds: the kernel is looked for in the whole memory. It ends soon once `is_raised`.
///
/// # Errors
/// The memory cannot be read; the search takes too long; no kernel runs in it; its type information is missing or another kernel's.
pub fn attach(root: &ProcRoot, qemu: Qemu, given: &Given, is_raised: &dyn Fn() -> bool) -> Result<Attached> {
    let process = qemu.clone();
    found(root, qemu, given, is_raised).map_err(|error| {
        // A process that ends loses its memory first.
        std::thread::sleep(process::MOMENT);
        if is_there(root, &process) { error } else { ended(&process) }
    })
}

fn found(root: &ProcRoot, qemu: Qemu, given: &Given, is_raised: &dyn Fn() -> bool) -> Result<Attached> {
    let start = process::guest_memory(root, &qemu)?;
    let bytes = qemu.memory_bytes;
    let open =
        || -> Result<Box<dyn Foreign>> { Ok(Box::new(ProcessMemory::open(root, qemu.pid, start, bytes)?)) };
    let memory = open()?;
    // The PID may have been reused before the memory was opened.
    if !is_there(root, &qemu) {
        return Err(ended(&qemu));
    }
    let gib = u32::try_from(bytes >> 30).unwrap_or(u32::MAX);
    let deadline = Instant::now() + LONGEST + LONGEST_PER_GIB.saturating_mul(gib);
    let is_over = || is_raised() || Instant::now() >= deadline;
    let search =
        Search { memory: memory.as_ref(), bytes, splits: qemu.splits, pause: CLOCK_PAUSE, is_over: &is_over };
    let symbols = given.symbols.as_deref().map(symbols::read).transpose()?;
    let kernel = search.running(symbols.as_ref())?;
    let btf = types(&search, &kernel, given)?;
    let (reader, clock) = reader(&open, &kernel, &btf, bytes, qemu.vcpus.len())?;
    Ok(Attached { qemu, kernel, reader, clock })
}

/// The type information of a kernel: the given one, or its own.
fn types(search: &Search, kernel: &Kernel, given: &Given) -> Result<Btf> {
    let Some(path) = &given.btf else { return search.btf(kernel) };
    let bytes = std::fs::read(path).map_err(VmError::io(format!("reading {}", path.display())))?;
    Btf::parse(&bytes).map_err(|error| VmError::Introspect(format!("--btf {}: {error}", path.display())))
}

/// Whether this process still exists, and its PID was not reused.
pub fn is_there(root: &ProcRoot, qemu: &Qemu) -> bool {
    root.start_time_ticks(qemu.pid).is_ok_and(|ticks| ticks == qemu.start_ticks)
        && !root.is_zombie(qemu.pid).unwrap_or(true)
}

fn ended(qemu: &Qemu) -> VmError {
    VmError::Introspect(format!("process {} has ended", qemu.pid))
}

/// A reader of RCU's state, for the first possible memory layout in which everything fits.
fn reader(
    open: &dyn Fn() -> Result<Box<dyn Foreign>>,
    kernel: &Kernel,
    btf: &Btf,
    bytes: u64,
    cpus: usize,
) -> Result<(Reader, Word)> {
    let mut first = None;
    for split in &kernel.splits {
        let mut ram = Ram::foreign(open()?, bytes, *split, kernel.phys_base);
        let found = Layout::find_rcu(&mut ram, btf, &kernel.symbols, &kernel.release, cpus, bytes)
            .and_then(|layout| check_cpus(&ram, kernel, btf, cpus).map(|()| layout));
        match found {
            Ok(layout) if !ram.is_lost() => {
                let clock = ram.word(kernel.symbols.get("jiffies_64").copied().unwrap_or(0))?;
                return Ok((Reader::new(ram, layout), clock));
            }
            Ok(_) => first = first.or(Some(VmError::Introspect("its process has ended".into()))),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(match first {
        Some(error @ (VmError::Introspect(_) | VmError::Types(_))) => VmError::Introspect(format!(
            "kernel {} was found, but not its RCU state: {error}; if you have given --btf or --symbols, are they of this \
             kernel?",
            kernel.release
        )),
        Some(other) => other,
        None => VmError::Introspect("the kernel lies outside the guest's memory".into()),
    })
}

/// Checks that each CPU's RCU data holds the CPU's number. With a wrong layout or a wrong address it would not.
fn check_cpus(ram: &Ram, kernel: &Kernel, btf: &Btf, cpus: usize) -> Result<()> {
    let number = btf.offset("rcu_data", "cpu")?.offset_bytes as u64;
    let symbol = |name: &str| kernel.symbols.get(name).copied().unwrap_or(0);
    for cpu in 0..cpus as u64 {
        let base = ram.read(symbol("__per_cpu_offset").wrapping_add(8 * cpu))?;
        let address = base.wrapping_add(symbol("rcu_data")).wrapping_add(number);
        let said = ram.read_half(address)?;
        if u64::from(said) != cpu {
            return Err(VmError::Introspect(format!(
                "the RCU data of CPU {cpu} says that it is CPU {said}'s; is this vCPU online in the guest?"
            )));
        }
    }
    Ok(())
}
