//! Finds the QEMU processes of this host, their names, their vCPU threads, and the place of their guest's memory.
//!
//! Everything is read from `/proc`: QEMU's command line, its threads' names (`debug-threads=on`, which libvirt sets),
//! its mappings and its cgroup. QEMU itself is not asked, so a hanging QEMU does no harm.
//!
//! Source: proc(5), QEMU's invocation.

use std::time::Duration;

use reprieve_linux::proc::ProcRoot;

use crate::introspect::Split;
use crate::{Result, VmError};

/// Most vCPUs of a guest.
pub const MAX_VCPUS: usize = 64;
/// QEMU's memory without `-m`, bytes.
const DEFAULT_BYTES: u64 = 128 << 20;

/// Where QEMU puts a guest's memory.
const ALIGNED_BYTES: u64 = 2 << 20;
/// How long the threads of a process take to begin or to end.
pub(super) const MOMENT: Duration = Duration::from_millis(100);

/// A QEMU process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// The process's PID.
    pub pid: i32,
    /// When the process started, in clock ticks since boot. Together with the PID this identifies it uniquely.
    pub start_ticks: u64,
    /// The guest's name according to `-name`, else the PID.
    pub name: String,
    /// The threads of the vCPUs, in the order of the vCPUs.
    pub vcpus: Vec<i32>,
    /// The last part of the cgroup's path, for example `machine-qemu\x2d1\x2dweb.scope` under libvirt.
    pub cgroup: String,
    /// Paths of QEMU's QMP sockets.
    pub monitors: Vec<String>,
    /// Memory that the guest started with, bytes.
    pub memory_bytes: u64,
    /// The possible layouts of the memory in physical addresses. They depend on the machine type; that of the command
    /// line comes first.
    pub splits: [Split; 2],
}

/// The number of the vCPU that a thread runs, from QEMU's name for the thread: `CPU 3/KVM`.
pub fn vcpu(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

/// All QEMU processes with vCPU threads that this user can see.
///
/// # Errors
/// `/proc` cannot be read.
pub fn all(root: &ProcRoot) -> Result<Vec<Qemu>> {
    let pids = root.process_ids()?.into_iter();
    // A process that ends meanwhile is left out.
    Ok(pids.filter(|pid| is_qemu(root, *pid)).filter_map(|pid| of(root, pid).ok()).collect())
}

/// Whether a process is QEMU, by the program's name: `qemu-system-x86_64`, `qemu-kvm`.
fn is_qemu(root: &ProcRoot, pid: i32) -> bool {
    let program = command_line(root, pid).ok().and_then(|words| words.into_iter().next());
    program.is_some_and(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("qemu-")))
}

/// The QEMU process with this PID.
///
/// # Errors
/// There is no such process, or no thread of it has the name of a vCPU.
pub fn of(root: &ProcRoot, pid: i32) -> Result<Qemu> {
    let start_ticks = root.start_time_ticks(pid)?;
    let words = command_line(root, pid)?;
    let options = Options(&words);
    let machine = options.all("-machine").chain(options.all("-M")).collect::<Vec<_>>().join(",");
    let is_q35 = machine.contains("q35");
    let mut splits = [Split::PC, Split::Q35];
    splits.rotate_left(usize::from(is_q35));
    let name = options.all("-name").next().map(guest_name).unwrap_or_else(|| format!("pid-{pid}"));
    Ok(Qemu {
        pid,
        start_ticks,
        name,
        vcpus: vcpus(root, pid).or_else(|_| {
            // Of a process that begins or ends, some threads are not there. A moment later that is over.
            std::thread::sleep(MOMENT);
            if root.is_zombie(pid)? {
                return Err(VmError::Introspect(format!("process {pid} has ended")));
            }
            vcpus(root, pid)
        })?,
        cgroup: cgroup(root, pid),
        monitors: monitors(&options),
        memory_bytes: options.all("-m").next().and_then(memory_bytes).unwrap_or(DEFAULT_BYTES),
        splits,
    })
}

fn command_line(root: &ProcRoot, pid: i32) -> Result<Vec<String>> {
    let text = root.read_task(&format!("{pid}/cmdline"))?;
    Ok(text.split_terminator('\0').map(String::from).collect())
}

/// The threads of the vCPUs, in the order of the vCPUs' numbers, which begin with 0 and have no gap.
fn vcpus(root: &ProcRoot, pid: i32) -> Result<Vec<i32>> {
    let threads = root.thread_ids(pid)?.into_iter();
    let named =
        |tid: i32| Some((vcpu(root.read_task(&format!("{pid}/task/{tid}/comm")).ok()?.trim_end())?, tid));
    let mut vcpus: Vec<(u32, i32)> = threads.filter_map(named).collect();
    vcpus.sort_unstable();
    let refused = |problem: &str| {
        VmError::Introspect(format!(
            "process {pid} {problem}; QEMU names the threads of its vCPUs \"CPU 0/KVM\" and so on with -name debug-threads=on"
        ))
    };
    match vcpus.len() {
        0 => Err(refused("has no thread of a vCPU")),
        count if count > MAX_VCPUS => Err(refused(&format!("has {count} vCPUs, more than {MAX_VCPUS}"))),
        _ if !(0..).zip(&vcpus).all(|(expected, (number, _))| expected == *number) => {
            Err(refused("has threads of vCPUs whose numbers have gaps"))
        }
        _ => Ok(vcpus.into_iter().map(|(_, tid)| tid).collect()),
    }
}

/// The last part of the cgroup's path, without libvirt's divisions of a VM (`emulator`, `libvirt`).
fn cgroup(root: &ProcRoot, pid: i32) -> String {
    let text = root.read_task(&format!("{pid}/cgroup")).unwrap_or_default();
    let paths = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers.is_empty() || controllers.split(',').any(|name| name == "cpu")).then_some(path)
    });
    let longest = paths.max_by_key(|path| path.len()).unwrap_or("/");
    let mut parts = longest.split('/').filter(|part| !matches!(*part, "" | "emulator" | "libvirt"));
    parts.next_back().unwrap_or("/").to_string()
}

/// QEMU's options and their values.
struct Options<'a>(&'a [String]);

impl<'a> Options<'a> {
    /// The values of this option. It can also begin with two dashes.
    fn all(&self, option: &str) -> impl Iterator<Item = &'a str> {
        let pairs =
            self.0.windows(2).filter(move |pair| pair[0] == option || pair[0] == format!("-{option}"));
        pairs.map(|pair| pair[1].as_str())
    }
}

/// The guest's name in a value such as `guest=web,debug-threads=on` or `web`.
fn guest_name(value: &str) -> String {
    let mut parts = value.split(',');
    let first = parts.next().unwrap_or_default();
    let named = std::iter::once(first).chain(parts).find_map(|part| part.strip_prefix("guest="));
    named.unwrap_or(first).to_string()
}

/// The size in a value such as `1024`, `size=1048576k,slots=16` or `4G`. Without a unit it is in MiB.
fn memory_bytes(value: &str) -> Option<u64> {
    let first = value.split(',').find_map(|part| part.strip_prefix("size=")).or(value.split(',').next())?;
    let digits = first.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match first[digits.len()..].to_ascii_lowercase().as_str() {
        "b" => 0,
        "k" => 10,
        "" | "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The sockets of `-qmp unix:PATH,...`, and those of the chardevs that `-mon` names.
fn monitors(options: &Options) -> Vec<String> {
    let direct = options.all("-qmp").filter_map(|value| value.strip_prefix("unix:")?.split(',').next());
    let devices =
        options.all("-chardev").filter(|value| value.starts_with("socket") && value.contains("mon"));
    let paths = devices.filter_map(|value| value.split(',').find_map(|part| part.strip_prefix("path=")));
    direct.chain(paths).map(String::from).collect()
}

/// The address at which a process has mapped the memory of its guest.
///
/// # Errors
/// No mapping has the size of the guest's memory.
pub fn guest_memory(root: &ProcRoot, qemu: &Qemu) -> Result<u64> {
    let maps = root.read_task(&format!("{}/maps", qemu.pid))?;
    find_memory(&maps, qemu.memory_bytes).ok_or_else(|| {
        VmError::Introspect(format!(
            "process {} has no mapping of the {} MiB that its guest has: memory of several NUMA nodes or of hotplugged \
             modules is not supported, and -m must give its size",
            qemu.pid,
            qemu.memory_bytes >> 20
        ))
    })
}

/// A mapping of `/proc/PID/maps`.
#[derive(Clone, Copy)]
struct Mapped<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    /// Offset in the file.
    offset: u64,
    file: &'a str,
}

/// A mapping of that size. Memory that is QEMU's own may have another such mapping right below it, and then the two are one
/// line, or two that cannot be told from parts of one. Above it QEMU leaves a page that nobody can use, so it ends where the line
/// ends; and it begins at a multiple of 2 MiB. Source: QEMU's util/mmap-alloc.c, `QEMU_VMALLOC_ALIGN`.
fn find_memory(maps: &str, bytes: u64) -> Option<u64> {
    let lines = || maps.lines().filter_map(mapped).filter(|mapped| mapped.rights.starts_with("rw"));
    let mut joined: Vec<Mapped> = Vec::new();
    for next in lines() {
        match joined.last_mut() {
            // The kernel splits a mapping if a part of it has its own memory policy.
            Some(last) if last.goes_on(&next) => last.end = next.end,
            _ => joined.push(next),
        }
    }
    let exact = lines().chain(joined.iter().copied()).find(|mapped| mapped.end - mapped.start == bytes);
    let at_the_end = || {
        let larger =
            joined.iter().filter(|mapped| mapped.is_anonymous() && mapped.end - mapped.start > bytes);
        larger.map(|mapped| mapped.end - bytes).find(|start| start.is_multiple_of(ALIGNED_BYTES))
    };
    exact.map(|mapped| mapped.start).or_else(at_the_end)
}

impl Mapped<'_> {
    fn is_anonymous(&self) -> bool {
        self.file.starts_with("00:00 0")
    }

    fn goes_on(&self, next: &Mapped) -> bool {
        let same = self.end == next.start && self.rights == next.rights && self.file == next.file;
        same && (self.is_anonymous() || self.offset.checked_add(self.end - self.start) == Some(next.offset))
    }
}

/// `start-end rights offset device inode path`.
fn mapped(line: &str) -> Option<Mapped<'_>> {
    let mut words = line.splitn(4, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let rights = words.next()?;
    let offset = number(words.next()?)?;
    let (start, end) = (number(start)?, number(end)?);
    (start < end).then_some(Mapped { start, end, rights, offset, file: words.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests;
