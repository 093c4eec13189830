//! How much memory a VM needs at each overcommit ratio: a profile or a scenario in, simulated conditions, an estimate out.
//!
//! | module | does |
//! |---|---|
//! | [`profile`] | what is known of a VM that nobody disturbs: its deferred frees, grace periods, CPU time |
//! | [`recorded`] | makes a profile of a recorded run |
//! | `mapped` | makes a workload of a profile |
//! | [`arrange`] | makes the conditions to simulate: ratios, remedies, inputs to vary |
//! | [`peak`] | quantiles of a window's peak, and their upper bounds |
//! | [`estimate`] | makes the answer of the finished runs |
//! | [`beyond`] | says where the answer goes beyond what the simulator was checked on |
//! | [`against`] | lays measured runs beside it |

pub mod against;
pub mod arrange;
pub mod beyond;
pub mod estimate;
mod mapped;
pub mod peak;
pub mod profile;
pub mod recorded;

pub use against::{Against, Checked};
pub use arrange::{Arranged, Cell, Wishes};
pub use estimate::{Provision, Row};
pub use peak::{Basis, Bound};
pub use profile::Profile;
