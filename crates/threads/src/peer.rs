//! The programs of the peers: one directory, one program for each scheme, called after it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_linux::signals::Interrupt;
use reprieve_study::delete_free::{self, Identity};
use reprieve_study::overrides;

use crate::error::ThreadsError;
use crate::program;

/// Environment variable that names the directory of the programs.
pub const VARIABLE: &str = "REPRIEVE_PEERS";
/// How the programs are got.
pub const WAY_OUT: &str = "build the programs of the peers with: make peers";
/// A program says who it is within this time: it computes nothing for that.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(10);

/// Where the programs are: in `named`, the value of [`VARIABLE`], if it is set and not empty, else in `peers` beside
/// the directory of the executable `exe`, which is where `make peers` puts them.
pub fn directory(named: Option<OsString>, exe: &Path) -> PathBuf {
    match named.filter(|named| !named.is_empty()) {
        Some(named) => named.into(),
        None => exe.parent().and_then(Path::parent).unwrap_or(Path::new("")).join("peers"),
    }
}

/// A directory of programs.
#[derive(Clone, Debug)]
pub struct Peers {
    directory: PathBuf,
}

impl Peers {
    /// The programs in that directory.
    ///
    /// # Errors
    /// [`ThreadsError::Missing`] if there is none.
    pub fn open(directory: &Path) -> Result<Peers, ThreadsError> {
        let peers = Peers { directory: directory.into() };
        if peers.names().is_empty() {
            let what = format!("{} with the programs of the peers", directory.display());
            return Err(ThreadsError::Missing { what, way_out: WAY_OUT.into() });
        }
        Ok(peers)
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The names of all programs, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The program of a scheme.
    ///
    /// # Errors
    /// [`ThreadsError::Missing`] with the nearest name if there is none.
    pub fn program(&self, scheme: &str) -> Result<PathBuf, ThreadsError> {
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

    /// Asks the program of a scheme who it is.
    ///
    /// # Errors
    /// As [`Peers::program`] and [`program::run`], and [`ThreadsError::Program`] if it says that it is another.
    pub fn describe(&self, scheme: &str, interrupt: &Interrupt) -> Result<Identity, ThreadsError> {
        let path = self.program(scheme)?;
        let said = program::run(&path, &["--describe".into()], DESCRIBE_LIMIT, interrupt, |_| ())?;
        let identity: Identity = said.read(delete_free::parse)?;
        if identity.scheme != scheme {
            return Err(said.failed(format!("says that its scheme is {:?}", identity.scheme)));
        }
        Ok(identity)
    }
}
