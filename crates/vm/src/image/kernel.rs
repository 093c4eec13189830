//! The guest's kernel: a bzImage to boot, its uncompressed ELF image, and the type information (BTF) in that.
//!
//! Sources: Documentation/arch/x86/boot.rst (setup header), Documentation/bpf/btf.rst.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::decompress::{UNPACKED_BYTES_MAX, decompress};
use super::{Cache, ImageError, Result, Unpacked, cache, error};
use crate::Step;

/// Which kernel a guest boots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// The distribution's current one for virtual machines.
    #[default]
    Current,
    /// The distribution's one of this series: two numbers, such as "6.12".
    Series(String),
    /// The user's own: a bzImage or an ELF vmlinux.
    File(PathBuf),
}

impl KernelChoice {
    /// As a scenario says it: nothing, a series, or a file. (A file in the current directory whose name is a series can be had by
    /// `./NAME`.)
    pub fn of(text: &str) -> KernelChoice {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once('.') {
            _ if text.is_empty() => KernelChoice::Current,
            Some((major, minor)) if is_number(major) && is_number(minor) => KernelChoice::Series(text.into()),
            _ => KernelChoice::File(text.into()),
        }
    }
}

/// A kernel that a guest can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` says it.
    pub release: String,
    /// What the virtual machine boots.
    pub vmlinuz: PathBuf,
    /// For building modules (`make -C`). `None`: none can be built, so the memory workload is not to be had.
    pub headers_dir: Option<PathBuf>,
    /// Its modules, as `/lib/modules/RELEASE`. `None`: all the guest needs is taken to be built in.
    pub modules_dir: Option<PathBuf>,
    /// The same for the same kernel, different for different ones: a package's version, or a hash.
    pub(crate) id: String,
}

/// Largest kernel file read, bytes.
const KERNEL_FILE_BYTES_MAX: u64 = UNPACKED_BYTES_MAX as u64;

// Offsets in the setup header (boot.rst), bytes from the start of the file.
const SETUP_SECTORS: usize = 0x1f1;
const HEADER_MAGIC: usize = 0x202;
const HEADER_VERSION: usize = 0x206;
const KERNEL_VERSION: usize = 0x20e;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// The payload fields came with this version of the boot protocol.
const HEADER_VERSION_MIN: u16 = 0x0208;
const SECTOR_BYTES: usize = 512;

impl Kernel {
    /// The kernel of an unpacked image package, with its headers if they were unpacked beside it.
    pub(crate) fn of_packages(unpacked: &Unpacked) -> Result<Kernel> {
        let boot = unpacked.find(&["boot"])?;
        let lacks =
            || ImageError::PackageLacks { package: unpacked.id.clone(), what: "boot/vmlinuz-*".into() };
        let names = fs::read_dir(&boot).map_err(ImageError::io(&boot))?;
        let release = names
            .flatten()
            .find_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned()))
            .ok_or_else(lacks)?;
        let modules = format!("lib/modules/{release}");
        Ok(Kernel {
            vmlinuz: boot.join(format!("vmlinuz-{release}")),
            headers_dir: unpacked.find(&[&format!("usr/src/linux-headers-{release}")]).ok(),
            modules_dir: Some(unpacked.find(&[&modules, &format!("usr/{modules}")])?),
            id: unpacked.id.clone(),
            release,
        })
    }

    /// A kernel of the user's own: a bzImage, or an ELF vmlinux (which QEMU boots only if built with
    /// `CONFIG_PVH`). `modules_dir` is as `/lib/modules/RELEASE`, `headers_dir` as its `build`; without them,
    /// these very directories are taken if they exist.
    ///
    /// # Errors
    /// The file is not a kernel.
    pub fn of_file(vmlinuz: &Path, modules_dir: Option<&Path>, headers_dir: Option<&Path>) -> Result<Kernel> {
        let unreadable = |error: std::io::Error| not_a_kernel(vmlinuz, &error.to_string());
        let vmlinuz = &fs::canonicalize(vmlinuz).map_err(unreadable)?;
        // Opening a FIFO would wait for its writer.
        if !fs::metadata(vmlinuz).map_err(unreadable)?.is_file() {
            return Err(not_a_kernel(vmlinuz, "not a file"));
        }
        let data = read_kernel(vmlinuz)?;
        let release = release(vmlinuz, &data)?;
        let installed = Path::new("/lib/modules").join(&release);
        let absolute = |dir: Option<&Path>, otherwise: PathBuf| match dir {
            Some(dir) => fs::canonicalize(dir).map(Some).map_err(ImageError::io(dir)),
            None => Ok(fs::canonicalize(otherwise).ok()),
        };
        Ok(Kernel {
            release,
            headers_dir: absolute(headers_dir, installed.join("build"))?,
            modules_dir: absolute(modules_dir, installed)?,
            id: cache::key_of([data.as_slice()]),
            vmlinuz: vmlinuz.clone(),
        })
    }

    /// The kernel's BTF section, raw; unpacked once, then from the cache.
    ///
    /// # Errors
    /// The kernel cannot be unpacked, or has no BTF.
    pub fn btf_bytes(&self, cache: &Cache, progress: &mut Step) -> Result<Vec<u8>> {
        let entry = cache.make("btf", &self.id, |dir| {
            progress(&format!("unpacking the kernel {} for its type information", self.release));
            error::write(&dir.join("vmlinux.btf"), btf_section(&self.vmlinuz, &vmlinux(&self.vmlinuz)?)?)
        })?;
        error::read(&entry.join("vmlinux.btf"))
    }
}

/// The uncompressed ELF image in a bzImage; an ELF file is given back as it is.
///
/// # Errors
/// The file is neither, is damaged, or is compressed in a way that is not supported (bzip2, lzma, lzo).
pub fn vmlinux(path: &Path) -> Result<Vec<u8>> {
    let data = read_kernel(path)?;
    if is_elf(&data) {
        return Ok(data);
    }
    let unpacked = decompress(path, payload(path, &data)?)?
        .ok_or_else(|| not_a_kernel(path, "compressed in a way that is not supported"))?;
    if is_elf(&unpacked) { Ok(unpacked) } else { Err(not_a_kernel(path, "its payload is not an ELF image")) }
}

fn read_kernel(path: &Path) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let file = File::open(path).map_err(|error| not_a_kernel(path, &error.to_string()))?;
    file.take(KERNEL_FILE_BYTES_MAX + 1).read_to_end(&mut data).map_err(ImageError::io(path))?;
    if data.len() as u64 > KERNEL_FILE_BYTES_MAX {
        return Err(not_a_kernel(path, "larger than any kernel"));
    }
    Ok(data)
}

fn not_a_kernel(path: &Path, problem: &str) -> ImageError {
    ImageError::NotAKernel { path: path.to_owned(), problem: problem.to_owned() }
}

fn is_elf(data: &[u8]) -> bool {
    data.starts_with(b"\x7fELF")
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?) as usize)
}

fn is_bzimage(data: &[u8]) -> bool {
    data.get(HEADER_MAGIC..HEADER_MAGIC + 4) == Some(b"HdrS")
        && u16_at(data, HEADER_VERSION).is_some_and(|version| version >= HEADER_VERSION_MIN)
}

/// The compressed kernel in a bzImage. Its place is relative to the code after the setup sectors.
fn payload<'a>(path: &Path, data: &'a [u8]) -> Result<&'a [u8]> {
    if !is_bzimage(data) {
        return Err(not_a_kernel(path, "neither a bzImage nor an ELF file"));
    }
    let range = || {
        // 0 means 4, for old boot loaders' sake. One more sector is the boot sector itself.
        let setup_sectors = match *data.get(SETUP_SECTORS)? {
            0 => 4,
            sectors => usize::from(sectors),
        };
        let from = (setup_sectors + 1) * SECTOR_BYTES + u32_at(data, PAYLOAD_OFFSET)?;
        data.get(from..from.checked_add(u32_at(data, PAYLOAD_LENGTH)?)?)
    };
    range().ok_or_else(|| not_a_kernel(path, "its payload lies outside the file"))
}

/// The release: the first word of the version text, which a bzImage points to and an ELF image has somewhere
/// after "Linux version ".
fn release(path: &Path, data: &[u8]) -> Result<String> {
    let text = if is_bzimage(data) {
        u16_at(data, KERNEL_VERSION).and_then(|at| data.get(usize::from(at) + SECTOR_BYTES..))
    } else if is_elf(data) {
        const BANNER: &[u8] = b"Linux version ";
        let digit = |at: &usize| data.get(at + BANNER.len()).is_some_and(u8::is_ascii_digit);
        let found = data.windows(BANNER.len()).enumerate().filter(|(_, window)| *window == BANNER);
        found.map(|(at, _)| at).find(digit).and_then(|at| data.get(at + BANNER.len()..))
    } else {
        return Err(not_a_kernel(path, "neither a bzImage nor an ELF file"));
    };
    let word = text.and_then(|text| text.split(|&byte| byte == b' ' || byte == 0).next());
    word.and_then(|word| std::str::from_utf8(word).ok())
        .filter(|word| !word.is_empty() && word.len() < 65 && !word.contains('/'))
        .map(str::to_owned)
        .ok_or_else(|| not_a_kernel(path, "it does not say its version"))
}

fn btf_section<'a>(path: &Path, vmlinux: &'a [u8]) -> Result<&'a [u8]> {
    let file = object::File::parse(vmlinux).map_err(|error| not_a_kernel(path, &error.to_string()))?;
    let section = file.section_by_name(".BTF").ok_or_else(|| ImageError::NoBtf { path: path.to_owned() })?;
    section.data().map_err(|error| not_a_kernel(path, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with this payload and the release "6.1.0-test".
    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut data = vec![0; 2 * SECTOR_BYTES];
        data[SETUP_SECTORS] = 1;
        data[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        data[HEADER_VERSION..HEADER_VERSION + 2].copy_from_slice(&0x020fu16.to_le_bytes());
        data[KERNEL_VERSION..KERNEL_VERSION + 2].copy_from_slice(&0x100u16.to_le_bytes());
        data[0x300..0x310].copy_from_slice(b"6.1.0-test (x@y)");
        data[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&0u32.to_le_bytes());
        data[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        data.extend_from_slice(payload);
        data
    }

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn a_series_is_told_from_a_file() {
        let file = |text: &str| KernelChoice::File(text.into());
        assert_eq!(KernelChoice::of(""), KernelChoice::Current);
        assert_eq!(KernelChoice::of("6.12"), KernelChoice::Series("6.12".into()));
        for text in ["/boot/vmlinuz-6.12", "./6.12", "6.12.3", "6", "6.", ".12", "6.12-rc1"] {
            assert_eq!(KernelChoice::of(text), file(text), "{text}");
        }
    }

    #[test]
    fn release_and_payload_of_a_bzimage() {
        let data = bzimage(b"payload");
        assert_eq!(release(Path::new("k"), &data).unwrap(), "6.1.0-test");
        assert_eq!(payload(Path::new("k"), &data).unwrap(), b"payload");
    }

    #[test]
    fn release_of_an_elf_image() {
        let data = b"\x7fELF Linux version %s Linux version 6.9.1 (gcc)";
        assert_eq!(release(Path::new("k"), data).unwrap(), "6.9.1");
    }

    #[test]
    fn what_is_no_kernel_is_refused_with_the_way_out() {
        for content in [b"text".to_vec(), Vec::new(), bzimage(b"not compressed")] {
            let error = vmlinux(file(&content).path()).unwrap_err().to_string();
            assert!(error.contains("bzImage"), "{error}");
        }
        let data = bzimage(b"payload");
        for length in 0..data.len() {
            assert!(payload(Path::new("k"), &data[..length]).is_err(), "{length}");
            let _ = release(Path::new("k"), &data[..length]);
        }
    }

    #[test]
    fn an_elf_without_btf_says_so() {
        // A header alone: 64-bit, little endian, no sections.
        let mut elf = vec![0; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
        elf[52] = 64;
        elf[58] = 64;
        let error = btf_section(Path::new("k"), &elf).unwrap_err().to_string();
        assert!(error.contains("CONFIG_DEBUG_INFO_BTF=y"), "{error}");
    }
}
