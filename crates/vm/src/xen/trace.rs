//! xentrace: what Xen's scheduler did, recorded in dom0 and decoded here.
//!
//! | module | does |
//! |---|---|
//! | [`records`] | the file's records |
//! | [`intervals`] | when each vCPU ran, waited, was blocked |
//! | [`decisions`] | the scheduler's decisions, with their names |
//! | [`told`] | the same in the words in which stalls are told |
//!
//! Source: Xen's public header `trace.h`, and `xentrace/formats`. Recording takes time of its own, some 18 us a
//! wake-up, and shifts phases: a traced run shows how a stall comes about, not how often.

pub mod decisions;
pub mod intervals;
pub mod records;
pub mod told;

pub use decisions::Decision;
pub use intervals::{VcpuId, VcpuSpans};
pub use records::{Record, Records};
