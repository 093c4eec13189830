//! The peers' programs: one directory with one program per scheme, which has the scheme's name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_linux::signals::Interrupt;
use reprieve_study::delete_free::{self, Identity};
use reprieve_study::overrides;

use crate::{Result, ThreadsError, program};

/// The environment variable that names the directory of the programs.
pub const VARIABLE: &str = "REPRIEVE_PEERS";
/// How to get the programs.
pub const WAY_OUT: &str = "build the peers' programs with: make peers";
/// How long a program may take to describe itself, for which it computes nothing.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(10);

/// The directory of the programs: `named`, the value of [`VARIABLE`], if set and not empty; else `peers` next to the
/// directory of the executable `exe`, where `make peers` puts them.
pub fn directory(named: Option<OsString>, exe: &Path) -> PathBuf {
    match named.filter(|named| !named.is_empty()) {
        Some(named) => named.into(),
        None => exe.parent().and_then(Path::parent).unwrap_or(Path::new("")).join("peers"),
    }
}

/// A directory of programs.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Which.
    pub directory: PathBuf,
}

impl Peers {
    /// Opens a directory of programs.
    ///
    /// # Errors
    /// [`ThreadsError::Missing`] if it contains none.
    pub fn open(directory: &Path) -> Result<Peers> {
        let peers = Peers { directory: directory.into() };
        if peers.names().is_empty() {
            let what = format!("{} with the peers' programs", directory.display());
            return Err(ThreadsError::Missing { what, way_out: WAY_OUT.into() });
        }
        Ok(peers)
    }

    /// The names of all programs, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The path of a scheme's program.
    ///
    /// # Errors
    /// [`ThreadsError::Missing`], with the most similar name, if there is none.
    pub fn program(&self, scheme: &str) -> Result<PathBuf> {
        let path = self.directory.join(scheme);
        if path.is_file() {
            return Ok(path);
        }
        let names = self.names();
        let near = overrides::nearest(scheme, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("did you mean {near}? or "));
        let what = format!("the program of the scheme {scheme} in {}", self.directory.display());
        Err(ThreadsError::Missing { what, way_out: format!("{near}{WAY_OUT}") })
    }

    /// Asks a scheme's program to describe itself.
    ///
    /// # Errors
    /// As [`Peers::program`] and [`program::run`], and [`ThreadsError::Program`] if it names another scheme.
    pub fn describe(&self, scheme: &str, interrupt: &Interrupt) -> Result<Identity> {
        let path = self.program(scheme)?;
        let said = program::run(&path, &["--describe".into()], DESCRIBE_LIMIT, interrupt, |_| ())?;
        let identity: Identity = said.read(delete_free::parse)?;
        if identity.scheme != scheme {
            return Err(said.failed(format!("says that its scheme is {:?}", identity.scheme)));
        }
        Ok(identity)
    }
}
