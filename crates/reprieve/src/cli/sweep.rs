//! Arguments of `sweep`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reprieve_sweep::Shard;

/// What to do with a sweep.
#[derive(Debug, Subcommand)]
pub enum SweepVerb {
    /// Write down all runs of a scenario's space, in a folder: nothing else is read later
    Plan(PlanSweep),
    /// Do the runs that are not done yet, or one of several shards of them
    ///
    /// A shard can be run anywhere, in any order and several times, also while another process runs the same one: results are kept in a
    /// file for each attempt, and equal for equal runs. A run that fails is a result, too.
    Run(RunSweep),
    /// Say how far it is: runs that are done, running and failed, with their errors, and the time left
    Status(StatusSweep),
    /// Make one table of all results, as CSV and as Parquet; the exit code is 1 if runs are missing
    Merge(MergeSweep),
    /// Show metrics over one axis or two, in the terminal, as a page or as a figure
    ///
    /// By default the last condition's ratio to the first one; with --value, or if there is one condition alone, the metric itself. Each cell
    /// pools all runs with these values, whatever the other axes are.
    Show(ShowSweep),
    /// Give what is left to an engine: writes and submits an array job for Slurm, and a job that merges at its end
    ///
    /// It first does runs here for some seconds, to learn how long they take; their results count. Each task of the array is a shard of
    /// about five minutes, or longer if 1,000 tasks are too few; --dry-run says how long, for sbatch's --time. The folder must be on a file system that all nodes share.
    Submit(SubmitSweep),
}

/// Arguments of `sweep plan`.
#[derive(Debug, Args)]
pub struct PlanSweep {
    /// The name of a scenario (see `reprieve list`) or the path of a scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: String,
    /// The sweep's folder, made if it is not there
    #[arg(long, short, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Change a key of the scenario, for instance space.points=1000 or run.repeat=10; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Say nothing while it works
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `sweep run`.
#[derive(Debug, Args)]
pub struct RunSweep {
    /// The sweep's folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// One of several shards, as 3/10; shards are from 1/10 to 10/10 [all runs]
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Runs at a time; the results do not depend on it [1 with --shard, else the pCPUs of this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Say nothing while it works
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `sweep status`.
#[derive(Debug, Args)]
pub struct StatusSweep {
    /// The sweep's folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sweep merge`.
#[derive(Debug, Args)]
pub struct MergeSweep {
    /// The sweep's folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Say nothing while it works
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `sweep submit`.
#[derive(Debug, Args)]
pub struct SubmitSweep {
    /// The sweep's folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// The engine
    #[arg(long, value_name = "NAME", value_parser = ["slurm"])]
    pub engine: String,
    /// Tasks of the array, at most 1000 [as many as take about five minutes each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub tasks: Option<u16>,
    /// Tasks that run at a time [no limit of its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub throttle: Option<u32>,
    /// Do the runs of the first seconds and write the scripts, but submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Further options of sbatch, after --, such as --partition=long --time=30
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

/// Arguments of `sweep show`.
#[derive(Debug, Args)]
pub struct ShowSweep {
    /// The sweep's folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// An axis; twice for a map over two
    #[arg(long, value_name = "AXIS", required = true)]
    pub by: Vec<String>,
    /// A metric: a column of the table; repeatable
    #[arg(long = "metric", value_name = "METRIC", default_values_t = ["gp_p99_ns".to_string(), "footprint_peak_bytes".to_string()])]
    pub metrics: Vec<String>,
    /// The condition [the last one]
    #[arg(long, value_name = "NAME")]
    pub condition: Option<String>,
    /// The condition that ratios are to [the first condition]
    #[arg(long, value_name = "NAME", conflicts_with = "value")]
    pub against: Option<String>,
    /// The folder of another sweep with the same axes: show the ratio of this one to that one, under the same condition
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["against", "value"])]
    pub versus: Option<PathBuf>,
    /// Show the metric itself, and not its ratio
    #[arg(long)]
    pub value: bool,
    /// Write a page with the figures and tables
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the figure of the first metric
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
