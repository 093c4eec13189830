//! What a kernel does that matters to RCU, seen from inside the VM.
//!
//! | module | sees | needs |
//! |---|---|---|
//! | [`Collector`] | times off, grace periods, steal, throttling, pressure, clocks, memory | nothing |
//! | [`Watch`] | deferred frees and grace periods, exactly | root |

mod beats;
mod collector;
mod counters;
mod deferred;
mod grace;
mod slabs;
mod symbols;

pub use collector::{Collector, Pace};
pub use deferred::{Deferred, Frees, LOOK_EVERY, Watch};
pub use slabs::{Slab, slabs};
pub use symbols::Symbols;
