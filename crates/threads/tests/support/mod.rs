//! Stub programs in place of the peers': one script, with one link per name; see `stub.sh`.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The roles that `stub.sh` plays.
const NAMES: [&str; 17] = [
    "one",
    "two",
    "liar",
    "mute",
    "fails",
    "refuses",
    "lacks",
    "dies",
    "nonsense",
    "floods",
    "hangs",
    "sleeps",
    "deaf",
    "errs",
    "frees-nothing",
    "helped",
    "other",
];

/// A folder with a program of each name. It is made before any test starts a program: a script cannot be started while
/// it is open for writing, even in a child that another test has just forked.
pub fn peers() -> &'static Path {
    static PEERS: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = std::env::current_exe().unwrap();
        let name = program.file_name().unwrap().to_str().unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peers-of-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let script = folder.with_extension("sh");
        fs::write(&script, include_str!("stub.sh")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        NAMES.iter().for_each(|name| symlink(&script, folder.join(name)).unwrap());
        folder
    });
    &PEERS
}

/// Whether the process exists and has not ended.
pub fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
