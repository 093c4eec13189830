//! The ground `threads`: real threads of this machine, in programs of their own, one for each reclamation scheme.
//!
//! | module | does |
//! |---|---|
//! | [`peer`] | the programs: where they are, what they say of themselves |
//! | [`options`] | what a run asks of a program |
//! | [`program`] | one program: started, waited for, surely ended |
//! | [`answer`] | from the line that a program prints to an observation |
//! | [`ground`] | a scenario's plan |
//! | [`error`] | what can go wrong, with the way out |

pub mod answer;
pub mod error;
pub mod ground;
pub mod options;
pub mod peer;
pub mod program;

pub use error::ThreadsError;
pub use ground::{Ground, Host};
