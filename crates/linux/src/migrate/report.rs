//! The files that a run writes: metrics, and a record that can be replayed.

pub mod metrics;
pub mod run_record;
