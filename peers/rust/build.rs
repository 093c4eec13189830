//! Tells the binaries which versions of the libraries they were built with: `LIBRARY_VERSION_<name>`, from Cargo.lock.

use std::path::Path;

fn main() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).expect("the workspace has a Cargo.lock");
    for package in text.split("[[package]]") {
        if let (Some(name), Some(version)) = (field(package, "name"), field(package, "version")) {
            println!("cargo::rustc-env=LIBRARY_VERSION_{}={version}", name.replace('-', "_"));
        }
    }
}

/// The value of `key = "value"`.
fn field<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}
