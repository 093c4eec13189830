//! Compiles the eBPF program of `reprieve migrate` where the feature `ebpf` asks for it. Needs clang, and the headers of
//! libbpf and Linux (Debian: clang, libbpf-dev, linux-libc-dev).

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/migrate/find/io_events.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    if std::env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("io_events.bpf.o");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // Debian keeps the headers of each architecture apart.
    let headers = format!("-I/usr/include/{arch}-linux-gnu");
    let clang = std::env::var("CLANG").unwrap_or("clang".into());
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", &headers, "-c", SOURCE, "-o"])
        .arg(&out)
        .status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed ({status}); the feature `ebpf` needs clang and libbpf-dev"),
        Err(e) => panic!("{clang}: {e}; the feature `ebpf` needs clang and libbpf-dev"),
    }
}
