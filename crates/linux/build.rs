//! Compiles the eBPF programs where the feature `ebpf` asks for them. Needs clang, and the headers of libbpf and Linux
//! (Debian: clang, libbpf-dev, linux-libc-dev).

use std::path::{Path, PathBuf};
use std::process::Command;

/// The I/O events of `reprieve migrate`, and the collector's highest tier.
const SOURCES: [&str; 2] = ["src/migrate/find/io_events.bpf.c", "src/observe/deep/kernel.bpf.c"];

fn main() {
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    if std::env::var_os("CARGO_FEATURE_EBPF").is_some() {
        SOURCES.iter().for_each(|source| compile(Path::new(source)));
    }
}

fn compile(source: &Path) {
    let name = source.with_extension("o");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let out = out.join(name.file_name().expect("a file"));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // Debian keeps the headers of each architecture apart.
    let headers = format!("-I/usr/include/{arch}-linux-gnu");
    let clang = std::env::var("CLANG").unwrap_or("clang".into());
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", &headers, "-c"])
        .arg(source)
        .arg("-o")
        .arg(&out)
        .status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed ({status}); the feature `ebpf` needs clang and libbpf-dev"),
        Err(e) => panic!("{clang}: {e}; the feature `ebpf` needs clang and libbpf-dev"),
    }
}
