//! The ground `threads`: real threads of this machine, in programs of their own, one for each reclamation scheme.
//!
//! | module | does |
//! |---|---|
//! | [`peer`] | the programs: where they are, what they say of themselves |
//! | [`program`] | one program: started, waited for, surely ended |
//! | [`ground`] | a scenario's plan |
//! | [`error`] | what can go wrong, with the way out |

pub mod error;
pub mod ground;
pub mod peer;
pub mod program;

pub use error::ThreadsError;
pub use ground::{Host, ThreadsGround};
