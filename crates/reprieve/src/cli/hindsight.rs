//! Arguments around hindsight: `record --hindsight`, and `explain FILE`.

use std::path::PathBuf;

use clap::Args;
use reprieve_hindsight::day;

use crate::sizes;

const SECOND_NS: u64 = 1_000_000_000;

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
    /// How much disk space to use at most; whatever of the two is reached first counts
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = disk, requires = "folder")]
    pub disk: u64,
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
    /// Judge a record instead: a folder of `reprieve record --hindsight`, or a dump of it, from any machine. Of its time, the worst
    /// 10 s count
    #[arg(value_name = "FILE", conflicts_with_all = ["dmesg", "for_s"])]
    pub record: Option<PathBuf>,
    /// Judge the 10 s around this time of the day, as in 2026-11-25T20:00:00Z
    #[arg(long, value_name = "TIME", value_parser = at, requires = "record", conflicts_with = "last")]
    pub at: Option<u64>,
    /// Judge the last so much time of the record, such as 10s
    #[arg(long, value_name = "TIME", value_parser = last, requires = "record")]
    pub last: Option<u64>,
    /// Write the whole record for the Perfetto trace viewer
    #[arg(long, value_name = "FILE", requires = "record")]
    pub perfetto: Option<PathBuf>,
    /// Write when vCPUs were off around that time, for `replay = "FILE"` in a scenario
    #[arg(long, value_name = "FILE", requires = "record")]
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

pub(super) fn within(text: &str, least_s: u64, most_s: u64, said: &str) -> Result<u64, String> {
    let ns = time(text)?;
    match (least_s * SECOND_NS..=most_s * SECOND_NS).contains(&ns) {
        true => Ok(ns),
        false => Err(format!("it is not within {said}")),
    }
}

fn disk(text: &str) -> Result<u64, String> {
    match sizes::parse(text)? {
        bytes if (1 << 20..=256 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("it is not within 1MiB and 256MiB".into()),
    }
}

/// Nanoseconds of `15min`.
fn time(text: &str) -> Result<u64, String> {
    let units = [("min", 60.0), ("ms", 1e-3), ("s", 1.0), ("h", 3600.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?.trim(), seconds)));
    let (number, seconds) = found.ok_or("write it with a unit, as in 30s, 15min or 2h")?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    match number * seconds {
        seconds if (0.0..=1e7).contains(&seconds) => Ok((seconds * SECOND_NS as f64) as u64),
        _ => Err("it is negative or too long".into()),
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
        assert_eq!(
            [time("15min"), time("1.5 s"), time("2h")].map(Result::unwrap),
            [900_000_000_000, 1_500_000_000, 7_200_000_000_000]
        );
        for bad in ["15", "min", "-1s", "NaNs", "infh", "1e99h", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(keep("59s").is_err() && keep("25h").is_err() && after("0s").is_ok() && last("0s").is_err());
        assert!(disk("1KiB").is_err() && disk("257MiB").is_err() && disk("64MiB").is_ok());
    }
}
