//! Arguments of `run`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Names of scenarios (see `reprieve list`) or paths of scenario files
    #[arg(required = true, value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Where to run: sim (deterministic simulator, needs nothing of this machine), vm (real Linux
    /// guests under QEMU) or threads (real threads here) [the scenario's ground, mostly sim]
    #[arg(long, value_name = "GROUND")]
    pub on: Option<String>,
    /// Change a key of the scenario, for instance guest.vcpus=4 or run.window_ms=20000; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Run it with each of several values of a key, beside each other: conditions.overcommitted.overcommit=1.5,2,3
    #[arg(long, value_name = "KEY=VALUE,VALUE...")]
    pub vary: Option<String>,
    /// Repetitions of each condition [the scenario's run.repeat]
    #[arg(long, value_name = "N")]
    pub repeat: Option<u32>,
    /// Seed of the order of runs, the resampling and the workload [the scenario's run.seed]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Simulated runs at a time; the results do not depend on it [the pCPUs of this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Write the record (all values, distributions, where and how) as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with the figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the first run of each condition, event by event, for the Perfetto trace viewer
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write for each run a file of the times at which the host kept vCPUs from running, to be replayed in the simulator (of
    /// simulated runs, for the first of each condition)
    #[arg(long, value_name = "FOLDER")]
    pub recordings: Option<PathBuf>,
    /// Show what would be run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Say nothing while it runs; warnings and errors are still said
    #[arg(long, short)]
    pub quiet: bool,
    /// Show all metrics with ranges and p-values, and how they were measured
    #[arg(long)]
    pub full: bool,
}
