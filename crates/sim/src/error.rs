//! The ways in which a simulation fails.

use reprieve_study::scenario::BadScenario;

/// Why a simulation did not give all its results.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The scenario cannot be simulated.
    #[error(transparent)]
    Bad(#[from] BadScenario),
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// An invariant of the simulator does not hold.
    #[error("{run}: the simulator is wrong, please report it with the command: {broken}")]
    Broken {
        /// The run.
        run: String,
        /// The invariant.
        broken: String,
    },
}
