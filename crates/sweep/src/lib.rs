//! The contract of a sweep: what is run, by whom, and how the results come together, on one machine or many. Engines that start
//! processes on other machines exist (Slurm, Dask, GNU parallel); this crate says what such a process does.
//!
//! A sweep is a folder:
//!
//! | file | what it holds | written by |
//! |---|---|---|
//! | `plan.json` | the scenario, frozen; the simulator's version; how many runs there are | [`plan::write`] |
//! | `runs.jsonl` | a line for each row: its run's ID, its point, condition and repetition, the values of the axes | [`plan::write`] |
//! | `parts/*.jsonl` | a line for each finished run; one file for each attempt at a shard | [`shard::run`] |
//! | `table.csv`, `table.parquet` | a row for each point, condition and repetition | [`merge::merge`] |
//! | `slurm/` | scripts and logs, if Slurm runs it | [`slurm`] |
//!
//! While runs go on, only parts are written, and each has one writer. Nothing is locked. So shards can run anywhere, in any order and
//! several times. A run's ID says what it is: see [`identity`]. Runs repeat exactly, so results of one ID must be equal to the byte.

pub mod error;
pub mod file;
pub mod found;
pub mod identity;
pub mod merge;
pub mod part;
pub mod plan;
pub mod rows;
pub mod shard;
pub mod slurm;
pub mod status;
pub mod table;

pub use error::SweepError;
pub use identity::Id;
pub use plan::Plan;
pub use shard::Shard;

type Result<T = (), E = SweepError> = std::result::Result<T, E>;
