//! The words of the project, as types: a *scenario* is run on a *ground* and gives an *observation*;
//! observations of several *conditions* give a *comparison*.
//!
//! This crate does no I/O. Every ground (real guests, the simulator, ...) produces the same
//! [`Observation`], so that results are comparable, and every output reads the same [`metric`] table.

pub mod attribution;
pub mod comparison;
pub mod conditions_of;
pub mod conformance;
pub mod delete_free;
pub mod derive;
pub mod distribution;
pub mod given_back;
pub mod grace_period;
pub mod grid;
pub mod ground;
pub mod latency_conformance;
pub mod metric;
pub mod observation;
pub mod off_times;
pub mod overrides;
pub mod paired;
pub mod record;
pub mod replays;
pub mod scenario;
pub mod shown;
pub mod stalls;
pub mod statistics;
pub mod swept;
pub mod tape;
pub mod timeline;
pub mod units;

pub use attribution::Attribution;
pub use comparison::{Comparison, Row, Verdict};
pub use conformance::Conformance;
pub use distribution::Distribution;
pub use grace_period::{GracePeriod, Span};
pub use latency_conformance::LatencyConformance;
pub use metric::{Metric, Unit};
pub use observation::{Observation, Provenance, SweepPoint};
pub use record::{Record, Study};
pub use scenario::{Condition, Ground, Scenario, Workload};
pub use tape::Tape;
pub use timeline::{Timeline, Trace};
