//! What a kernel does that matters to RCU, seen from inside the VM.
//!
//! | module | sees | needs |
//! |---|---|---|
//! | [`Beats`] | when vCPUs were off | nothing |
//! | [`GracePeriods`] | how long grace periods take | nothing |
//! | [`Counters`] | steal, throttling, pressure, clocks | nothing |
//! | [`Watch`] | deferred frees and grace periods, exactly | root |

mod beats;
mod deferred;
mod grace;
mod slabs;
mod standing;
mod symbols;

pub use beats::{Beats, Late};
pub use deferred::{Deferred, Frees, LOOK_EVERY, Watch};
pub use grace::GracePeriods;
pub use slabs::{Slab, slabs};
pub use standing::{Counters, Standing};
pub use symbols::Symbols;
