//! The ground `threads`: real threads on this machine, in one separate program for each reclamation scheme.
//!
//! | module | does |
//! |---|---|
//! | [`peer`] | finds the programs, and asks them for their scheme |
//! | [`program`] | runs one program, with limits, to its certain end |
//! | [`ground`] | checks a scenario and runs its plan |
//! | [`error`] | the errors, each with a way out |

pub mod error;
pub mod ground;
pub mod peer;
pub mod program;

pub use error::{Result, ThreadsError};
pub use ground::{Host, ThreadsGround};
