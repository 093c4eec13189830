//! CPU quotas and cpusets on a real cgroup v2 hierarchy, whatever the host has: in a guest, whose kernel has nothing mounted
//! until we say so. The tests are those of the linux crate, unchanged; this program itself runs there.

#[path = "../../linux/tests/migrate_cpuset.rs"]
mod linux_cpuset;
#[path = "../../linux/tests/quota.rs"]
mod linux_quota;
mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{BOOT_LIMIT, Bench, skip, text};

/// Before the lab's own init: mounts a cgroup2 hierarchy, runs the tests, leaves no mount behind.
const INIT: &str = "#!/bin/busybox sh
cd /cgroup_v2
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
$busybox mkdir -p /tmp
$busybox ln -s busybox /bin/sleep
export PATH=/bin RUST_BACKTRACE=0
./ld.so --library-path /cgroup_v2 ./tests linux_ --nocapture --test-threads=1 >/cgroup_v2/output 2>&1
$busybox umount /sys/fs/cgroup /sys /proc /dev
exec /init
";

#[test]
fn quotas_and_cpusets_on_a_real_cgroup_v2_hierarchy() {
    let Some(bench) = Bench::open() else { return };
    let exe = std::env::current_exe().unwrap();
    let Some((loader, libraries)) = libraries(&exe) else {
        return skip(&"ldd does not say what this program is linked with").unwrap_or(());
    };
    let directory = tempfile::tempdir().unwrap();
    let initramfs = directory.path().join("initramfs.cpio");
    let mut archive = std::fs::read(&bench.lab.image.initramfs).unwrap();
    append(&mut archive, &exe, &loader, &libraries);
    std::fs::write(&initramfs, archive).unwrap();

    let mut spec = bench.spec(2, 512, "rdinit=/cgroup_v2/init");
    spec.initramfs = initramfs;
    let booted = bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT);
    let mut booted = booted.unwrap_or_else(|error| panic!("{error}"));
    let output = text(&mut booted, "/cgroup_v2/output");
    eprintln!("{output}");
    assert!(output.contains("test result: ok. 3 passed"), "{output}");
    assert!(!output.contains("skipped:"), "{output}");
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
fn append(archive: &mut Vec<u8>, exe: &Path, loader: &Path, libraries: &BTreeSet<PathBuf>) {
    let mut inode = 1_000_000;
    let mut add = |name: &str, mode: u32, content: &[u8]| {
        inode += 1;
        let entry = cpio::newc::Builder::new(name).ino(inode).mode(mode).nlink(1);
        let mut writer = entry.write(&mut *archive, content.len() as u32);
        writer.write_all(content).unwrap();
        writer.finish().unwrap();
    };
    add("cgroup_v2", 0o040_755, &[]);
    add("cgroup_v2/init", 0o100_755, INIT.as_bytes());
    add("cgroup_v2/tests", 0o100_755, &std::fs::read(exe).unwrap());
    add("cgroup_v2/ld.so", 0o100_755, &std::fs::read(loader).unwrap());
    for library in libraries {
        let name = library.file_name().unwrap().to_str().unwrap();
        add(&format!("cgroup_v2/{name}"), 0o100_755, &std::fs::read(library).unwrap());
    }
    cpio::newc::trailer(archive).unwrap();
}
