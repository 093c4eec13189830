//! Guest images: a kernel, the initramfs that goes with it, and the kernel's type information.
//!
//! All is made from the distribution's packages (or a kernel of the user's), the sources of `guest/` that this
//! program carries, and the host's compiler; nothing is installed and root is not needed. What has been made
//! once is kept in a [`Cache`]: a second [`prepare`] downloads and compiles nothing.
//!
//! Invariant: equal ingredients give the same initramfs, byte for byte.

pub mod btf;
pub(crate) mod cache;
mod command;
pub(crate) mod compile;
pub(crate) mod decompress;
pub(crate) mod error;
mod host_programs;
pub(crate) mod initramfs;
mod kernel;
pub(crate) mod libraries;
mod module_build;
mod modules;
mod packaged_fio;
pub(crate) mod packages;

use std::path::{Path, PathBuf};

pub use cache::Cache;
pub use command::{REQUIREMENTS, Requirement};
pub use error::{ImageError, Result};
pub use kernel::{Kernel, KernelChoice, vmlinux};

use crate::Step;
use compile::Programs;
use host_programs::HostPrograms;
use initramfs::Initramfs;
use modules::Module;
use packaged_fio::PackagedFio;
use packages::Unpacked;

/// What a guest is made of.
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    /// Which kernel it boots.
    pub kernel: KernelChoice,
    /// The modules of a kernel of the user's. `None`: `/lib/modules/RELEASE` if it exists, else all drivers are
    /// taken to be built in.
    pub modules_dir: Option<PathBuf>,
    /// The headers of a kernel of the user's. `None`: `/lib/modules/RELEASE/build` if it exists, else there is no
    /// memory workload.
    pub headers_dir: Option<PathBuf>,
    /// Programs of the host's that the guest runs, called by their file names. Their shared libraries are taken along.
    pub programs: Vec<PathBuf>,
    /// With fio, for the workload of that name.
    pub fio: bool,
    /// With what a hostile guest needs: a module that writes over its kernel's memory, and a program that lies in the
    /// runner's place. Only tests of the host want that.
    pub hostile: bool,
    /// With a module that makes a backlog of known size. Only tests of the host want that.
    pub planted: bool,
}

/// All that a guest needs.
#[derive(Debug)]
pub struct GuestImage {
    /// What to boot.
    pub kernel: Kernel,
    /// The guest's file system, for QEMU's `-initrd`.
    pub initramfs: PathBuf,
    /// Layouts of the kernel's types.
    pub btf: btf::Btf,
    /// Whether the memory workload and the grace-period poll are to be had: they need the kernel's headers.
    pub has_module: bool,
}

/// File systems, and sets of the host's programs, that stay in the cache; 20 to 40 MB each.
const ENTRIES: usize = 16;

/// Drivers of the port to the host, and of a disk. The virtio bus comes as their dependency.
const DRIVERS: [&str; 3] = ["virtio_pci", "virtio_console", "virtio_blk"];

/// What the init script uses of busybox.
const APPLETS: [&str; 7] = ["cat", "dmesg", "insmod", "mount", "poweroff", "sh", "usleep"];

/// Where init mounts something.
const MOUNT_POINTS: [&str; 4] = ["dev", "proc", "sys", "tmp"];

/// Where the C library's package has the two files Postmark needs: with /usr merged, and before that.
pub(crate) const LOADER: [&str; 2] =
    ["usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"];
const C_LIBRARY: [&str; 2] = ["usr/lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc.so.6"];

/// Whether guests can boot this series of the distribution's kernels, or, without one, its current kernel: which package, in the
/// cache or to be downloaded. For a check beforehand.
///
/// # Errors
/// The distribution does not have it.
pub fn kernel_available(cache: &Cache, series: Option<&str>) -> Result<String> {
    match series {
        Some(series) => packages::known(cache, &[&packages::series_packages(series)[0]]),
        None => packages::known(cache, &packages::KERNELS.map(|names| names[0])),
    }
}

/// Everything a guest needs, from the cache where it is there. `progress` is told of each step that takes
/// time: downloading (about 45 MB), compiling, unpacking.
pub fn prepare(cache: &Cache, options: &ImageOptions, progress: &mut Step) -> Result<GuestImage> {
    let kernel = match &options.kernel {
        KernelChoice::Current => {
            Kernel::of_packages(&packages::kernel(cache, &packages::KERNELS, progress)?)?
        }
        KernelChoice::Series(series) => {
            let [image, headers] = packages::series_packages(series);
            Kernel::of_packages(&packages::kernel(cache, &[&[&image, &headers]], progress)?)?
        }
        KernelChoice::File(path) => {
            Kernel::of_file(path, options.modules_dir.as_deref(), options.headers_dir.as_deref())?
        }
    };
    let btf = btf::Btf::parse(&kernel.btf_bytes(cache, progress)?)?;
    let ingredients = gather(cache, &kernel, options, progress)?;
    // Each build of a host's program gives new ones.
    ["initramfs", "host-programs"].iter().try_for_each(|kind| cache.keep_latest(kind, ENTRIES))?;
    let entry = cache.make("initramfs", &ingredients.key(&kernel), |dir| {
        progress("making the guest's file system");
        ingredients.assemble(&kernel)?.write_to(&dir.join("initramfs.cpio"))
    })?;
    let has_module = ingredients.module.is_some();
    Ok(GuestImage { kernel, initramfs: entry.join("initramfs.cpio"), btf, has_module })
}

/// What an initramfs is made of.
struct Ingredients {
    busybox: Unpacked,
    postmark: Unpacked,
    libc: Unpacked,
    programs: Programs,
    module: Option<PathBuf>,
    host_programs: Option<HostPrograms>,
    fio: Option<PackagedFio>,
    hostile: Option<Hostile>,
    planted: Option<PathBuf>,
}

/// What a hostile guest has besides.
struct Hostile {
    programs: Programs,
    module: Option<PathBuf>,
}

fn gather(
    cache: &Cache,
    kernel: &Kernel,
    options: &ImageOptions,
    progress: &mut Step,
) -> Result<Ingredients> {
    let names = ["busybox-static", "postmark", "libc6"];
    let [busybox, postmark, libc] = packages::singles(cache, names, progress)?;
    let compiler = compile::compiler(cache)?;
    let planted = match options.planted {
        true => compile::module(cache, &compile::PLANTED_MODULE, kernel, &compiler, progress)?,
        false => None,
    };
    Ok(Ingredients {
        busybox,
        postmark,
        libc,
        programs: compile::programs(cache, &compile::LAB, &compiler, progress)?,
        module: compile::module(cache, &compile::LAB_MODULE, kernel, &compiler, progress)?,
        host_programs: host_programs::gather(cache, &options.programs, progress)?,
        fio: options.fio.then(|| packaged_fio::gather(cache, progress)).transpose()?,
        hostile: options.hostile.then(|| Hostile::gather(cache, kernel, &compiler, progress)).transpose()?,
        planted,
    })
}

impl Hostile {
    fn gather(cache: &Cache, kernel: &Kernel, compiler: &str, progress: &mut Step) -> Result<Hostile> {
        Ok(Hostile {
            programs: compile::programs(cache, &compile::HOSTILE, compiler, progress)?,
            module: compile::module(cache, &compile::HOSTILE_MODULE, kernel, compiler, progress)?,
        })
    }

    fn key(&self) -> String {
        let module = self.module.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        format!("{} {module}", self.programs.key)
    }

    fn add(&self, archive: &mut Initramfs) -> Result<()> {
        archive.program_from("bin/babble", &self.programs.dir.join("babble"))?;
        if let Some(module) = &self.module {
            archive.data("lib/reprieve_hostile.ko", error::read(module)?)?;
        }
        Ok(())
    }
}

impl Ingredients {
    fn key(&self, kernel: &Kernel) -> String {
        let module = self.module.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        let modules_dir = kernel.modules_dir.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        let host_programs = self.host_programs.as_ref().map_or("", |programs| programs.key.as_str());
        let fio = self.fio.as_ref().map_or("", |fio| fio.key.as_str());
        let hostile = self.hostile.as_ref().map(Hostile::key).unwrap_or_default();
        let planted = self.planted.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        let parts = [
            &self.busybox.id,
            &self.postmark.id,
            &self.libc.id,
            &self.programs.key,
            &kernel.id,
            module.as_ref(),
            modules_dir.as_ref(),
            compile::INIT,
            host_programs,
            fio,
            hostile.as_str(),
            planted.as_ref(),
        ];
        let lists = APPLETS.iter().chain(&DRIVERS).chain(&MOUNT_POINTS).map(|name| name.as_bytes());
        cache::key_of(parts.into_iter().map(str::as_bytes).chain(lists))
    }

    fn assemble(&self, kernel: &Kernel) -> Result<Initramfs> {
        let mut archive = Initramfs::default();
        for name in MOUNT_POINTS {
            archive.directory(name)?;
        }
        archive.program("init", compile::INIT.into())?;
        archive.program_from("bin/busybox", &self.busybox.find(&["usr/bin/busybox", "bin/busybox"])?)?;
        for applet in APPLETS {
            archive.link(&format!("bin/{applet}"), "busybox")?;
        }
        for program in ["lab", "clone"] {
            archive.program_from(&format!("bin/{program}"), &self.programs.dir.join(program))?;
        }
        archive.program_from("usr/bin/postmark", &self.postmark.find(&["usr/bin/postmark"])?)?;
        // The program names its loader by this path; the loader looks for libraries in the other.
        archive.program_from("lib64/ld-linux-x86-64.so.2", &self.libc.find(&LOADER)?)?;
        archive.program_from("lib/x86_64-linux-gnu/libc.so.6", &self.libc.find(&C_LIBRARY)?)?;
        if let Some(module) = &self.module {
            archive.data("lib/reprieve_lab.ko", error::read(module)?)?;
        }
        if let Some(programs) = &self.host_programs {
            programs.add(&mut archive)?;
        }
        if let Some(fio) = &self.fio {
            fio.add(&mut archive)?;
        }
        if let Some(hostile) = &self.hostile {
            hostile.add(&mut archive)?;
        }
        if let Some(planted) = &self.planted {
            archive.data("lib/reprieve_planted.ko", error::read(planted)?)?;
        }
        add_drivers(&mut archive, kernel, &DRIVERS)?;
        Ok(archive)
    }
}

/// The drivers, and the order in which init loads them.
pub(crate) fn add_drivers(archive: &mut Initramfs, kernel: &Kernel, wanted: &[&str]) -> Result<()> {
    let drivers: Vec<Module> = match &kernel.modules_dir {
        Some(dir) => modules::closure(dir, &kernel.release, wanted)?,
        None => Vec::new(),
    };
    let mut order = String::new();
    for Module { name, content } in drivers {
        order.push_str(&format!("{name}.ko\n"));
        archive.data(&format!("lib/modules/{name}.ko"), content)?;
    }
    archive.data("lib/order", order.into_bytes())
}
