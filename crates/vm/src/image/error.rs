//! What can go wrong while an image is made. Each error names what it is about, the cause, and the way out.

use std::io;
use std::path::{Path, PathBuf};

use super::btf::BtfError;

/// `Result` with [`ImageError`].
pub type Result<T, E = ImageError> = std::result::Result<T, E>;

/// Why a guest image could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are, and what their fields are")]
pub enum ImageError {
    /// A file of the cache or of the user could not be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("no cache directory: neither XDG_CACHE_HOME nor HOME is set; set one of them")]
    NoCacheDir,
    #[error(
        "the cache {}: {problem}; free some space or make it writable, or name another place: XDG_CACHE_HOME=DIRECTORY",
        root.display()
    )]
    CacheUnusable { root: PathBuf, problem: String },
    #[error("{program} is not installed; install it with: apt-get install {package}")]
    MissingProgram { program: String, package: &'static str },
    /// A program ran and failed. `hint` is the way out where the output shows it, or nothing; `output` the end of what it
    /// printed.
    #[error("{command} failed ({status}){hint}\n{output}")]
    CommandFailed { command: String, status: String, hint: String, output: String },
    #[error(
        "package {package}: not known to apt; run: apt-get update (and see that its repository is enabled)"
    )]
    UnknownPackage { package: String },
    /// apt knows a package, but cannot download it; `cause` is in apt's words.
    #[error(
        "package {package}: cannot be downloaded: {cause}; check the network and the proxy, and run: apt-get update \
         (without a network: --on sim needs no packages)"
    )]
    NotDownloaded { package: String, cause: String },
    /// A package was unpacked, but is not made as expected.
    #[error("package {package}: no {what} in it")]
    PackageLacks { package: String, what: String },
    #[error(
        "{program}: no library {library} on this host (looked for in {directories}); install the package that has it"
    )]
    NoLibrary { program: String, library: String, directories: String },
    /// Dependencies without end.
    #[error("package {package}: more than {limit} packages in its dependencies")]
    TooManyPackages { package: String, limit: usize },
    #[error("{}: {problem}; hand in an x86-64 bzImage (/boot/vmlinuz-...) or an ELF vmlinux", path.display())]
    NotAKernel { path: PathBuf, problem: String },
    #[error("{}: the kernel has no BTF; choose a kernel built with CONFIG_DEBUG_INFO_BTF=y", path.display())]
    NoBtf { path: PathBuf },
    /// The type information is damaged, or lacks what is asked for.
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("{}: {format} data: {problem}", path.display())]
    Decompress { path: PathBuf, format: &'static str, problem: String },
    #[error("kernel {release}: no module {module} under {}, and it is not built in; \
             choose a kernel with virtio drivers", dir.display())]
    NoModule { release: String, module: String, dir: PathBuf },
    #[error("{}: not a {kind}: {problem}", path.display())]
    BadFile { path: PathBuf, kind: &'static str, problem: String },
    #[error("initramfs: {name}: {problem}")]
    Archive { name: String, problem: String },
}

impl ImageError {
    /// Whether the machine lacks something that an image needs, which the user can provide.
    pub fn is_missing(&self) -> bool {
        match self {
            ImageError::MissingProgram { .. }
            | ImageError::UnknownPackage { .. }
            | ImageError::NotDownloaded { .. }
            | ImageError::CacheUnusable { .. }
            | ImageError::NoCacheDir => true,
            // A hint names what the failed program lacks.
            ImageError::CommandFailed { hint, .. } => !hint.is_empty(),
            ImageError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// For `map_err`: an I/O error of `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
        let path = path.to_path_buf();
        move |source| ImageError::Io { path, source }
    }
}

/// [`std::fs::read`] whose error names the file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(ImageError::io(path))
}

/// [`std::fs::write`] whose error names the file.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).map_err(ImageError::io(path))
}

/// The paths of all that is in a directory.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(ImageError::io(dir))
}
