//! What Xen's schedulers share: sets of pCPUs, the reasons of decisions, and when timers start.
//!
//! A *pool* is the set of pCPUs that one scheduler works on (a cpupool); a *domain* is a VM, to which vCPUs belong.
//! In a [`super::Spec`] without a domain the entity is a domain of its own.

pub mod log;
pub mod mask;
mod seats;

#[cfg(test)]
pub(super) mod machine;

pub use log::{Event, Kind, Log, Priority, Refusal};
pub use mask::Mask;
pub use seats::{Seat, Seats};
