//! A guest's state, read from its memory by the host: no agent in the guest, nothing written to it.
//!
//! [`Ram`] maps and checks, [`Layout`] finds, [`Reader`] reads.

mod impossible;
mod layout;
mod ram;
mod sample;

pub use impossible::{Impossible, ImpossibleLooks};
pub use layout::{Layout, Symbols};
pub use ram::Ram;
pub use sample::{CpuState, GpState, HUGE_PAGE_ORDER, MemoryState, RcuWork, Reader, unusable_index_printed};
