//! What all tests with real guests share: a lab, a guest that has booted, and what it says of itself.
//!
//! Where the machine lacks what a guest takes, a test says so and passes; with REPRIEVE_TEST_REQUIRE_IMAGE it
//! fails. Guests are booted one at a time: the machine may have two cores, and somebody else on it.
#![allow(dead_code)] // No test uses all of it.

pub mod compare;
pub mod hostile;
pub mod ledger;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_linux::hogs;
use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{self, Warden};
use reprieve_vm::image::{Cache, GuestImage, ImageOptions, KernelChoice, prepare};
use reprieve_vm::introspect::{Layout, Ram, Reader};
use reprieve_vm::lab::{Booted, Lab};
use reprieve_vm::link::Fields;
use reprieve_vm::qemu::{self, Accel, Chosen, MachineSpec};
use reprieve_vm::{HogCommand, Host, VmError};

/// Far beyond what booting takes, also beside other guests.
pub const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// Far beyond what stopping takes.
pub const STOP_LIMIT: Duration = Duration::from_secs(120);
/// What any wait for the guest to come into some state may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const MIB: u64 = 1 << 20;

// Roles. The standard harness runs one test by its name, and leaves standard input alone: so the test program
// starts itself again with these arguments as warden or hog.

const WARDEN: [&str; 3] = ["--ignored", "--exact", "support::plays_the_warden"];
const HOG: [&str; 3] = ["--ignored", "--exact", "support::plays_the_hog"];

fn is_started_as(role: &[&str]) -> bool {
    std::env::args().skip(1).eq(role.iter().copied())
}

#[test]
#[ignore = "a role: the tests start it themselves"]
fn plays_the_warden() {
    if is_started_as(&WARDEN) {
        warden::run(std::io::stdin(), &ProcRoot::default());
    }
}

#[test]
#[ignore = "a role: the tests start it themselves"]
fn plays_the_hog() {
    if is_started_as(&HOG) {
        hogs::spin();
    }
}

static ONE_GUEST: Mutex<()> = Mutex::new(());

/// A lab that has the machine to itself, as far as this program goes.
pub struct Bench {
    pub lab: Lab,
    _alone: MutexGuard<'static, ()>,
}

/// The user's, or what REPRIEVE_TEST_CACHE names.
pub fn cache() -> Cache {
    let named = std::env::var_os("REPRIEVE_TEST_CACHE").map(PathBuf::from);
    Cache::new(named.unwrap_or_else(|| Cache::default_dir(|name| std::env::var_os(name)).unwrap())).unwrap()
}

/// The handles of this machine, with this test program as warden and hog.
pub fn host() -> Host {
    let exe = std::env::current_exe().unwrap();
    Host {
        proc_root: ProcRoot::default(),
        warden: Arc::new(Warden::spawn(&exe, &WARDEN).unwrap()),
        interrupt: Interrupt::manual().unwrap(),
        programs: programs(),
        daemon: programs().join("reprieve"),
        hog: HogCommand { exe, args: HOG.map(String::from).to_vec() },
    }
}

/// The image, or `None` with a message where the machine lacks what it takes: that is not what is tested.
pub fn image() -> Option<GuestImage> {
    image_with(ImageOptions::default())
}

/// The image with what these options ask for.
fn image_with(options: ImageOptions) -> Option<GuestImage> {
    match prepare(&cache(), &options, &mut |step| eprintln!("{step}")) {
        Ok(image) => Some(image),
        Err(error) if error.is_missing() => skip(&error),
        Err(error) => panic!("{error}"),
    }
}

/// The directory of the peers' programs: what REPRIEVE_PEERS names, or that of all programs of the workspace.
pub fn programs() -> PathBuf {
    let built = || std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    std::env::var_os("REPRIEVE_PEERS").map_or_else(built, PathBuf::from)
}

/// Says why a test does not run, where that is allowed.
pub fn skip<T>(why: &dyn std::fmt::Display) -> Option<T> {
    assert!(std::env::var_os("REPRIEVE_TEST_REQUIRE_IMAGE").is_none(), "{why}");
    eprintln!("skipped: {why}");
    None
}

impl Bench {
    pub fn open() -> Option<Bench> {
        Bench::open_with(Vec::new())
    }

    /// Whose guests can run these programs of the host's.
    pub fn open_with(programs: Vec<PathBuf>) -> Option<Bench> {
        Bench::open_for(ImageOptions { programs, ..ImageOptions::default() })
    }

    /// Whose guests can run fio, and these programs of the host's beside it.
    pub fn open_for_fio(programs: Vec<PathBuf>) -> Option<Bench> {
        Bench::open_for(ImageOptions { programs, fio: true, ..ImageOptions::default() })
    }

    /// Whose guests can harm themselves.
    pub fn open_hostile() -> Option<Bench> {
        Bench::open_for(ImageOptions { hostile: true, ..ImageOptions::default() })
    }

    /// Whose guests boot this series of the distribution's kernels.
    pub fn open_series(series: &str) -> Option<Bench> {
        Bench::open_for(ImageOptions {
            kernel: KernelChoice::Series(series.into()),
            ..ImageOptions::default()
        })
    }

    fn open_for(options: ImageOptions) -> Option<Bench> {
        let alone = ONE_GUEST.lock().unwrap_or_else(PoisonError::into_inner);
        let qemu_version = match qemu::version() {
            Ok(version) => version,
            Err(error @ VmError::Missing { .. }) => return skip(&error),
            Err(error) => panic!("{error}"),
        };
        let image = image_with(options)?;
        let chosen = Chosen { accel: Accel::Tcg, reason: "the tests' choice".into() };
        let lab = Lab { host: host(), image, chosen, qemu_version, pcpus: allowed_cpus().unwrap() };
        Some(Bench { lab, _alone: alone })
    }

    pub fn spec(&self, vcpus: usize, memory_mib: u64, append: &str) -> MachineSpec {
        MachineSpec {
            vcpus,
            memory_bytes: memory_mib * MIB,
            kernel: self.lab.image.kernel.vmlinuz.clone(),
            initramfs: self.lab.image.initramfs.clone(),
            append: append.into(),
            accel: self.lab.chosen.accel,
            disk: None,
            kaslr: false,
            hypervisor: None,
        }
    }

    /// A guest that has booted; it lives no longer than the calling thread.
    pub fn boot(&self, vcpus: usize, memory_mib: u64, append: &str) -> Booted {
        let spec = self.spec(vcpus, memory_mib, append);
        self.lab.boot(&spec, &self.lab.pcpus, BOOT_LIMIT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Where everything stands in a guest's memory, as its own symbols say.
    pub fn layout(&self, booted: &Booted) -> Result<(Ram, Layout), VmError> {
        let (hello, memory) = (&booted.hello, &booted.machine.memory);
        let mut ram = Ram::map(memory)?;
        let (btf, bytes) = (&self.lab.image.btf, memory.bytes);
        let layout = Layout::find(&mut ram, btf, &hello.symbols, &hello.release, hello.vcpus, bytes)?;
        Ok((ram, layout))
    }

    pub fn reader(&self, booted: &Booted) -> Reader {
        self.lab.reader(booted).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A text file of the guest.
pub fn text(booted: &mut Booted, path: &str) -> String {
    let bytes = booted.link.read_file(path);
    let bytes = bytes.unwrap_or_else(|error| panic!("{path}: {}", booted.machine.explain(error)));
    String::from_utf8(bytes).unwrap()
}

/// The `key=number` words of a text.
pub fn fields(text: &str) -> Fields {
    let pairs = text.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_string(), value.parse().unwrap())).collect()
}
