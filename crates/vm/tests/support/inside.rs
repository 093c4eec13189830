//! This test program itself inside a guest: its own tests of other crates run there, on another kernel than the host's.

#[path = "archive.rs"]
mod archive;

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
/// Runs the tests whose names contain `filter` in a guest of so many vCPUs, with more in the environment, for as long as
/// `limit`, and says what they printed; none if it is not known what this program is linked with.
pub fn run(bench: &Bench, vcpus: usize, filter: &str, environment: &str, limit: Duration) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let init = INIT.replace("FILTER", filter).replace("ENVIRONMENT", environment);
    let Some(archive) = archive::with_program(&bench.lab.image.initramfs, &exe, &init) else {
        return skip(&"ldd does not say what this program is linked with");
    };
    let directory = tempfile::tempdir().unwrap();
    let initramfs = directory.path().join("initramfs.cpio");
    std::fs::write(&initramfs, archive).unwrap();

    let mut spec = bench.spec(vcpus, 512, "rdinit=/inside/init");
    spec.initramfs = initramfs;
    let booted = bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT + limit);
    let mut booted = booted.unwrap_or_else(|error| panic!("{error}"));
    let output = text(&mut booted, "/inside/output");
    eprintln!("{output}");
    Some(output)
}
