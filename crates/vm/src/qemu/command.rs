//! QEMU's command line and the process's rights.
//!
//! No network, no display, no disk but one that holds nothing; seccomp sandbox on; when we are root QEMU runs as another user.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use reprieve_linux::child;

use crate::unprivileged_user::unprivileged_user;
use crate::{Result, VmError};

/// The emulator's program name.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Descriptor numbers in QEMU.
const MEMORY_FD: i32 = 10;
const MONITOR_FD: i32 = 11;
const CONSOLE_FD: i32 = 12;
const PORT_FD: i32 = 13;
/// Kernel and initial file system are handed over open: their folders may be closed to QEMU's user.
const KERNEL_FD: i32 = 14;
const INITRAMFS_FD: i32 = 15;
const HYPERVISOR_FD: i32 = 16;

/// Address space of the emulator itself: its code cache alone may take 1 GiB.
const EMULATOR_BYTES: u64 = 6 << 30;

/// What QEMU executes guest code with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation; each vCPU is a host thread.
    Tcg,
    /// Emulation by one host thread, which executes the vCPUs in turn: none can miss what another writes over code.
    TcgInTurn,
    /// Emulation in which time is the number of instructions: the same run again, bit for bit.
    Counted {
        /// Of all that the machine takes for random.
        seed: u32,
    },
}

impl Accel {
    /// As in captions and scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
            Accel::TcgInTurn => "tcg single",
            Accel::Counted { .. } => "tcg icount",
        }
    }
}

/// A machine to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// Virtual CPUs.
    pub vcpus: usize,
    /// Memory; a multiple of 1 MiB.
    pub memory_bytes: u64,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initial file system.
    pub initramfs: PathBuf,
    /// Words appended to the kernel's command line.
    pub append: String,
    /// How guest code is executed.
    pub accel: Accel,
    /// A disk, besides.
    pub disk: Option<Disk>,
    /// Whether a Linux kernel may put itself where it likes (KASLR). Its own tellings of symbols then say where.
    pub kaslr: bool,
    /// What boots first, if the kernel is not the machine's own but its dom0's.
    pub hypervisor: Option<Hypervisor>,
}

/// A disk that holds nothing and takes a while for every request, as many of them at a time as come. It is served by a thread
/// of its own, so that it does not wait for QEMU's main loop; the interrupts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its size; a multiple of 1 MiB.
    pub bytes: u64,
    /// What a request takes.
    pub latency_ns: u64,
}

/// A hypervisor that the machine boots, as a multiboot kernel with two modules: dom0's kernel and initial file system.
/// Such a guest talks to the host through the debug port instead of a virtio-serial port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// An ELF image.
    pub image: PathBuf,
    /// Its command line.
    pub options: String,
}

/// A counted instruction takes 2^this ns.
const ICOUNT_SHIFT: u32 = 2;
/// The clock of a machine whose time is counted starts here, in UTC: not at the time of day.
const ICOUNT_EPOCH: &str = "2026-01-01T00:00:00";
/// Where Bochs and QEMU have a port that takes bytes.
const DEBUG_PORT: u16 = 0xe9;

/// The kernel arguments that make a guest start fast and stand still for introspection: `nokaslr` because
/// symbols must be where the image has them, `tsc` because calibration under emulation takes seconds and
/// fails when a vCPU is descheduled, `panic=-1` and `oops=panic` so that a guest in trouble ends at once.
///
/// `cryptomgr.notests` because the self-tests of ciphers take a sixth of a boot, and are one of the places where a guest
/// under QEMU 7.2's emulation can hang for ever, with not a word printed, once in some hundreds of boots: while it boots the
/// kernel patches itself (static keys), an int3 first, on one vCPU while another may come by. That one was seen to
/// execute an int3 of which memory knew no more, as of a translation that has missed the write; the handler finds none and
/// sends it back, and so on. Seen in `alg_test`, and in `sched_clock_idle_wakeup_event`, which stays: `Lab::boot` has a
/// second start for it.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off \
                                tsc=reliable clocksource=tsc cryptomgr.notests rdinit=/init";
const NO_KASLR: &str = "nokaslr";

/// A PV dom0 dies early where the processor keeps the kernel out of user pages.
const XEN_CPU: &str = "max,-smap,-smep,-la57,-pku";

/// The same for dom0, whose console and clock are Xen's.
const DOM0_ARGUMENTS: &str = "console=hvc0 quiet panic=-1 oops=panic nokaslr rdinit=/init";

fn arguments(spec: &MachineSpec) -> Vec<OsString> {
    let mib = spec.memory_bytes >> 20;
    let (accel, mut cpu) = match spec.accel {
        Accel::Kvm => ("kvm".to_string(), "host"),
        Accel::Tcg => ("tcg,thread=multi".to_string(), "max"),
        Accel::TcgInTurn => ("tcg,thread=single".to_string(), "max"),
        Accel::Counted { seed } => {
            let clock = format!("-icount shift={ICOUNT_SHIFT},sleep=off -rtc base={ICOUNT_EPOCH},clock=vm");
            (format!("tcg,thread=single {clock} -seed {seed}"), "max")
        }
    };
    let port = match spec.hypervisor {
        None => "-device virtio-serial-pci -device virtserialport,chardev=port,name=reprieve.lab".to_string(),
        Some(_) => format!("-device isa-debugcon,iobase={DEBUG_PORT},chardev=port"),
    };
    if spec.hypervisor.is_some() {
        cpu = XEN_CPU;
    }
    let text = [
        "-nodefaults -no-user-config -no-reboot -display none -name reprieve,debug-threads=on".to_string(),
        "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny".to_string(),
        format!("-machine pc,memory-backend=ram -accel {accel} -cpu {cpu} -smp {} -m {mib}", spec.vcpus),
        format!("-object memory-backend-file,id=ram,size={mib}M,mem-path=/proc/self/fd/{MEMORY_FD},share=on"),
        format!("-chardev socket,id=monitor,fd={MONITOR_FD} -mon chardev=monitor,mode=control"),
        format!("-chardev socket,id=console,fd={CONSOLE_FD} -serial chardev:console"),
        format!("-chardev socket,id=port,fd={PORT_FD} {port}"),
    ]
    .join(" ");
    let text = spec.disk.iter().fold(text, |text, disk| format!("{text} {}", disk.arguments()));
    let mut arguments: Vec<OsString> = text.split(' ').map(OsString::from).collect();
    // What contains spaces is one argument.
    arguments.extend(boot(spec).map(OsString::from));
    arguments
}

impl Disk {
    /// Its memory is not even cleared by a read: what counts is the time.
    fn arguments(&self) -> String {
        let Disk { bytes, latency_ns } = self;
        format!(
            "-object iothread,id=disk -blockdev null-co,node-name=disk,size={bytes},latency-ns={latency_ns} \
             -device virtio-blk-pci,drive=disk,iothread=disk"
        )
    }
}

/// What is booted, and its command lines.
fn boot(spec: &MachineSpec) -> [String; 6] {
    let file = |fd: i32| format!("/proc/self/fd/{fd}");
    let words = |fixed: &str| format!("{fixed} {}", spec.append).trim().to_string();
    let (kernel, append, initrd) = match &spec.hypervisor {
        None if spec.kaslr => (KERNEL_FD, words(KERNEL_ARGUMENTS), file(INITRAMFS_FD)),
        None => (KERNEL_FD, words(&format!("{NO_KASLR} {KERNEL_ARGUMENTS}")), file(INITRAMFS_FD)),
        Some(hypervisor) => {
            let append = words(DOM0_ARGUMENTS);
            // QEMU separates modules by commas: one in an argument would end it.
            debug_assert!(!append.contains(','), "{append}");
            let modules = format!("{} {append},{}", file(KERNEL_FD), file(INITRAMFS_FD));
            (HYPERVISOR_FD, hypervisor.options.clone(), modules)
        }
    };
    ["-kernel".into(), file(kernel), "-append".into(), append, "-initrd".into(), initrd]
}

/// Starts QEMU with the far ends of memory, monitor, console and port.
pub fn spawn(spec: &MachineSpec, ends: [OwnedFd; 4]) -> Result<Child> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments(spec)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A terminal's Ctrl-C is for us: we end the machine in good order.
    command.process_group(0);
    let mut images = vec![open(&spec.kernel)?, open(&spec.initramfs)?];
    if let Some(hypervisor) = &spec.hypervisor {
        images.push(open(&hypervisor.image)?);
    }
    let mappings = ends
        .into_iter()
        .chain(images)
        .zip([MEMORY_FD, MONITOR_FD, CONSOLE_FD, PORT_FD, KERNEL_FD, INITRAMFS_FD, HYPERVISOR_FD])
        .map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd })
        .collect();
    command.fd_mappings(mappings).expect("the numbers differ");
    if let Some((uid, gid)) = user(spec.accel) {
        command.uid(uid).gid(gid);
    }
    child::confine(&mut command, spec.memory_bytes.saturating_add(EMULATOR_BYTES));
    child::die_with_parent(&mut command);
    command.spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => missing(),
        _ => VmError::Io { doing: format!("starting {PROGRAM}"), source },
    })
}

fn open(path: &Path) -> Result<OwnedFd> {
    Ok(File::open(path).map_err(VmError::io(format!("opening {}", path.display())))?.into())
}

/// The error for a machine without QEMU.
fn missing() -> VmError {
    let way_out = "install it with: apt-get install --no-install-recommends qemu-system-x86".to_string();
    VmError::Missing { what: PROGRAM.into(), way_out }
}

/// Whom QEMU runs as when we are root. With KVM the group is that of the device; where the device is root's alone, QEMU
/// has to stay root.
fn user(accel: Accel) -> Option<(u32, u32)> {
    let (uid, gid) = unprivileged_user()?;
    match accel {
        Accel::Tcg | Accel::TcgInTurn | Accel::Counted { .. } => Some((uid, gid)),
        Accel::Kvm => {
            let device = std::fs::metadata("/dev/kvm").ok()?;
            let group_may = device.mode() & 0o060 == 0o060 && device.gid() != 0;
            group_may.then_some((uid, device.gid()))
        }
    }
}

/// QEMU's version, for captions: `7.2.22`.
pub fn version() -> Result<String> {
    let output = Command::new(PROGRAM).arg("--version").output().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => missing(),
        _ => VmError::Io { doing: format!("asking {PROGRAM} for its version"), source },
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().skip_while(|word| *word != "version").nth(1);
    Ok(version.unwrap_or("unknown").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(hypervisor: Option<Hypervisor>) -> MachineSpec {
        MachineSpec {
            vcpus: 2,
            memory_bytes: 256 << 20,
            kernel: "/a b/vmlinuz".into(),
            initramfs: "/c".into(),
            append: "x=1 y=2".into(),
            accel: Accel::Tcg,
            disk: None,
            kaslr: false,
            hypervisor,
        }
    }

    fn after<'a>(arguments: &'a [OsString], option: &str) -> &'a str {
        let at = arguments.iter().position(|argument| argument == option).unwrap();
        arguments[at + 1].to_str().unwrap()
    }

    #[test]
    fn a_hypervisor_s_modules_are_one_argument() {
        let hypervisor = Hypervisor { image: "/x".into(), options: "com1=115200,8n1".into() };
        let arguments = arguments(&spec(Some(hypervisor)));
        assert_eq!(after(&arguments, "-kernel"), "/proc/self/fd/16");
        assert_eq!(after(&arguments, "-append"), "com1=115200,8n1");
        let modules: Vec<&str> = after(&arguments, "-initrd").split(',').collect();
        assert!(modules[0].starts_with("/proc/self/fd/14 ") && modules[0].ends_with("rdinit=/init x=1 y=2"));
        assert_eq!(modules[1..], ["/proc/self/fd/15"]);
        assert!(!arguments.contains(&"virtio-serial-pci".into()));
    }

    #[test]
    fn a_disk_has_a_thread_of_its_own() {
        let disk = Disk { bytes: 1 << 30, latency_ns: 500_000 };
        let arguments = arguments(&MachineSpec { disk: Some(disk), ..spec(None) });
        let blockdev = "null-co,node-name=disk,size=1073741824,latency-ns=500000";
        assert_eq!(after(&arguments, "-blockdev"), blockdev);
        assert!(arguments.contains(&"iothread,id=disk".into()));
        assert!(arguments.contains(&"virtio-blk-pci,drive=disk,iothread=disk".into()));
    }

    #[test]
    fn the_kernel_s_command_line_is_one_argument() {
        let arguments = arguments(&spec(None));
        assert!(after(&arguments, "-append").contains("nokaslr"));
        let free = super::arguments(&MachineSpec { kaslr: true, ..spec(None) });
        assert!(!after(&free, "-append").contains("nokaslr"));
        assert!(after(&arguments, "-append").ends_with("rdinit=/init x=1 y=2"));
        assert!(!arguments.contains(&"".into()));
        assert!(arguments.iter().all(|argument| !argument.to_string_lossy().contains("vmlinuz")));
    }
}
