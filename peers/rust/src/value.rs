//! A third benchmark, smaller still: what it costs to read one configuration value that a writer replaces at a given
//! rate.
//!
//! Each read copies a value of 16 bytes out, and checks that it is whole and not older than the last. The zero is
//! `value-bare`, whose read is the load of a pointer to a value that is never freed: subtract its cost in the same round
//! (`rounds` does).

use crate::clock::{MILLISECOND_NS, SECOND_NS, now_ns, sleep_until, thread_cpu_ns};
use crate::cpus::Cpus;
use crate::reader::Counts;
use crate::report::{Identity, load_average};
use crate::run::{program, sleep_exactly, watch};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Reads between two glances at the clock.
const BATCH: u64 = 1024;

/// The options of a run.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(about = "Measures the CPU time of reading one value that a writer replaces")]
pub struct ValueOptions {
    /// Reader threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub readers: u64,
    /// CPUs of the readers, which are dealt to them in turn
    #[arg(long, default_value = "0")]
    pub reader_cpus: Cpus,
    /// CPUs of the writer
    #[arg(long, default_value = "1")]
    pub writer_cpus: Cpus,
    /// Replacements per second; 0: none
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub replaces_per_s: u64,
    /// Time before the window, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warmup_ms: u64,
    /// The window in which reads count, in milliseconds
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub duration_ms: u64,
    /// Print the binary's name and library, and do nothing
    #[arg(long)]
    #[serde(skip)]
    pub describe: bool,
}

/// The configuration: 16 bytes. A value that was freed does not hold, for the allocator writes into its first 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// How many values there were before.
    pub version: u64,
    check: u64,
}

impl Value {
    /// The value after `version` others.
    pub const fn new(version: u64) -> Self {
        Self { version, check: !version }
    }

    /// Whether both halves belong together.
    #[inline(always)]
    pub fn holds(&self) -> bool {
        self.check == !self.version
    }
}

/// A library's cell for one value.
pub trait Cell: Sized + Sync {
    /// The binary's name and library.
    const IDENTITY: Identity;

    /// A remark for the report: how a read works, and when old values are freed.
    const NOTE: &'static str;

    /// State that a reader keeps between reads: a registration, a cache, or nothing.
    type Reader<'c>
    where
        Self: 'c;

    /// State of the writer.
    type Writer;

    /// Whether the machine has what the library needs.
    ///
    /// # Errors
    ///
    /// Says what it lacks.
    fn check() -> Result<(), String> {
        Ok(())
    }

    /// A cell with this value.
    fn new(value: Value) -> (Self, Self::Writer);

    /// Made once in each reader's thread.
    fn reader(&self) -> Self::Reader<'_>;

    /// A copy of the value. Inline it.
    fn read(&self, reader: &mut Self::Reader<'_>) -> Value;

    /// Makes `value` the cell's value.
    fn replace(&self, writer: &mut Self::Writer, value: Value);
}

#[derive(Serialize)]
struct Replaces {
    asked_per_s: u64,
    delivered: u64,
    cpu_ns_per_replace: f64,
    replace_ns_mean: f64,
}

#[derive(Serialize)]
struct ValueReport<'a> {
    #[serde(flatten)]
    identity: Identity,
    options: &'a ValueOptions,
    reads: u64,
    cpu_ns_per_read: f64,
    replaces: Replaces,
    errors: u64,
    load_average: Vec<f64>,
    notes: [&'static str; 1],
}

/// The writer's counts, from the start of the warm-up on.
#[derive(Default)]
struct Written {
    replaces: u64,
    cpu_ns: u64,
    replace_ns: u64,
}

/// Reads until `until_ns`, at least one batch.
fn read_until<C: Cell>(cell: &C, reader: &mut C::Reader<'_>, last: &mut u64, until_ns: u64) -> Counts {
    let mut counts = Counts::default();
    let start_ns = thread_cpu_ns();
    loop {
        for _ in 0..BATCH {
            let value = cell.read(reader);
            counts.errors += u64::from(!value.holds() | (value.version < *last));
            *last = value.version;
        }
        counts.reads += BATCH;
        if now_ns() >= until_ns {
            break;
        }
    }
    counts.cpu_ns = thread_cpu_ns() - start_ns;
    counts
}

fn read<C: Cell>(cell: &C, o: &ValueOptions, ready: &Barrier) -> Counts {
    let mut reader = cell.reader();
    let mut last = 0;
    ready.wait();
    let start_ns = now_ns() + o.warmup_ms * MILLISECOND_NS;
    let before = read_until(cell, &mut reader, &mut last, start_ns);
    let end_ns = start_ns + o.duration_ms * MILLISECOND_NS;
    let counts = read_until(cell, &mut reader, &mut last, end_ns);
    Counts { errors: counts.errors + before.errors, ..counts }
}

/// Replaces the value on schedule while readers read. A writer that is late catches up.
fn write<C: Cell>(cell: &C, writer: &mut C::Writer, rate: u64, reading: &AtomicU64) -> Written {
    let (start_ns, start_cpu_ns) = (now_ns(), thread_cpu_ns());
    let mut written = Written::default();
    while reading.load(Ordering::Relaxed) != 0 {
        let now = now_ns();
        let due_ns = match rate {
            0 => u64::MAX,
            rate => start_ns + written.replaces * SECOND_NS / rate,
        };
        if due_ns > now {
            sleep_until(due_ns.min(now + MILLISECOND_NS));
            continue;
        }
        written.replaces += 1;
        cell.replace(writer, Value::new(written.replaces));
        written.replace_ns += now_ns() - now;
    }
    written.cpu_ns = thread_cpu_ns() - start_cpu_ns;
    written
}

fn run<C: Cell>(o: &ValueOptions) -> Result<(Counts, Written), String> {
    watch(o.warmup_ms + o.duration_ms);
    C::check()?;
    o.reader_cpus.run_here()?;
    o.writer_cpus.run_here()?;
    sleep_exactly()?;
    let (cell, mut writer) = C::new(Value::new(0));
    let ready = Barrier::new(o.readers as usize + 1);
    let reading = AtomicU64::new(o.readers);
    thread::scope(|threads| {
        let start = |id| {
            let (cell, ready, reading) = (&cell, &ready, &reading);
            threads.spawn(move || {
                o.reader_cpus.nth(id as usize).run_here().expect("the first thread could run there");
                let counts = read(cell, o, ready);
                reading.fetch_sub(1, Ordering::Relaxed);
                counts
            })
        };
        let started: Vec<_> = (0..o.readers).map(start).collect();
        ready.wait();
        let written = write(&cell, &mut writer, o.replaces_per_s, &reading);
        let reads = started.into_iter().map(|thread| thread.join().expect("reads do not panic")).sum();
        Ok((reads, written))
    })
}

/// The whole program of a value binary. Exit codes: 0, 1 when a value did not hold, 2 usage, 69 when the machine lacks
/// something.
pub fn main<C: Cell>() -> ExitCode {
    let options = ValueOptions::parse();
    program(C::IDENTITY, options.describe, || {
        let (reads, written) = run::<C>(&options)?;
        let per_replace = |ns: u64| ns as f64 / written.replaces.max(1) as f64;
        let report = ValueReport {
            identity: C::IDENTITY,
            options: &options,
            reads: reads.reads,
            cpu_ns_per_read: reads.cpu_ns as f64 / reads.reads.max(1) as f64,
            replaces: Replaces {
                asked_per_s: options.replaces_per_s,
                delivered: written.replaces,
                cpu_ns_per_replace: per_replace(written.cpu_ns),
                replace_ns_mean: per_replace(written.replace_ns),
            },
            errors: reads.errors,
            load_average: load_average(),
            notes: [C::NOTE],
        };
        Ok((report, reads.errors != 0))
    })
}
