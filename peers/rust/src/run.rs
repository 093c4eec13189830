//! A run from the command line to the report.
//!
//! SIGINT and SIGTERM keep their default action, which ends the process and its threads at once; so does SIGALRM when a
//! run has not ended long after it should have.

use crate::ledger::{Ledger, Role, set_role};
use crate::options::Options;
use crate::phase::{self, Phase};
use crate::random::Stream;
use crate::reader::{self, Reading};
use crate::report::{Identity, Report};
use crate::scheme::Scheme;
use crate::section::{Section, rounds_of};
use crate::table::{Node, Table};
use crate::writer::{Window, Writer};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

/// Beyond its phases a run only fills the table and drains: seconds. A minute means it hangs.
const GRACE_S: u64 = 60;

/// The whole program of a binary: reads the command line, runs, prints one line of JSON.
///
/// Exit codes: 0, 1 when a reader met a node it should not have met or a node was not freed, 2 usage, 69 when the
/// machine lacks something.
pub fn main<S: Scheme>() -> ExitCode {
    let options = Options::parse();
    program(S::IDENTITY, options.describe, || {
        let ledger: &'static Ledger = Box::leak(Box::new(Ledger::default()));
        let scheme = prepare::<S>(&options)?;
        let (window, readers) = run(&scheme, &options, ledger);
        let (notes, fences) = (scheme.notes(), scheme.fences());
        if !S::FREES {
            // Not reclamation, and in no histogram: the memory only goes back.
            ledger.open_window(u64::MAX);
        }
        scheme.finish();
        let report = Report::new(S::IDENTITY, &options, &window, readers, ledger, fences, notes);
        let failed = report.errors() != 0 || ledger.unreclaimed() != 0;
        Ok((report, failed))
    })
}

/// A program around `run`, which gives the report and whether the run failed, or says what the machine lacks. With
/// `describe` it does not run.
pub fn program<R: Serialize>(
    identity: Identity,
    describe: bool,
    run: impl FnOnce() -> Result<(R, bool), String>,
) -> ExitCode {
    if describe {
        return print(&identity, ExitCode::SUCCESS);
    }
    match run() {
        Ok((report, failed)) => print(&report, if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }),
        Err(lacking) => {
            eprintln!("{}: {lacking}", identity.scheme);
            ExitCode::from(crate::EXIT_MISSING)
        }
    }
}

fn print(line: &impl Serialize, code: ExitCode) -> ExitCode {
    println!("{}", serde_json::to_string(line).expect("numbers, lists and strings are JSON"));
    code
}

/// Lets SIGALRM end a run of `run_ms` that hangs.
pub fn watch(run_ms: u64) {
    nix::unistd::alarm::set((run_ms / 1000 + GRACE_S) as u32);
}

/// Lets sleeps of this thread, and of those that it starts, end on time. The default slack of 50 us would blur the
/// writer's schedule.
///
/// # Errors
///
/// When the kernel refuses.
pub fn sleep_exactly() -> Result<(), String> {
    nix::sys::prctl::set_timerslack(1).map_err(|error| format!("cannot set the timer slack: {error}"))
}

/// Starts the watchdog, goes to the writer's CPUs, and makes the scheme ready.
fn prepare<S: Scheme>(options: &Options) -> Result<S, String> {
    watch(options.warmup_ms + options.duration_ms + options.stall_ms);
    options.reader_cpus.run_here()?;
    options.writer_cpus.run_here()?;
    sleep_exactly()?;
    S::new(options)
}

fn run<S: Scheme>(scheme: &S, options: &Options, ledger: &'static Ledger) -> (Window, reader::Counts) {
    let table = Table::new(options.entries, |key| S::node(key, ledger));
    let phase = phase::Clock::default();
    let registered = Barrier::new(options.readers as usize + 1);
    let own = Node::new(0, ledger);
    let section = Section::new(rounds_of(options.section_ns, ledger));
    let think_rounds = rounds_of(options.think_ns, ledger);
    let reading = |id: usize| Reading {
        table: &table,
        phase: &phase,
        section,
        think_rounds,
        own: &own,
        stall_ms: if id == 0 { options.stall_ms } else { 0 },
    };
    thread::scope(|threads| {
        let start = |id| {
            let (reading, registered) = (reading(id), &registered);
            threads.spawn(move || read(scheme, options, id, &reading, registered))
        };
        let readers: Vec<_> = (0..options.readers as usize).map(start).collect();
        registered.wait();
        let window = write(scheme, options, &table, ledger, &phase);
        phase.turn(Phase::Stop);
        let counts = readers.into_iter().map(|reader| reader.join().expect("readers do not panic")).sum();
        (window, counts)
    })
}

fn read<S: Scheme>(
    scheme: &S,
    options: &Options,
    id: usize,
    reading: &Reading<'_>,
    registered: &Barrier,
) -> reader::Counts {
    set_role(Role::Reader);
    options.reader_cpus.run_here().expect("the first thread could run there");
    let mut part = scheme.reader(id);
    registered.wait();
    reader::read(&mut part, reading, Stream::new(options.seed, 1 + id as u64))
}

fn write<S: Scheme>(
    scheme: &S,
    options: &Options,
    table: &Table,
    ledger: &'static Ledger,
    phase: &phase::Clock,
) -> Window {
    set_role(Role::Writer);
    Writer::new(scheme, options, table, ledger, phase).run()
}
