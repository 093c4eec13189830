//! The command line, the same for every binary of both languages. Every value has bounds; a value outside them ends the
//! program with exit code 2.

use crate::clock::SECOND_NS;
use crate::cpus::Cpus;
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// What a run is asked to do.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(about = "Measures the delay from a delete to its free under one reclamation scheme")]
pub struct Options {
    /// Entries of the hash table
    #[arg(long, default_value_t = 4_194_304, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub entries: u64,
    /// Reader threads
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=256))]
    pub readers: u64,
    /// CPUs of the readers, such as 0 or 0,2 or 0-3
    #[arg(long, default_value = "0")]
    pub reader_cpus: Cpus,
    /// CPUs of the writer, and of the scheme's own thread if it has one
    #[arg(long, default_value = "1")]
    pub writer_cpus: Cpus,
    /// Deletes per second; 0: none
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub deletes_per_s: u64,
    /// Time before the window, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warmup_ms: u64,
    /// The window in which deletes and look-ups count, in milliseconds
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub duration_ms: u64,
    /// Computing after each section, in nanoseconds
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=SECOND_NS))]
    pub think_ns: u64,
    /// Computing inside each section, in nanoseconds
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=SECOND_NS))]
    pub section_ns: u64,
    /// How long reader 0 sleeps inside one section in the middle of the window, in milliseconds
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub stall_ms: u64,
    /// Look-ups between two reports of a quiescent state, in schemes that report
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub quiescent_every: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which the readers must notice
    #[arg(long, hide = true)]
    pub fault: Option<Fault>,
    /// Print who this binary is, and do nothing
    #[arg(long)]
    #[serde(skip)]
    pub describe: bool,
}

/// Something wrong, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Deleted nodes are poisoned at once, without waiting for readers.
    FreeAtOnce,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["peer"].iter().chain(arguments))
    }

    #[test]
    fn defaults_are_the_published_set_up() {
        let o = parse(&[]).unwrap();
        assert_eq!((o.entries, o.readers, o.deletes_per_s), (1 << 22, 8, 5000));
        assert_eq!((o.reader_cpus, o.writer_cpus), ("0".parse().unwrap(), "1".parse().unwrap()));
        assert_eq!((o.warmup_ms, o.duration_ms, o.quiescent_every, o.seed), (300, 1500, 1, 1));
        assert_eq!((o.think_ns, o.section_ns, o.stall_ms, o.fault, o.describe), (0, 0, 0, None, false));
    }

    #[test]
    fn every_option_is_taken() {
        let text = "--entries 16 --readers 2 --reader-cpus 0,1 --writer-cpus 0 --deletes-per-s 0 --warmup-ms 1 \
                    --duration-ms 2 --think-ns 3 --section-ns 4 --stall-ms 5 --quiescent-every 6 --seed 7 \
                    --fault free-at-once --describe";
        let o = parse(&text.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!((o.entries, o.readers, o.deletes_per_s, o.warmup_ms, o.duration_ms), (16, 2, 0, 1, 2));
        assert_eq!((o.think_ns, o.section_ns, o.stall_ms, o.quiescent_every, o.seed), (3, 4, 5, 6, 7));
        assert_eq!((o.fault, o.describe), (Some(Fault::FreeAtOnce), true));
    }

    #[test]
    fn bounds_hold() {
        for wrong in
            ["--entries=0", "--readers=257", "--duration-ms=0", "--quiescent-every=0", "--stall-ms=60001"]
        {
            assert_eq!(parse(&[wrong]).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
