//! What a kernel does that matters to RCU, seen from inside the VM.
//!
//! | module | sees | needs |
//! |---|---|---|
//! | [`Collector`] | times off, grace periods, steal, throttling, pressure, clocks, memory | nothing |
//! | the same, tier T1 | slabs that grow, stalls in the kernel's log | root |
//! | the same, tier T2 | who frees, grace periods exactly, which tasks are in the way | root, better with eBPF |
//! | [`Watch`] | deferred frees and grace periods, exactly | root |

mod beats;
mod collector;
mod counters;
mod deep;
mod deferred;
mod grace;
mod kernel_messages;
mod open;
mod privileged;
mod slabs;
mod symbols;

pub use collector::{Collector, Pace};
pub use deep::DeepBy;
#[cfg(feature = "ebpf")]
pub use deep::ebpf::{Ebpf, Grace};
pub use deferred::{Deferred, Frees, LOOK_EVERY, Watch};
pub use open::{Part, parts};
pub use slabs::{Slab, slabs};
pub use symbols::Symbols;
