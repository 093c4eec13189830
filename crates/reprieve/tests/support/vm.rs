//! A VM as somebody else has started it: its memory is QEMU's own and not shared, it restarts after a reset, its kernel is
//! where KASLR put it, and it has a QMP socket. Its runner works when it is told to.
//!
//! A VM boots once per test program. Its state is saved then, and further VMs go on from there.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reprieve_linux::cgroup::{Cgroups, Quota, QuotaTree, unique_name};
use reprieve_linux::child;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_vm::attach;
use reprieve_vm::image::{Cache, GuestImage, ImageOptions, prepare};
use reprieve_vm::link::Link;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Guests, PATIENCE};

const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc cryptomgr.notests \
                                rdinit=/init";
/// The file with what the VM says on its serial console.
const CONSOLE: &str = "console";
const QEMU: &str = "qemu-system-x86_64";
/// Of a period of 100 ms.
const QUOTA_PERCENT: f64 = 20.0;

/// A running VM with 2 vCPUs. Dropped, it is gone, with its groups.
pub struct Vm {
    /// The conversation with its runner, which powers the VM off when nobody listens any more.
    pub link: Link,
    child: Child,
    monitor: BufReader<UnixStream>,
    tree: Option<QuotaTree>,
    folder: TempDir,
}

/// How a VM begins.
pub enum Begin {
    Boot,
    /// It goes on from a state that it waits for.
    Incoming,
}

/// The image that VMs boot.
pub fn image(guests: &Guests) -> GuestImage {
    let cache = Cache::new(guests.cache.clone()).unwrap();
    prepare(&cache, &ImageOptions::default(), &mut |_| {}).unwrap()
}

/// The state of a VM that has booted and has nothing to do.
fn saved(guests: &Guests) -> &'static Path {
    static SAVED: OnceLock<PathBuf> = OnceLock::new();
    SAVED.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("booted.vm");
        let mut vm = Vm::spawn(guests, "booted", Begin::Boot);
        vm.link.wait_ready(PATIENCE).unwrap();
        vm.migrate(&format!("exec:cat >{}", path.display()));
        path
    })
}

impl Vm {
    /// A VM that has just booted.
    pub fn start(guests: &Guests, name: &str) -> Vm {
        let state = format!("exec:cat {}", saved(guests).display());
        let mut vm = Vm::spawn(guests, name, Begin::Incoming);
        vm.receive(&state);
        vm.wait_for("running");
        vm
    }

    /// Starts QEMU.
    pub fn spawn(guests: &Guests, name: &str, begin: Begin) -> Vm {
        Vm::spawn_with(guests, name, begin, None)
    }

    /// Starts QEMU, with another archive than the image's, whose first program is `/inside/init`.
    pub fn spawn_with(guests: &Guests, name: &str, begin: Begin, archive: Option<&[u8]>) -> Vm {
        Vm::spawn_image(image(guests), name, begin, archive)
    }

    /// Starts QEMU, with another image.
    pub fn spawn_image(image: GuestImage, name: &str, begin: Begin, archive: Option<&[u8]>) -> Vm {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name: &str| format!("path={},server=on,wait=off", folder.path().join(name).display());
        let mut command = Command::new(QEMU);
        let words = format!(
            "-nodefaults -no-user-config -display none -machine pc -accel tcg,thread=multi -cpu max -smp 2 -m {} -serial file:{} \
             -name {name},debug-threads=on -chardev socket,id=port,{} -device virtio-serial-pci -device \
             virtserialport,chardev=port,name=reprieve.lab -qmp unix:{}",
            // The archive is in memory twice while the kernel unpacks it.
            if archive.is_some() { 512 } else { 256 },
            folder.path().join(CONSOLE).display(),
            socket("port"),
            socket("monitor").trim_start_matches("path="),
        );
        command.args(words.split_ascii_whitespace());
        let (mut initramfs, mut arguments) = (image.initramfs, KERNEL_ARGUMENTS.to_string());
        if let Some(archive) = archive {
            initramfs = folder.path().join("initramfs.cpio");
            fs::write(&initramfs, archive).unwrap();
            arguments.push_str(" rdinit=/inside/init");
        }
        command.arg("-kernel").arg(&image.kernel.vmlinuz).arg("-initrd").arg(initramfs);
        command.args(["-append", &arguments]);
        if let Begin::Incoming = begin {
            command.args(["-incoming", "defer"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        child::die_with_parent(&mut command);
        let child = command.spawn().unwrap();
        let monitor = BufReader::new(connect(&folder.path().join("monitor")));
        // Before the state arrives: else the runner would learn that its host has gone.
        let port = connect(&folder.path().join("port"));
        let link = Link::new(port, Interrupt::manual().unwrap()).unwrap();
        let mut vm = Vm { link, child, monitor, tree: None, folder };
        vm.ask(json!({"execute": "qmp_capabilities"}));
        vm
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Says something to QEMU, and gives its answer.
    pub fn ask(&mut self, command: Value) -> Value {
        writeln!(self.monitor.get_mut(), "{command}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.monitor.read_line(&mut line).unwrap() > 0, "QEMU has closed its monitor: {command}");
            let said: Value = serde_json::from_str(&line).unwrap();
            assert!(said.get("error").is_none(), "{command}: {said}");
            if let Some(answer) = said.get("return") {
                return answer.clone();
            }
        }
    }

    /// Sends its state there and waits until that is done. It stands still then.
    pub fn migrate(&mut self, address: &str) {
        // A busy guest's memory changes faster than it is sent, so it is stopped for the rest.
        let limits = json!({"downtime-limit": 60_000, "max-bandwidth": 0});
        self.ask(json!({"execute": "migrate-set-parameters", "arguments": limits}));
        self.ask(json!({"execute": "migrate", "arguments": {"uri": address}}));
        let since = Instant::now();
        loop {
            let said = self.ask(json!({"execute": "query-migrate"}));
            match said["status"].as_str() {
                Some("completed") => return,
                Some("failed" | "cancelled") => panic!("{said}"),
                _ => assert!(since.elapsed() < PATIENCE, "{said}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes a state from there.
    pub fn receive(&mut self, address: &str) {
        self.ask(json!({"execute": "migrate-incoming", "arguments": {"uri": address}}));
    }

    /// Waits until QEMU says that the VM is in this state.
    pub fn wait_for(&mut self, state: &str) {
        let since = Instant::now();
        loop {
            let said = self.ask(json!({"execute": "query-status"}));
            if said["status"] == state {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What stands on its serial console so far.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&self.console_bytes()).into_owned()
    }

    /// The same, byte for byte.
    pub fn console_bytes(&self) -> Vec<u8> {
        fs::read(self.folder.path().join(CONSOLE)).unwrap_or_default()
    }

    /// Limits vCPU 1 to a part of a CPU. `None`, with a message, where quotas are not permitted.
    pub fn limit(&mut self) -> Option<PathBuf> {
        self.limit_to(QUOTA_PERCENT, 100_000)
    }

    /// Limits vCPU 1 to so much of a CPU in each period, instead of what limits it so far.
    pub fn limit_to(&mut self, percent: f64, period_us: u64) -> Option<PathBuf> {
        self.tree = None;
        let root = ProcRoot::default();
        let made = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?));
        let mut tree = match made {
            Ok(tree) => tree,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let vcpus = attach::of(&root, self.pid()).unwrap().vcpus;
        tree.adopt_process(self.pid()).unwrap();
        let group = tree.quota_group("vcpu1", Quota::from_percent(percent, period_us).unwrap()).unwrap();
        tree.assign(vcpus[1], group).unwrap();
        let directory = tree.directory.join("vcpu1");
        self.tree = Some(tree);
        Some(directory)
    }

    /// Takes the limit away.
    pub fn unlimit(&mut self) {
        self.tree = None;
    }

    /// Ends QEMU as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.kill();
    }
}

fn connect(path: &Path) -> UnixStream {
    let since = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a group may use, as its file says.
pub fn quota(directory: &Path) -> String {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    read("cpu.max").or_else(|| read("cpu.cfs_quota_us")).unwrap()
}
