//! Whether the simulator agrees with reality: the same scenario run on the simulator and on real guests or real Xen.

pub mod conformance;
pub mod latency_conformance;
pub mod off_times;
