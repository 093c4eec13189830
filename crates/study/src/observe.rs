//! What a run saw, in the types that all grounds share: durations, timelines, stalls and recordings, the metrics that
//! are derived from them, and the observation that holds them all.

pub mod derive;
pub mod distribution;
pub mod fairness;
pub mod grace_period;
pub mod metric;
pub mod observation;
pub mod stalls;
pub mod tape;
pub mod timeline;
