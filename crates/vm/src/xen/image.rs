//! What the ground xen boots: Xen itself, one kernel for dom0 and domUs, and their initial file systems.
//!
//! dom0 holds the toolstack's few programs with their libraries, the kernel's image for the domUs, and their file
//! system, which is one program. The kernel is the distribution's for real machines: the one for clouds has no dom0.

use std::fs;
use std::path::PathBuf;

use crate::Step;
use crate::image::cache::key_of;
use crate::image::compile::{self, Programs};
use crate::image::decompress::decompress;
use crate::image::error::{self, ImageError, Result};
use crate::image::initramfs::Initramfs;
use crate::image::packages::{self, Unpacked};
use crate::image::{self, Cache, Kernel, libraries};

/// The version of Xen whose packages are taken.
pub const XEN_VERSION: &str = "4.17";

/// The kernel for dom0 and domUs.
const KERNELS: [&[&str]; 1] = [&["linux-image-amd64"]];

/// Packages with Xen, its programs and all libraries of theirs.
const PACKAGES: [&str; 21] = [
    "xen-hypervisor-4.17-amd64",
    "xen-utils-4.17",
    "xenstore-utils",
    "busybox-static",
    "libc6",
    "libgcc-s1",
    "liblzma5",
    "libuuid1",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    "libxenmisc4.17",
    "libxenstore4",
    "libxentoolcore1",
    "libxentoollog1",
    "libyajl2",
    "libzstd1",
    "zlib1g",
];

/// dom0's programs: where they are in the packages, and there.
const PROGRAMS: [(&str, &str); 6] = [
    ("usr/lib/xen-4.17/bin/xl", "xl"),
    ("usr/lib/xen-4.17/bin/xenstored", "xenstored"),
    ("usr/lib/xen-4.17/bin/xenconsoled", "xenconsoled"),
    ("usr/lib/xen-4.17/bin/xen-init-dom0", "xen-init-dom0"),
    ("usr/lib/xen-4.17/bin/xentrace", "xentrace"),
    ("usr/bin/xenstore-read", "xenstore-read"),
];

/// A thread that ends loads it by name: no program says so.
const LOADED_LATER: [&str; 1] = ["libgcc_s.so.1"];

/// Drivers of the toolstack, in the order in which they are loaded.
const DRIVERS: [&str; 5] = ["xen_privcmd", "xen_evtchn", "xen_gntdev", "xen_gntalloc", "xenfs"];

/// All that a machine with Xen boots.
#[derive(Clone, Debug)]
pub struct XenImage {
    /// Xen, an ELF image.
    pub hypervisor: PathBuf,
    /// The kernel of dom0 and domUs, an ELF image.
    pub vmlinux: PathBuf,
    /// dom0's file system.
    pub initramfs: PathBuf,
    /// The hypervisor package's name and version.
    pub xen: String,
    /// The kernel's release.
    pub release: String,
}

/// Everything, from the cache where it is there. `progress` is told of each step that takes time: downloading (about
/// 75 MB), compiling, unpacking.
pub fn prepare(cache: &Cache, progress: &mut Step) -> Result<XenImage> {
    let kernel = Kernel::of_packages(&packages::kernel(cache, &KERNELS, progress)?)?;
    let packages = packages::singles(cache, PACKAGES, progress)?;
    let compiler = compile::compiler(cache)?;
    let programs = compile::programs(cache, &compile::XEN, &compiler, progress)?;
    let ingredients = Ingredients { kernel, packages, programs };
    let entry = cache.make("xen", &ingredients.key(), |dir| {
        progress("making the file systems of dom0 and domUs");
        ingredients.assemble(dir)
    })?;
    Ok(XenImage {
        hypervisor: entry.join("xen"),
        vmlinux: entry.join("vmlinux"),
        initramfs: entry.join("dom0.cpio"),
        xen: ingredients.packages[0].id.clone(),
        release: ingredients.kernel.release,
    })
}

/// Which Xen there is, in the cache or to be downloaded, for a check beforehand.
///
/// # Errors
/// The distribution does not have it.
pub fn available(cache: &Cache) -> Result<String> {
    packages::known(cache, &PACKAGES[..1])
}

struct Ingredients {
    kernel: Kernel,
    packages: [Unpacked; PACKAGES.len()],
    programs: Programs,
}

impl Ingredients {
    fn key(&self) -> String {
        let ids = self.packages.iter().map(|package| package.id.as_str());
        let others = [self.kernel.id.as_str(), &self.programs.key, compile::XEN_INIT];
        let lists = DRIVERS.into_iter().chain(LOADED_LATER).chain(PROGRAMS.map(|(_, name)| name));
        key_of(ids.chain(others).chain(lists).map(str::as_bytes))
    }

    fn assemble(&self, dir: &std::path::Path) -> Result<()> {
        error::write(&dir.join("xen"), self.hypervisor()?)?;
        let vmlinux = image::vmlinux(&self.kernel.vmlinuz)?;
        error::write(&dir.join("vmlinux"), &vmlinux)?;
        self.dom0(vmlinux)?.write_to(&dir.join("dom0.cpio"))
    }

    /// QEMU takes no compressed one.
    fn hypervisor(&self) -> Result<Vec<u8>> {
        let boot = self.packages[0].find(&["boot"])?;
        let compressed = |name: &str| name.starts_with("xen-") && name.ends_with(".gz");
        let name = fs::read_dir(&boot)
            .map_err(ImageError::io(&boot))?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .find(|name| compressed(name));
        let path = self.packages[0].find(&[&format!("boot/{}", name.as_deref().unwrap_or("xen-*.gz"))])?;
        let data = error::read(&path)?;
        Ok(decompress(&path, &data)?.unwrap_or(data))
    }

    fn dom0(&self, vmlinux: Vec<u8>) -> Result<Initramfs> {
        let mut archive = Initramfs::default();
        archive.program("init", compile::XEN_INIT.into())?;
        archive.data("boot/vmlinux", vmlinux)?;
        archive.data("boot/domU.cpio", self.dom_u()?)?;
        archive.program_from("bin/busybox", &self.find(&["usr/bin/busybox", "bin/busybox"])?)?;
        archive.program_from("bin/carry", &self.programs.dir.join("carry"))?;
        let mut programs = Vec::new();
        for (path, name) in PROGRAMS {
            let path = self.find(&[path])?;
            archive.program_from(&format!("bin/{name}"), &path)?;
            programs.push(path);
        }
        for (name, path) in libraries::in_packages(&self.packages, &programs, &LOADED_LATER)? {
            archive.program_from(&format!("lib/{name}"), &path)?;
        }
        // Programs name their loader by this path.
        archive.program_from("lib64/ld-linux-x86-64.so.2", &self.find(&image::LOADER)?)?;
        image::add_drivers(&mut archive, &self.kernel, &DRIVERS)?;
        Ok(archive)
    }

    fn dom_u(&self) -> Result<Vec<u8>> {
        let mut archive = Initramfs::default();
        archive.program_from("init", &self.programs.dir.join("wakeup"))?;
        let mut bytes = Vec::new();
        archive.write(&mut bytes).map_err(ImageError::io(&self.programs.dir))?;
        Ok(bytes)
    }

    /// The first of these paths that is in one of the packages.
    fn find(&self, names: &[&str]) -> Result<PathBuf> {
        let found = self.packages.iter().find_map(|package| package.find(names).ok());
        found.ok_or_else(|| ImageError::PackageLacks {
            package: PACKAGES.join(", "),
            what: names.join(" or "),
        })
    }
}
