//! What can go wrong with a sweep's folder.

use std::io;
use std::path::{Path, PathBuf};

use reprieve_study::scenario::BadScenario;

/// Why a sweep could not be planned, run or merged.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The scenario's space cannot be run.
    #[error(transparent)]
    Bad(#[from] BadScenario),
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file of the folder is not as it should be; the way out is in the text.
    #[error("{}: {problem}", path.display())]
    Refused {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it, and the way out.
        problem: String,
    },
    /// One run has two results. Runs repeat exactly, so one of the programs or machines is wrong.
    #[error(
        "run {id} has two results, in {} and {}; runs repeat exactly, so one of these machines or programs is wrong: move the part \
         that is, and run its shard again",
        one.display(), other.display()
    )]
    Differ {
        /// The run.
        id: String,
        /// A part with one of the results.
        one: PathBuf,
        /// A part with the other.
        other: PathBuf,
    },
    /// The user stopped it.
    #[error("interrupted; what has finished is kept, and the same command goes on")]
    Interrupted,
}

impl SweepError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> SweepError {
        let path = path.to_path_buf();
        move |error| SweepError::Io { path, error }
    }

    pub(crate) fn refused(path: &Path, problem: impl Into<String>) -> SweepError {
        SweepError::Refused { path: path.into(), problem: problem.into() }
    }
}
