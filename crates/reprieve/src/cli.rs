//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Measures the damage that CPU preemption does to code that must not be interrupted.
///
/// A scenario is run on a ground and gives an observation; conditions are compared with the baseline.
/// Results go to stdout, progress and warnings to stderr.
///
/// Exit codes: 0 done, 1 a run failed or was interrupted, 2 bad usage, 69 something of this machine is missing.
#[derive(Debug, Parser)]
#[command(name = "reprieve", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the scenarios that are built in
    List,
    /// Run scenarios and show the comparison
    Run(RunArguments),
    /// Compare two recorded runs
    Compare(CompareArguments),
    /// Show a recorded run again
    Report(ReportArguments),
    /// Say what this machine has, what is missing and how to get it
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page (troff)
    Man,
    /// Guards what a run makes, and removes it when the run is gone (started by `run`)
    #[command(hide = true)]
    Warden,
    /// Keeps one pCPU busy (started by `run`)
    #[command(hide = true)]
    Hog,
}

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
    /// Show what would be run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArguments {
    /// A record, the reference
    pub a: PathBuf,
    /// Another record
    pub b: PathBuf,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// A record
    pub record: PathBuf,
    /// Write a self-contained page with the figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write each figure as an SVG file into this folder
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
}
