//! Turns signals into decisions within the time of a beat: without allocating or waiting.

mod decider;
mod off_times;
mod shared_decider;

pub use decider::{Decider, Lines};
pub use off_times::OffTimes;
pub use shared_decider::SharedDecider;
