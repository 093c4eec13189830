//! Estimates how much memory a VM needs at each overcommit ratio, by simulating the VM of a profile or a scenario.
//!
//! | module | does |
//! |---|---|
//! | [`profile`] | describes an undisturbed VM: its deferred frees, grace periods and CPU time |
//! | [`recorded`] | makes a profile from a recorded run |
//! | [`live`] | makes a profile from what was measured in a running VM |
//! | `mapped` | turns a profile into a workload |
//! | [`arrange`] | makes the conditions to simulate: ratios, remedies, and inputs to vary |
//! | [`peak`] | estimates quantiles of a window's peak, and their upper bounds |
//! | [`estimate`] | computes the answer from the finished runs |
//! | [`beyond`] | says where the answer goes beyond the conditions on which the simulator was checked |
//! | [`against`] | compares the answer with measured runs |

pub mod against;
pub mod arrange;
pub mod beyond;
pub mod estimate;
pub mod live;
mod mapped;
pub mod peak;
pub mod profile;
pub mod recorded;

pub use against::{Against, Checked};
pub use arrange::{Arranged, Cell, Wishes};
pub use estimate::{Provision, Row};
pub use peak::{Basis, Bound};
pub use profile::Profile;
