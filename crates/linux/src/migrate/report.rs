//! What a run writes besides its output: metrics, and the record that can be replayed.

pub mod metrics;
pub mod run_record;
