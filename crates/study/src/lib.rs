//! The words of the project, as types: a *scenario* is run on a *ground* and gives an *observation*;
//! observations of several *conditions* give a *comparison*.
//!
//! This crate does no I/O. Every ground (real guests, the simulator, ...) produces the same
//! [`Observation`], so that results are comparable, and every output reads the same [`metric`] table.
//!
//! The modules lie in rooms. Each room uses only those before it: `observe`, `scenario`, `compare`, `recorded`,
//! `conform`, `provision`. Users name a module without its room.

mod compare;
mod conform;
pub mod delete_free;
pub mod ground;
mod observe;
pub mod provision;
mod recorded;
pub mod rt_app;
pub mod scenario;
pub mod shown;
pub mod statistics;
pub mod units;

pub use compare::{attribution, comparison, recovery};
pub use conform::{conformance, latency_conformance, off_times};
pub use observe::{
    derive, distribution, fairness, grace_period, metric, observation, stalls, tape, timeline,
};
pub use recorded::{grid, paired, record, regained, replays, surface, swept};
pub use scenario::overrides;

pub use attribution::Attribution;
pub use comparison::{Comparison, Row, Verdict};
pub use conformance::Conformance;
pub use distribution::Distribution;
pub use grace_period::{GracePeriod, Span};
pub use latency_conformance::LatencyConformance;
pub use metric::{Metric, Unit};
pub use observation::{Observation, Provenance, SweepPoint};
pub use record::{Record, Study};
pub use recovery::Recovery;
pub use scenario::{Condition, GroundKind, Scenario, Workload};
pub use tape::Tape;
pub use timeline::{Timeline, Trace};
