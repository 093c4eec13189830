//! The programs of the workload `delete-free`, one for each reclamation scheme: what a run asks of one, and the
//! observation that its answer gives. Real threads and real guests start the same programs, so both ends of the
//! conversation stand here.
//!
//! Invariant: nothing that a program says is trusted. It is parsed, and checked against what was asked.

mod answer;
mod options;

pub use answer::{Answer, Identity, parse};
pub use options::Options;
