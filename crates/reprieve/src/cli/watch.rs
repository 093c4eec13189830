//! Arguments of `watch`.

use std::path::PathBuf;

use clap::Args;

use super::hindsight::at;
use super::time::within;

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// Show a record instead of this VM: a folder of `reprieve record --hindsight`, or a dump of it, from any machine
    #[arg(value_name = "RECORD")]
    pub record: Option<PathBuf>,
    /// Begin at this time of the day, as in 2026-11-25T20:00:00Z [the end of the record]
    #[arg(long, value_name = "TIME", value_parser = at, requires = "record")]
    pub at: Option<u64>,
    /// End after so much time, such as 60s or 10min [run until q, or a signal]
    #[arg(long = "for", value_name = "TIME", value_parser = length, conflicts_with = "record")]
    pub for_ns: Option<u64>,
    /// Use no more than this tier: T0 needs no rights; T1, as root, reads slabs and the kernel's log; T2 attaches probes to the running
    /// kernel, which has crashed guests under emulation
    #[arg(long, value_name = "TIER", default_value = "T1", conflicts_with = "record", value_parser = ["T0", "T1", "T2"])]
    pub tier: String,
    /// For machines: print a JSON object a second, one a line, instead of the screen
    #[arg(long)]
    pub ndjson: bool,
}

fn length(text: &str) -> Result<u64, String> {
    within(text, 1, 86_400, "1s and 24h")
}
