//! How often `reprieve explain` names the right cause: it runs in real guests in which known causes are injected, and what it says
//! is compared with what was injected. And how exact the figures of its fingerprint are.
//!
//! ```text
//! cargo build --release
//! cargo run --release -p reprieve --example confusion -- --json records/explain/confusion.json
//! cargo run --release -p reprieve --example confusion -- --show records/explain/confusion.json
//! ```
//! A whole record takes about two and a half hours, on a machine that does nothing else. A guest is booted once for each kernel and
//! number of vCPUs, and looks at itself again and again.
//!
//! | module | does |
//! |---|---|
//! | `causes` | the table of causes, and which answer is right |
//! | `draw` | the values of a run, drawn from the seed |
//! | `plan` | which runs there are, and in which guest |
//! | `campaign` | works through the plan |
//! | `runs` | one run, and what the host knows of it |
//! | `inject` | what the host does to a guest |
//! | `guest` | boots a guest, and tells the agent in it what to do |
//! | `agent`, `loads` | inside the guest |
//! | `kept` | what was seen, kept to be judged again |
//! | `slices` | the truth about slices |
//! | `graces` | grace periods, as the host sees them |
//! | `record`, `matrix`, `fingerprints` | the record, and what it says |

mod agent;
mod campaign;
mod causes;
mod draw;
mod fingerprints;
mod graces;
mod guest;
mod inject;
mod kept;
mod loads;
mod matrix;
mod plan;
mod record;
mod runs;
mod slices;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden;
use reprieve_vm::VmError;

use crate::campaign::Ended;
use crate::causes::{Cause, FINGERPRINTS, MATRIX};
use crate::kept::Kept;
use crate::matrix::Shown;
use crate::plan::{FINGERPRINT_REPEAT, Wanted};
use crate::record::Record;

/// How often explain names the right cause, in real guests.
#[derive(Debug, Parser)]
#[command(name = "confusion")]
pub struct Arguments {
    /// Where the record goes
    #[arg(long, value_name = "FILE", required_unless_present_any = ["show", "answers"])]
    json: Option<PathBuf>,
    /// Say what this record says, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    show: Option<PathBuf>,
    /// Keep what explain saw in this folder; with --show, judge that anew, by changed rules
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// With --show and --keep: write the record that was judged anew to this file
    #[arg(long, value_name = "FILE", requires_all = ["show", "keep"])]
    rewrite: Option<PathBuf>,
    /// Say which answer is right for each cause, and why, and run nothing
    #[arg(long)]
    answers: bool,
    /// Repetitions of each strength of each cause, over all guests
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Repetitions of each setting of the fingerprint
    #[arg(long, default_value_t = FINGERPRINT_REPEAT as u16, value_parser = clap::value_parser!(u16).range(0..=1000))]
    fingerprint_repeat: u16,
    /// What all values follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Series of kernels
    #[arg(long, value_delimiter = ',', default_value = "6.1,6.12")]
    kernels: Vec<String>,
    /// vCPUs of the guests
    #[arg(long, value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(1..=16))]
    vcpus: Vec<u8>,
    /// These causes alone
    #[arg(long, value_delimiter = ',', value_parser = cause)]
    causes: Vec<Cause>,
    /// For how long explain looks, s
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(5..=60))]
    watch: u64,
    /// Go on with the record that is there, of the same seed, instead of a new one
    #[arg(long = "continue")]
    goes_on: bool,
    /// How often a run that a busy host has spoiled is done again
    #[arg(long, default_value_t = 2)]
    retries: u8,
    /// Show runs on a busy host, too: for a trial, never for a claim
    #[arg(long)]
    also_busy: bool,
}

fn cause(name: &str) -> Result<Cause, String> {
    let names = || MATRIX.iter().chain(&FINGERPRINTS).map(|row| row.name).collect::<Vec<_>>().join(", ");
    Cause::named(name).ok_or_else(|| format!("there are: {}", names()))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let role: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match role.as_slice() {
        ["warden"] => {
            warden::run(std::io::stdin(), &ProcRoot::default());
            Ok(())
        }
        ["agent", port] => agent::run(port),
        ["load", kind, rest @ ..] => loads::run(kind, &loads::Words::of(rest.iter().copied())),
        _ => return measure(&Arguments::parse()),
    };
    done.map_or_else(fail, |()| ExitCode::SUCCESS)
}

/// The exit code, as the main program's: 69 if a program or device is missing.
fn fail_of(error: &guest::Error) -> ExitCode {
    let is_missing = error.downcast_ref::<VmError>().is_some_and(VmError::is_missing);
    let code = fail(error);
    if is_missing { ExitCode::from(69) } else { code }
}

fn fail(problem: impl std::fmt::Display) -> ExitCode {
    eprintln!("confusion: {problem}");
    ExitCode::FAILURE
}

fn measure(arguments: &Arguments) -> ExitCode {
    let shown = if arguments.also_busy { Shown::AlsoBusy } else { Shown::Accepted };
    if arguments.answers {
        MATRIX
            .iter()
            .for_each(|row| println!("{:<16}{:<16}{}", row.name, row.right.unwrap_or("nothing"), row.why));
        return ExitCode::SUCCESS;
    }
    if let Some(path) = &arguments.show {
        return match read(path, arguments.keep.as_deref()) {
            Ok(record) => {
                print(&record, shown);
                let written = arguments.rewrite.as_deref().map_or(Ok(()), |path| record.write(path));
                written.map_or_else(fail, |()| ExitCode::SUCCESS)
            }
            Err(problem) => fail(problem),
        };
    }
    let Some(path) = &arguments.json else { return fail("name the record to write with --json") };
    // First: from here on, signals that ask for an end are noticed, and everything is undone.
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(error) => return fail(error),
    };
    match campaign::run(arguments, path, interrupt.clone()) {
        Ok((record, ended)) => {
            print(&record, shown);
            match ended {
                Ended::Done => ExitCode::SUCCESS,
                Ended::Interrupted => {
                    let done = record.runs.len();
                    eprintln!("confusion: interrupted after {done} runs, which are kept; --continue goes on");
                    ExitCode::from(128 + interrupt.signal().unwrap_or(2) as u8)
                }
            }
        }
        Err(error) => fail_of(&error),
    }
}

/// A record; judged anew if what was seen is there.
fn read(path: &Path, keep: Option<&Path>) -> Result<Record, guest::Error> {
    let mut record = Record::read(path)?;
    if let Some(folder) = keep {
        Kept::make(folder)?.judge(&guest::reprieve()?, &mut record)?;
    }
    Ok(record)
}

fn print(record: &Record, shown: Shown) {
    let (matrix, fingerprints) = (matrix::text(record, shown), fingerprints::text(record, shown));
    print!("{matrix}{fingerprints}{}", graces::text(record, shown));
}

impl Arguments {
    /// What is to be measured.
    fn wanted(&self) -> Wanted {
        Wanted {
            repeat: self.repeat.into(),
            fingerprint_repeat: self.fingerprint_repeat.into(),
            causes: self.causes.clone(),
            seed: self.seed,
        }
    }
}
