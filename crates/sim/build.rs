//! Hashes source, so that a record tells what made it: that of the policy, and that of all that a simulated run depends on. FNV-1a
//! of 64 bits over all files of the folders, in the order of their paths. (Fowler, Noll, Vo: "The FNV Non-Cryptographic Hash
//! Algorithm", IETF draft.)

use std::path::{Path, PathBuf};
use std::{env, fs};

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn main() {
    println!("cargo:rustc-env=REPRIEVE_POLICY={:016x}", hash(&["../policy/src"]));
    println!("cargo:rustc-env=REPRIEVE_SIMULATOR={:016x}", hash(&["../policy/src", "../study/src", "src"]));
}

fn hash(folders: &[&str]) -> u64 {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let mut files = Vec::new();
    for folder in folders {
        let folder = Path::new(&here).join(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        let before = files.len();
        collect(&folder, &mut files);
        files[before..].sort();
    }
    let bytes = files.iter().flat_map(|file| fs::read(file).expect("every source can be read"));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
