//! The errors of the grounds with virtual machines. Each says its cause and, where the user can help, the way out.

use std::time::Duration;
use std::{fmt, io};

use reprieve_study::scenario::BadScenario;
use reprieve_study::shown;

/// `Result` with this ground's [`VmError`].
pub type Result<T, E = VmError> = std::result::Result<T, E>;

/// An error of this ground.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are, and what their fields are")]
pub enum VmError {
    /// The scenario cannot be run on this machine.
    #[error(transparent)]
    Scenario(#[from] BadScenario),
    /// The machine lacks something: a program, a device, a permission.
    #[error("{what} is missing: {way_out}")]
    Missing { what: String, way_out: String },
    /// The guest failed. The last lines of its console are part of the message.
    #[error("{problem}{console}")]
    Guest { problem: String, console: ConsoleTail },
    /// The guest did not boot in time, and printed nothing. `vcpus` says of each its instruction pointer, and whether it is
    /// halted.
    #[error(
        "the guest did not boot within {:.0} s and printed nothing; its vCPUs are at {vcpus}: \
         guest.append=loglevel=7 makes it print what it does", limit.as_secs_f64()
    )]
    Silent { limit: Duration, vcpus: String },
    /// The guest's memory is not what its kernel's type information says.
    #[error("introspection: {0}")]
    Introspect(String),
    /// The image could not be made.
    #[error(transparent)]
    Image(#[from] crate::image::ImageError),
    /// The kernel's types are not as expected.
    #[error(transparent)]
    Types(#[from] crate::image::btf::BtfError),
    /// A probe or an actuator of the host failed.
    #[error(transparent)]
    Host(#[from] reprieve_linux::Error),
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("the daemon's decisions differ from a replay of its record:\n    {0}")]
    Replay(String),
    #[error("interrupted")]
    Interrupted,
}

impl VmError {
    /// For `map_err`: adds what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> VmError {
        let doing = doing.into();
        move |source| VmError::Io { doing, source }
    }

    /// A failure of the guest. Its own words are escaped for a terminal, and cut.
    pub fn guest(problem: impl AsRef<str>) -> VmError {
        VmError::Guest { problem: plain(problem.as_ref()), console: ConsoleTail::default() }
    }

    /// A guest that did not answer in time.
    pub fn late(what: &str, limit: Duration) -> VmError {
        VmError::guest(format!("the guest did not {what} within {:.0} s", limit.as_secs_f64()))
    }

    /// Whether the machine lacks something, or does not permit something, that the user can provide.
    pub fn is_missing(&self) -> bool {
        match self {
            VmError::Missing { .. } => true,
            VmError::Image(error) => error.is_missing(),
            VmError::Host(error) => error.is_not_permitted(),
            _ => false,
        }
    }
}

/// Text from a guest, escaped for the user's terminal, and cut.
pub fn plain(words: &str) -> String {
    let cut: String = words.chars().take(PLAIN_CHARACTERS).collect();
    shown::line(&cut).into_owned()
}

/// Longest text from a guest that is shown.
const PLAIN_CHARACTERS: usize = 400;

/// The last lines of a guest's console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleTail(pub Vec<String>);

impl fmt::Display for ConsoleTail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        out.write_str("; its console ended with:")?;
        self.0.iter().try_for_each(|line| write!(out, "\n    {line}"))
    }
}
