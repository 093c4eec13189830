//! From signals to decisions, in the time of a beat: no allocation, no waiting.

pub mod decider;
pub mod off_times;
pub mod shared_decider;
