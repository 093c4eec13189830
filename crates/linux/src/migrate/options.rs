//! The options of a run.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use reprieve_policy::place::Policy;

use super::decide::off_times::OffTimes;
use super::find::filter::Filter;
use crate::proc::ProcRoot;

/// How to run.
pub struct Options<'a> {
    /// Carry decisions out; without this, only report them.
    pub apply: bool,
    /// Which tasks may be managed.
    pub filter: Filter,
    /// How tasks are placed.
    pub policy: Policy,
    /// What an oracle knows beforehand; nothing for other policies.
    pub off_times: OffTimes,
    /// Give up when throughput falls.
    pub guard: bool,
    /// Where masks are saved. Used only with `apply`.
    pub state: PathBuf,
    /// Where signals and decisions are written.
    pub record: Option<Box<dyn Write + 'a>>,
    /// Where metrics are written.
    pub metrics: Option<PathBuf>,
    /// End after so long.
    pub limit: Option<Duration>,
    /// Shortest and longest time between beats, ns.
    pub period_ns: (u64, u64),
    /// Where `/proc` is.
    pub proc: ProcRoot,
    /// Where `/sys` is.
    pub sys: PathBuf,
}
