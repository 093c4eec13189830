//! A program of the host's inside a guest, on another kernel than the host's: this test program, whose own tests of other crates
//! run there, or another one.

#[path = "archive.rs"]
mod archive;

use std::path::Path;
use std::time::Duration;

use reprieve_vm::lab::Booted;

use crate::support::{BOOT_LIMIT, Bench, skip, text};

/// What the program printed, in the guest.
pub const OUTPUT: &str = "/inside/output";

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
export PATH=/bin RUST_BACKTRACE=0 REPRIEVE_TEST_SELF=/inside/self
COMMAND >/inside/output 2>&1
$busybox umount /sys/fs/cgroup /sys /proc /dev
exec /init
";

/// Runs the tests whose names contain `filter` in a guest of so many vCPUs, with more in the environment, for as long as
/// `limit`, and says what they printed; none if it is not known what this program is linked with.
#[allow(dead_code)] // A program that only runs another one inside does not use it.
pub fn run(bench: &Bench, vcpus: usize, filter: &str, environment: &str, limit: Duration) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let command = format!("{environment} ./self {filter} --nocapture --test-threads=1");
    let mut booted = booted_after(bench, vcpus, &exe, &command, limit)?;
    let output = text(&mut booted, OUTPUT);
    eprintln!("{output}");
    Some(output)
}

/// A guest that has run this line of its shell, in which `./self` is `program`, for as long as `limit`. What the line printed is
/// in the guest's file [`OUTPUT`].
pub fn booted_after(
    bench: &Bench,
    vcpus: usize,
    program: &Path,
    command: &str,
    limit: Duration,
) -> Option<Booted> {
    let init = INIT.replace("COMMAND", command);
    let Some(archive) = archive::with_program(&bench.lab.image.initramfs, program, &init) else {
        return skip(&format!("ldd does not say what {} is linked with", program.display()));
    };
    let directory = tempfile::tempdir().unwrap();
    let initramfs = directory.path().join("initramfs.cpio");
    std::fs::write(&initramfs, archive).unwrap();

    let mut spec = bench.spec(vcpus, 512, "rdinit=/inside/init");
    spec.initramfs = initramfs;
    let booted = bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT + limit);
    Some(booted.unwrap_or_else(|error| panic!("{error}")))
}
