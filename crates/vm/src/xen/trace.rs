//! xentrace: what Xen's scheduler did, recorded in dom0 and decoded here.
//!
//! | module | does |
//! |---|---|
//! | [`records`] | the file's records |
//! | [`intervals`] | when each vCPU ran, waited, was blocked |
//! | [`decisions`] | the scheduler's decisions, with their names |
//! | [`causes`] | the same events in the terms in which a late wake-up is explained |
//!
//! Source: Xen's public header `trace.h`, and `xentrace/formats`. Recording takes time of its own, some 18 us a
//! wake-up, and shifts phases: a traced run shows how a stall comes about, not how often.

pub mod causes;
pub mod decisions;
pub mod intervals;
pub mod records;

pub use decisions::Decision;
pub use intervals::{VcpuId, VcpuSpans};
pub use records::{Record, Records};
