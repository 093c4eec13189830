//! Tells the binaries which versions of the libraries they were built with: `LIBRARY_VERSION_<name>`, from Cargo.lock, and
//! that of std from the compiler.

use std::path::Path;
use std::process::Command;

fn main() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).expect("the workspace has a Cargo.lock");
    for package in text.split("[[package]]") {
        if let (Some(name), Some(version)) = (field(package, "name"), field(package, "version")) {
            println!("cargo::rustc-env=LIBRARY_VERSION_{}={version}", name.replace('-', "_"));
        }
    }
    println!("cargo::rustc-env=LIBRARY_VERSION_std={}", compiler_version());
}

/// The second word of `rustc 1.90.0 (...)`.
fn compiler_version() -> String {
    let rustc = std::env::var_os("RUSTC").expect("Cargo names the compiler");
    let said = Command::new(rustc).arg("--version").output().expect("the compiler runs").stdout;
    let said = String::from_utf8(said).expect("the compiler writes UTF-8");
    said.split_whitespace().nth(1).expect("a version").to_owned()
}

/// The value of `key = "value"`.
fn field<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}
