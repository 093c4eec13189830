//! What Xen's schedulers share: sets of pCPUs, the reasons of decisions, and when timers start.
//!
//! A *pool* is the set of pCPUs that one scheduler works on (a cpupool); a *domain* is a VM, to which vCPUs belong.

pub mod log;
pub mod mask;
mod pcpus;

#[cfg(test)]
pub(super) mod machine;

pub use log::{Event, Kind, Log, Priority, Refusal};
pub use mask::Mask;
pub use pcpus::{Pcpu, Pcpus};

/// The domain of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainSpec {
    /// Its number; `None` if the vCPU is the only one of its domain.
    pub number: Option<u32>,
    /// CPU time that the domain may use, in per cent of a pCPU; 0 for no limit. Only the credit scheduler enforces it.
    pub cap_percent: u32,
}

impl DomainSpec {
    /// The domain of that number, without a limit.
    pub fn numbered(number: u32) -> DomainSpec {
        DomainSpec { number: Some(number), cap_percent: 0 }
    }
}
