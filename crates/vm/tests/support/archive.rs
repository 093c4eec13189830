//! A program of the host's, and an init script, for a guest: an archive that goes behind the image's own. The guest finds all in
//! `/inside`: `init`, which is to be its first program, and `self`, which starts the program.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of the host's needs the host's loader and libraries.
const SELF: &str = "#!/bin/busybox sh\nexec /inside/ld.so --library-path /inside /inside/program \"$@\"\n";

/// The image's archive with that behind it; none if it is not known what the program is linked with.
pub fn with_program(initramfs: &Path, program: &Path, init: &str) -> Option<Vec<u8>> {
    let (loader, libraries) = libraries(program)?;
    let mut archive = std::fs::read(initramfs).unwrap();
    append(&mut archive, init, program, &loader, &libraries);
    Some(archive)
}

/// The dynamic loader of a program, and the libraries it would load.
fn libraries(program: &Path) -> Option<(PathBuf, BTreeSet<PathBuf>)> {
    let output = Command::new("ldd").arg(program).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths = text.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let (loaders, libraries): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = paths
        .partition(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-")));
    Some((loaders.into_iter().next()?, libraries))
}

/// Puts a second archive behind the first; the kernel unpacks one after the other.
fn append(archive: &mut Vec<u8>, init: &str, exe: &Path, loader: &Path, libraries: &BTreeSet<PathBuf>) {
    let mut inode = 1_000_000;
    let mut add = |name: &str, mode: u32, content: &[u8]| {
        inode += 1;
        let entry = cpio::newc::Builder::new(name).ino(inode).mode(mode).nlink(1);
        let mut writer = entry.write(&mut *archive, content.len() as u32);
        writer.write_all(content).unwrap();
        writer.finish().unwrap();
    };
    add("inside", 0o040_755, &[]);
    add("inside/init", 0o100_755, init.as_bytes());
    add("inside/program", 0o100_755, &std::fs::read(exe).unwrap());
    add("inside/self", 0o100_755, SELF.as_bytes());
    add("inside/ld.so", 0o100_755, &std::fs::read(loader).unwrap());
    for library in libraries {
        let name = library.file_name().unwrap().to_str().unwrap();
        add(&format!("inside/{name}"), 0o100_755, &std::fs::read(library).unwrap());
    }
    cpio::newc::trailer(archive).unwrap();
}
