//! The options of a run.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use reprieve_policy::place::Policy;

use super::decide::OffTimes;
use super::find::Filter;
use super::roots::Roots;

/// The options.
pub struct Options<'a> {
    /// Carry decisions out; without this, only report them.
    pub apply: bool,
    /// Which tasks may be managed.
    pub filter: Filter,
    /// How tasks are placed.
    pub policy: Policy,
    /// The knowledge of an oracle policy; empty for others.
    pub off_times: OffTimes,
    /// Stop moving tasks while throughput falls by it.
    pub guard: bool,
    /// The state file, in which masks are saved. Used only with `apply`.
    pub state: PathBuf,
    /// Receives signals and decisions.
    pub record: Option<Box<dyn Write + 'a>>,
    /// The file for metrics.
    pub metrics: Option<PathBuf>,
    /// End after this time.
    pub limit: Option<Duration>,
    /// Shortest and longest time between beats, ns.
    pub period_ns: (u64, u64),
    /// The `/proc` and `/sys` to use.
    pub roots: Roots,
}
