//! Hashes the source of the policy, so that a record tells which one decided in it: FNV-1a of 64 bits over all files of
//! `crates/policy/src`, in the order of their paths. (Fowler, Noll, Vo: "The FNV Non-Cryptographic Hash Algorithm", IETF
//! draft.)

use std::path::{Path, PathBuf};
use std::{env, fs};

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn main() {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../policy/src");
    println!("cargo:rerun-if-changed={}", source.display());
    let mut files = Vec::new();
    collect(&source, &mut files);
    files.sort();
    let bytes = files.iter().flat_map(|file| fs::read(file).unwrap_or_default());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    println!("cargo:rustc-env=REPRIEVE_POLICY={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
