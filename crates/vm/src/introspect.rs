//! A guest's state, read from its memory by the host: no agent in the guest, nothing written to it.
//!
//! [`Ram`] maps and checks, [`Layout`] finds, [`Reader`] reads. [`backlog`] walks the lists of callbacks that wait.

pub mod backlog;
mod impossible;
mod layout;
mod mapping;
mod ram;
mod sample;

pub use impossible::{Impossible, ImpossibleLooks};
pub use layout::{Layout, Symbols};
pub use ram::{Foreign, KERNEL_MAP, KERNEL_MAP_BYTES, PAGE_BYTES, Ram, Split, Word};
pub use sample::{CpuState, GpState, HUGE_PAGE_ORDER, MemoryState, RcuWork, Reader, unusable_index_printed};
