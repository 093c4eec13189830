//! Arguments around hindsight: `record --hindsight`, and `explain FILE`.

use std::path::PathBuf;

use clap::Args;
use reprieve_hindsight::day;

use super::time::within;
use crate::sizes;

/// Arguments of `record --hindsight`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Inside a VM, without privileges")]
pub struct HindsightArguments {
    /// Keep the last minutes of what `explain` looks at in this folder, until a signal. `reprieve explain DIR` judges them
    #[arg(long = "hindsight", value_name = "DIR", conflicts_with_all = ["pid", "tids", "for_s", "output"])]
    pub folder: Option<PathBuf>,
    /// How much time to keep, such as 15min or 2h
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = keep, requires = "folder")]
    pub keep: u64,
    /// How much disk space to use at most, dumps not included: each is a copy. Whatever of the two is reached first counts
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = disk, requires = "folder")]
    pub disk: u64,
    /// Use no more than this tier: T0 needs no rights; T1, as root, reads slabs and the kernel's log; T2 attaches probes to the running
    /// kernel, which has crashed guests under emulation
    #[arg(long, value_name = "TIER", default_value = "T1", requires = "folder", value_parser = ["T0", "T1", "T2"])]
    pub tier: String,
    /// When this begins to hold over the last 10 s, such as gp_p99>50ms, steal>=10% or verdict=quota, do what the next --then says;
    /// repeatable
    #[arg(long, value_name = "CONDITION", requires = "folder")]
    pub on_threshold: Vec<String>,
    /// What to do, in this order: dump (keep the ring in a file of DIR/dumps), signal:PID:USR1, exec:PROGRAM ARGUMENTS (without a
    /// shell, at most 60 s; exec comes last); without it, dump
    #[arg(long, value_name = "ACTION,ACTION...", requires = "on_threshold")]
    pub then: Vec<String>,
    /// Go on for so long before a dump, so that it also holds what followed
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = after, requires = "on_threshold")]
    pub after: u64,
    /// Dumps to keep: a further one replaces the oldest
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000), requires = "on_threshold")]
    pub dumps: u16,
}

/// Arguments of `explain FILE`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a record")]
pub struct ReplayArguments {
    // clap does not ask for a required argument that conflicts with a given one, so each option below has the same conflicts.
    /// Judge a record instead: a folder of `reprieve record --hindsight`, or a dump of it, from any machine. Of its time, the worst
    /// 10 s count
    #[arg(value_name = "FILE", conflicts_with_all = ["dmesg", "for_s"])]
    pub record: Option<PathBuf>,
    /// Judge the 10 s around this time of the day, as in 2026-11-25T20:00:00Z
    #[arg(long, value_name = "TIME", value_parser = at, requires = "record", conflicts_with_all = ["last", "for_s", "dmesg"])]
    pub at: Option<u64>,
    /// Judge the last so much time of the record, such as 10s
    #[arg(long, value_name = "TIME", value_parser = last, requires = "record", conflicts_with_all = ["for_s", "dmesg"])]
    pub last: Option<u64>,
    /// Write the whole record for the Perfetto trace viewer
    #[arg(long, value_name = "FILE", requires = "record", conflicts_with_all = ["for_s", "dmesg"])]
    pub perfetto: Option<PathBuf>,
    /// Write when vCPUs were off around that time, for `replay = "FILE"` in a scenario
    #[arg(long, value_name = "FILE", requires = "record", conflicts_with_all = ["for_s", "dmesg"])]
    pub tape: Option<PathBuf>,
}

fn keep(text: &str) -> Result<u64, String> {
    within(text, 60, 86_400, "1min and 24h")
}

fn after(text: &str) -> Result<u64, String> {
    within(text, 0, 600, "0s and 10min")
}

fn last(text: &str) -> Result<u64, String> {
    within(text, 1, 3_600, "1s and 1h")
}

fn disk(text: &str) -> Result<u64, String> {
    match sizes::parse(text)? {
        bytes if (1 << 20..=256 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("it is not within 1MiB and 256MiB".into()),
    }
}

pub(super) fn at(text: &str) -> Result<u64, String> {
    day::parse(text).ok_or_else(|| "write the time in UTC, as in 2026-11-25T20:00:00Z".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_limits() {
        assert!(keep("59s").is_err() && keep("25h").is_err() && after("0s").is_ok() && last("0s").is_err());
        assert!(disk("1KiB").is_err() && disk("257MiB").is_err() && disk("64MiB").is_ok());
    }
}
