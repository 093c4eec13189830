//! How the command can fail, and its exit codes.

use std::fmt;
use std::process::ExitCode;

use reprieve_sim::SimError;
use reprieve_study::scenario::BadScenario;
use reprieve_threads::ThreadsError;
use reprieve_vm::VmError;
use reprieve_vm::image::ImageError;

/// A failure with its kind.
#[derive(Debug)]
pub enum Failure {
    /// A check failed, a run ended early: 1.
    Failed(String),
    /// Bad usage: 2.
    Usage(String),
    /// Something of the machine is missing: 69 (EX_UNAVAILABLE of sysexits).
    Missing(String),
}

impl Failure {
    /// The process's exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Missing(_) => 69,
        })
    }

    /// Output could not be written.
    pub fn output(error: std::io::Error) -> Failure {
        Failure::Failed(format!("writing the output: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Failed(text) | Failure::Usage(text) | Failure::Missing(text)) = self;
        out.write_str(text)
    }
}

impl From<BadScenario> for Failure {
    fn from(error: BadScenario) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Failure {
        match error {
            SimError::Bad(bad) => bad.into(),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<VmError> for Failure {
    fn from(error: VmError) -> Failure {
        let text = error.to_string();
        match error {
            VmError::Scenario(_) => Failure::Usage(text),
            VmError::Image(
                ImageError::NotAKernel { .. } | ImageError::NoBtf { .. } | ImageError::NoModule { .. },
            ) => Failure::Usage(text),
            error if error.is_missing() => Failure::Missing(text),
            _ => Failure::Failed(text),
        }
    }
}

impl From<ThreadsError> for Failure {
    fn from(error: ThreadsError) -> Failure {
        let text = error.to_string();
        match error {
            ThreadsError::Scenario(_) => Failure::Usage(text),
            ThreadsError::Missing { .. } => Failure::Missing(text),
            ThreadsError::Host(error) if error.is_not_permitted() => Failure::Missing(text),
            _ => Failure::Failed(text),
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Failure {
        VmError::from(error).into()
    }
}

impl From<reprieve_linux::Error> for Failure {
    fn from(error: reprieve_linux::Error) -> Failure {
        VmError::from(error).into()
    }
}
