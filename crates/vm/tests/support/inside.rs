//! This test program itself inside a guest: its own tests of other crates run there, on another kernel than the host's.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{BOOT_LIMIT, Bench, skip, text};

/// Before the lab's own init: mounts what tests need, runs them, leaves no mount behind.
const INIT: &str = "#!/bin/busybox sh
cd /inside
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
$busybox mkdir -p /tmp
for name in sleep taskset true; do $busybox ln -s busybox /bin/$name; done
export PATH=/bin RUST_BACKTRACE=0 REPRIEVE_TEST_SELF=/inside/self ENVIRONMENT
./self FILTER --nocapture --test-threads=1 >/inside/output 2>&1
$busybox umount /sys/fs/cgroup /sys /proc /dev
exec /init
";
/// A program of the host's needs the host's loader and libraries.
const SELF: &str = "#!/bin/busybox sh\nexec /inside/ld.so --library-path /inside /inside/tests \"$@\"\n";

/// Runs the tests whose names contain `filter` in a guest of so many vCPUs, with more in the environment, for as long as
/// `limit`, and says what they printed; none if it is not known what this program is linked with.
pub fn run(bench: &Bench, vcpus: usize, filter: &str, environment: &str, limit: Duration) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let Some((loader, libraries)) = libraries(&exe) else {
        return skip(&"ldd does not say what this program is linked with");
    };
    let directory = tempfile::tempdir().unwrap();
    let initramfs = directory.path().join("initramfs.cpio");
    let mut archive = std::fs::read(&bench.lab.image.initramfs).unwrap();
    let init = INIT.replace("FILTER", filter).replace("ENVIRONMENT", environment);
    append(&mut archive, &init, &exe, &loader, &libraries);
    std::fs::write(&initramfs, archive).unwrap();

    let mut spec = bench.spec(vcpus, 512, "rdinit=/inside/init");
    spec.initramfs = initramfs;
    let booted = bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT + limit);
    let mut booted = booted.unwrap_or_else(|error| panic!("{error}"));
    let output = text(&mut booted, "/inside/output");
    eprintln!("{output}");
    Some(output)
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
    add("inside/tests", 0o100_755, &std::fs::read(exe).unwrap());
    add("inside/self", 0o100_755, SELF.as_bytes());
    add("inside/ld.so", 0o100_755, &std::fs::read(loader).unwrap());
    for library in libraries {
        let name = library.file_name().unwrap().to_str().unwrap();
        add(&format!("inside/{name}"), 0o100_755, &std::fs::read(library).unwrap());
    }
    cpio::newc::trailer(archive).unwrap();
}
