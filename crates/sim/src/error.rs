//! Why a simulation did not give all its results.

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
    /// The simulator contradicts itself.
    #[error("{run}: the simulator is wrong, please report it with the command: {broken}")]
    Broken {
        /// Which run.
        run: String,
        /// What does not hold.
        broken: String,
    },
}
