//! A guest with the agent in it, and what the host tells it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Warden;
use reprieve_study::scenario::Accelerator;
use reprieve_vm::image::{self, Cache, GuestImage, ImageOptions, KernelChoice};
use reprieve_vm::lab::{Booted, Lab};
use reprieve_vm::qemu::{self, Accel, Chosen, MachineSpec};
use reprieve_vm::{HogCommand, Host, VmError};
use rustix::fs::MemfdFlags;
use serde_json::Value;

use crate::agent::FOLDER;
use crate::draw::{Background, Injection};

const MEMORY_BYTES: u64 = 512 << 20;
const BOOT: Duration = Duration::from_secs(180);
/// Beyond what explain is told to take: a guest that its host limits is slow.
const SLOW: Duration = Duration::from_secs(60);
/// The agent starts by the loader, with the libraries that were brought along.
const AGENT: &str = "#!/bin/busybox sh
exec /programs/lib/ld.so --library-path /programs/lib /programs/bin/confusion agent \"$1\"
";

/// Why something failed.
pub type Error = Box<dyn std::error::Error>;

/// This machine, and the programs that guests run.
pub struct Bench {
    /// Its handles.
    pub host: Host,
    /// pCPUs that this process may use.
    pub pcpus: Vec<usize>,
    /// This program.
    pub exe: PathBuf,
    reprieve: PathBuf,
    cache: Cache,
}

impl Bench {
    /// Makes ready what all guests share.
    ///
    /// # Errors
    /// `reprieve` is not built, or something of the machine is missing.
    pub fn open(interrupt: Interrupt) -> Result<Bench, Error> {
        let exe = std::env::current_exe()?;
        let reprieve = reprieve()?;
        let host = Host {
            proc_root: ProcRoot::default(),
            warden: Arc::new(Warden::spawn(&exe, &["warden"])?),
            interrupt,
            programs: exe.clone(),
            daemon: exe.clone(),
            hog: HogCommand { exe: exe.clone(), args: Vec::new() },
        };
        reprieve_vm::ground::sweep(&host);
        let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
        Ok(Bench { host, pcpus: allowed_cpus()?, exe, reprieve, cache })
    }

    /// What guests with this series of kernels share.
    pub fn lab(&self, series: &str) -> Result<Lab, Error> {
        let image = self.image(series)?;
        let mut lab = Lab {
            host: self.host.clone(),
            image,
            chosen: Chosen { accel: Accel::Tcg, reason: String::new() },
            qemu_version: qemu::version()?,
            pcpus: self.pcpus.clone(),
        };
        let remembered = self.cache.root().join("kvm-probe");
        lab.chosen = qemu::choose(Accelerator::Auto, &spec(&lab, 1), &remembered, &lab.host)?;
        Ok(lab)
    }

    fn image(&self, series: &str) -> Result<GuestImage, Error> {
        let programs = vec![self.exe.clone(), self.reprieve.clone()];
        // The distribution's current kernel has no package of its series' name.
        let kernel = match image::kernel_available(&self.cache, Some(series)) {
            Ok(_) => KernelChoice::Series(series.into()),
            Err(_) => KernelChoice::Current,
        };
        let options = ImageOptions { kernel, programs, ..ImageOptions::default() };
        let prepared = image::prepare(&self.cache, &options, &mut |step| eprintln!("confusion: {step}"));
        let image = prepared.map_err(VmError::from)?;
        let release = &image.kernel.release;
        match release.starts_with(&format!("{series}.")) {
            true => Ok(image),
            false => Err(format!("the distribution has no kernel {series} for guests, but {release}").into()),
        }
    }
}

/// The command, built beside this program.
///
/// # Errors
/// It is not there.
pub fn reprieve() -> Result<PathBuf, Error> {
    let exe = std::env::current_exe()?;
    let reprieve = exe.ancestors().nth(2).unwrap_or(Path::new("/")).join("reprieve");
    match reprieve.is_file() {
        true => Ok(reprieve),
        false => Err(format!("{} is not there; build it: cargo build --release", reprieve.display()).into()),
    }
}

fn spec(lab: &Lab, vcpus: usize) -> MachineSpec {
    MachineSpec {
        vcpus,
        memory_bytes: MEMORY_BYTES,
        kernel: lab.image.kernel.vmlinuz.clone(),
        initramfs: lab.image.initramfs.clone(),
        append: String::new(),
        accel: lab.chosen.accel,
        disk: None,
        kaslr: false,
        hypervisor: None,
    }
}

/// A guest that obeys.
pub struct Guest {
    /// The machine, and the line to the agent.
    pub booted: Booted,
}

impl Guest {
    /// Boots one.
    pub fn boot(bench: &Bench, lab: &Lab, vcpus: usize) -> Result<Guest, Error> {
        let archive = archive(&lab.image)?;
        let spec = MachineSpec {
            // Open for as long as QEMU starts, and gone by itself however this ends.
            initramfs: format!("/proc/self/fd/{}", archive.as_raw_fd()).into(),
            append: format!("RUNNER=/{FOLDER}/agent"),
            ..spec(lab, vcpus)
        };
        Ok(Guest { booted: lab.boot(&spec, &bench.pcpus, BOOT)? })
    }

    /// Starts what the guest does besides.
    pub fn background(&mut self, background: &Background) -> Result<(), VmError> {
        let Background { vcpus, duty_percent, burst_us } = background;
        if vcpus.is_empty() {
            return Ok(());
        }
        let (tasks, cpus) = (vcpus.len(), list(vcpus));
        self.start(&format!(
            "load busy cpus={cpus} tasks={tasks} duty={duty_percent} burst_us={burst_us} pinned=1 wall=0 seed=0"
        ))
    }

    /// Starts what the guest does to itself, if this injection is of that kind.
    pub fn inject(&mut self, injection: &Injection) -> Result<(), VmError> {
        let words = match injection {
            Injection::OwnCpu { vcpus, tasks } => {
                let cpus = list(vcpus);
                format!("busy cpus={cpus} tasks={tasks} duty=100 burst_us=10000 pinned=0 wall=0 seed=0")
            }
            Injection::OwnMemory { vcpu, limit_mib, touched_mib } => {
                format!("memory cpu={vcpu} limit_mib={limit_mib} touched_mib={touched_mib}")
            }
            Injection::StarvedKthread { vcpu, duty_percent, busy_us } => {
                format!("fifo cpu={vcpu} duty={duty_percent} busy_us={busy_us}")
            }
            Injection::LongReader { vcpu, length_ms, rest_ms, preemptible } => {
                let preemptible = u8::from(*preemptible);
                format!("hold cpu={vcpu} length_ms={length_ms} rest_ms={rest_ms} preemptible={preemptible}")
            }
            _ => return Ok(()),
        };
        self.start(&format!("load {words}"))
    }

    /// Ends all loads.
    pub fn clear(&mut self) -> Result<(), VmError> {
        self.start("clear")
    }

    /// Steps the clock of the day.
    pub fn step(&mut self, by_ms: i64) -> Result<(), VmError> {
        self.start(&format!("step {}", by_ms * 1_000_000))
    }

    /// Begins to look, with tiers up to this one.
    pub fn look(&mut self, for_s: u64, tier: &str) -> Result<(), VmError> {
        self.start(&format!("look {for_s} {tier}"))
    }

    /// What was seen.
    pub fn verdict(&mut self, for_s: u64) -> Result<Value, VmError> {
        let judged = self.booted.link.frame("judge", Duration::from_secs(for_s) + SLOW);
        let (name, bytes) = judged.map_err(|error| self.booted.machine.explain(error))?;
        let value = (name == "verdict").then(|| serde_json::from_slice(&bytes).ok()).flatten();
        value.ok_or_else(|| VmError::guest("the guest's verdict is no JSON"))
    }

    fn start(&mut self, words: &str) -> Result<(), VmError> {
        let started = self.booted.link.start(words);
        started.map_err(|error| self.booted.machine.explain(error))
    }
}

/// Numbers with commas between them.
pub fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// The image's archive, and behind it the agent and a block device for swap. The kernel unpacks one after the other.
fn archive(image: &GuestImage) -> Result<OwnedFd, Error> {
    let memory = rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&std::fs::read(&image.initramfs)?)?;
    let (name, module) = block_device(image)?;
    let mut further = Vec::new();
    let mut inode = 1_000_000;
    let mut add = |name: &str, mode: u32, content: &[u8]| -> Result<(), std::io::Error> {
        inode += 1;
        let entry = cpio::newc::Builder::new(name).ino(inode).mode(mode).nlink(1);
        let mut writer = entry.write(&mut further, content.len() as u32);
        writer.write_all(content)?;
        writer.finish().map(drop)
    };
    add(FOLDER, 0o040_755, &[])?;
    add(&format!("{FOLDER}/agent"), 0o100_755, AGENT.as_bytes())?;
    add(&format!("{FOLDER}/{name}"), 0o100_644, &module)?;
    cpio::newc::trailer(&mut further)?;
    file.write_all(&further)?;
    Ok(file.into())
}

/// The module of block devices in memory, as the kernel's package has it.
fn block_device(image: &GuestImage) -> Result<(String, Vec<u8>), Error> {
    let folder =
        image.kernel.modules_dir.clone().ok_or("the kernel has no modules")?.join("kernel/drivers/block");
    for name in ["brd.ko", "brd.ko.xz"] {
        if let Ok(content) = std::fs::read(folder.join(name)) {
            return Ok((name.into(), content));
        }
    }
    Err(format!("{} has no brd.ko", folder.display()).into())
}
