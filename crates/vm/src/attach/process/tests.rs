//! Tests on a fake `/proc`.

use std::path::Path;

use tempfile::TempDir;

use super::*;

const LIBVIRT: &str = "/usr/bin/qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0-machine\0pc-q35-7.2,usb=off\0-m\0\
                       size=4194304k,slots=16\0-chardev\0socket,id=charmonitor,path=/run/libvirt/qemu/m.sock,server=on\0";

fn put(dir: &Path, relative: &str, text: &str) {
    let path = dir.join(relative);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A process with threads of these names.
fn process(pid: i32, line: &str, threads: &[&str]) -> (TempDir, ProcRoot) {
    let dir = tempfile::tempdir().unwrap();
    add(dir.path(), pid, line, threads);
    let root = ProcRoot::new(dir.path());
    (dir, root)
}

fn add(dir: &Path, pid: i32, line: &str, threads: &[&str]) {
    let stat = format!("{pid} (qemu) S 1 42 42 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 777 1000 10\n");
    put(dir, &format!("{pid}/stat"), &stat);
    put(dir, &format!("{pid}/cmdline"), line);
    for (number, name) in threads.iter().enumerate() {
        let tid = pid + number as i32;
        put(dir, &format!("{pid}/task/{tid}/comm"), &format!("{name}\n"));
    }
}

#[test]
fn a_guest_of_libvirt_s_is_read() {
    let (dir, root) = process(70, LIBVIRT, &["qemu-system-x86", "CPU 1/KVM", "CPU 0/KVM"]);
    put(dir.path(), "70/cgroup", "0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/emulator\n");
    let qemu = of(&root, 70).unwrap();
    assert_eq!((qemu.name.as_str(), qemu.start_ticks), ("web", 777));
    assert_eq!(qemu.vcpus, [72, 71]);
    assert_eq!(qemu.cgroup, "machine-qemu\\x2d1\\x2dweb.scope");
    assert_eq!(qemu.monitors, ["/run/libvirt/qemu/m.sock"]);
    assert_eq!((qemu.memory_bytes, qemu.splits[0]), (4 << 30, Split::Q35));
}

#[test]
fn fifty_guests_are_found_among_others() {
    let (dir, root) = process(1, "/sbin/init\0", &["init"]);
    for pid in (100..600).step_by(10) {
        add(dir.path(), pid, LIBVIRT, &["qemu", "CPU 0/KVM"]);
    }
    add(dir.path(), 700, "/usr/bin/qemu-img\0convert\0", &["qemu-img"]);
    let found = all(&root).unwrap();
    assert_eq!(
        found.iter().map(|qemu| qemu.pid).collect::<Vec<_>>(),
        (100..600).step_by(10).collect::<Vec<_>>()
    );
}

#[test]
fn a_process_that_is_no_guest_is_refused_with_the_way_out() {
    let refusal = |threads: &[&str]| {
        let (_dir, root) = process(70, "qemu-system-x86_64\0", threads);
        of(&root, 70).unwrap_err().to_string()
    };
    assert!(refusal(&["bash"]).contains("debug-threads=on"));
    assert!(refusal(&["CPU 0/KVM", "CPU 2/KVM"]).contains("gaps"));
    let many: Vec<String> = (0..65).map(|number| format!("CPU {number}/KVM")).collect();
    assert!(refusal(&many.iter().map(String::as_str).collect::<Vec<_>>()).contains("more than 64"));
    let (_dir, root) = process(70, "x\0", &[]);
    assert!(of(&root, 71).is_err());
}

#[test]
fn options_are_read_in_all_their_forms() {
    for (value, bytes) in
        [("512", 512 << 20), ("1G", 1 << 30), ("size=1048576k,slots=2", 1 << 30), ("4096M", 4 << 30)]
    {
        assert_eq!(memory_bytes(value), Some(bytes), "{value}");
    }
    for value in ["", "x", "1Q", "99999999999T", "size="] {
        assert_eq!(memory_bytes(value), None, "{value}");
    }
    assert_eq!(guest_name("web,debug-threads=on"), "web");
    assert_eq!(guest_name("guest=db,x=y"), "db");
    let words: Vec<String> = ["--qmp", "unix:/a.sock,server=on", "-qmp", "tcp:x"].map(String::from).into();
    assert_eq!(monitors(&Options(&words)), ["/a.sock"]);
}

#[test]
fn the_guest_s_memory_is_the_mapping_of_its_size() {
    let shared = "7f0000000000-7f0008000000 rw-s 00000000 00:01 77   /memfd:guest-memory (deleted)\n";
    assert_eq!(find_memory(shared, 128 << 20), Some(0x7f00_0000_0000));
    // First two pieces of the same file, then a piece of another file at the place where the first should go on.
    let pieces = "7f0000000000-7f0004000000 rw-s 00000000 00:01 77 /memfd:x\n\
                  7f0004000000-7f0008000000 rw-s 04000000 00:01 77 /memfd:x\n";
    assert_eq!(find_memory(pieces, 128 << 20), Some(0x7f00_0000_0000));
    let others = pieces.replace("04000000 00:01 77", "04000000 00:01 78");
    assert_eq!(find_memory(&others, 128 << 20), None);
    let private = "7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \n7f0004000000-7f0008000000 rw-p 00000000 00:00 0 \n\
                   7f0008000000-7f0008001000 ---p 00000000 00:00 0 \n";
    assert_eq!(find_memory(private, 128 << 20), Some(0x7f00_0000_0000));
    // Another mapping of QEMU's lies right below.
    for below in [
        "7efffff00000-7f0008000000",
        "7efffff00000-7f0000000000 rw-p 00000000 00:00 0 \n7f0000000000-7f0008000000",
    ] {
        let neighbours =
            format!("{below} rw-p 00000000 00:00 0 \n7f0008000000-7f0008001000 ---p 00000000 00:00 0 \n");
        assert_eq!(find_memory(&neighbours, 128 << 20), Some(0x7f00_0000_0000), "{below}");
    }
    assert_eq!(find_memory("x\n1-0 rw-p 0 0\nffffffffffffffffff-1 rw-p 0 0 0\n", 1), None);
}

#[test]
fn qemu_s_names_of_vcpus_are_known() {
    assert_eq!([vcpu("CPU 0/KVM"), vcpu("CPU 13/TCG")], [Some(0), Some(13)]);
    assert_eq!([vcpu("qemu-system-x86"), vcpu("CPU x/KVM"), vcpu("CPU 1")], [None; 3]);
}
