//! Turns signals into decisions within the time of a beat: without allocating or waiting.

pub mod decider;
pub mod off_times;
pub mod shared_decider;
