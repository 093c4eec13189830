//! What a kernel does that matters to RCU, seen from inside the VM.

mod deferred;
mod slabs;
mod symbols;

pub use deferred::{Deferred, Frees, LOOK_EVERY, Watch};
pub use slabs::{Slab, slabs};
pub use symbols::Symbols;
