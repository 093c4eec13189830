//! A second, smaller benchmark: what a look-up in a library's hash table costs, with the table left alone.
//!
//! Keys are the images of `0..entries` under a bijection, so a random key of the table is computed, not read from
//! memory. Each thread reports its CPU time per look-up, key generation included.

use crate::clock::{MILLISECOND_NS, now_ns, thread_cpu_ns};
use crate::cpus::Cpus;
use crate::random::{Stream, mix64};
use crate::reader::Counts;
use crate::report::{Identity, load_average};
use crate::run::{program, watch};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

/// Look-ups between two glances at the clock.
const BATCH: u64 = 1024;

/// What a look-up run is asked to do.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(about = "Measures the CPU time of a look-up in one hash table")]
pub struct LookupOptions {
    /// Entries of the hash table
    #[arg(long, default_value_t = 4_194_304, value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
    pub entries: u64,
    /// Threads that look up
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// CPUs of the threads, which are dealt to them in turn
    #[arg(long, default_value = "0-1")]
    pub cpus: Cpus,
    /// Time before the window, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warmup_ms: u64,
    /// The window in which look-ups count, in milliseconds
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub duration_ms: u64,
    /// Look up 32 keys at a time, by the library's call for that where it has one
    #[arg(long)]
    pub together: bool,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print who this binary is, and do nothing
    #[arg(long)]
    #[serde(skip)]
    pub describe: bool,
}

/// So many keys are looked up together, if keys are.
pub const TOGETHER: usize = 32;

/// A library's hash table of u64 keys and values.
pub trait Map: Sync {
    /// Who this is.
    const IDENTITY: Identity;

    /// What a thread keeps between look-ups: a guard held for long, or nothing.
    type Handle<'m>
    where
        Self: 'm;

    /// A table of these entries, `capacity` of them, all different.
    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self;

    /// Made once in each thread.
    fn handle(&self) -> Self::Handle<'_>;

    /// The value of `key`. Inline it.
    fn get(&self, handle: &Self::Handle<'_>, key: u64) -> Option<u64>;

    /// The values of several keys. Inline it.
    #[inline(always)]
    fn get_many(&self, handle: &Self::Handle<'_>, keys: &[u64; TOGETHER]) -> [Option<u64>; TOGETHER] {
        keys.map(|key| self.get(handle, key))
    }
}

#[derive(Serialize)]
struct LookupReport<'a> {
    #[serde(flatten)]
    identity: Identity,
    options: &'a LookupOptions,
    lookups: u64,
    cpu_ns_per_lookup: f64,
    errors: u64,
    load_average: Vec<f64>,
    notes: [String; 0],
}

#[inline]
fn key_of(seed: u64, index: u64) -> u64 {
    mix64(index ^ seed)
}

#[inline]
fn value_of(key: u64) -> u64 {
    !key
}

/// Looks up random keys until `until_ns`, at least one batch.
fn look_up_until<M: Map>(
    map: &M,
    handle: &M::Handle<'_>,
    o: &LookupOptions,
    random: &mut Stream,
    until_ns: u64,
) -> Counts {
    let mut counts = Counts::default();
    let start_ns = thread_cpu_ns();
    loop {
        let mut random_key = || key_of(o.seed, random.below(o.entries));
        if o.together {
            for _ in 0..BATCH / TOGETHER as u64 {
                let keys: [u64; TOGETHER] = std::array::from_fn(|_| random_key());
                let values = map.get_many(handle, &keys);
                counts.errors +=
                    std::iter::zip(keys, values).filter(|&(k, v)| v != Some(value_of(k))).count() as u64;
            }
        } else {
            for _ in 0..BATCH {
                let key = random_key();
                counts.errors += u64::from(map.get(handle, key) != Some(value_of(key)));
            }
        }
        counts.reads += BATCH;
        if now_ns() >= until_ns {
            break;
        }
    }
    counts.cpu_ns = thread_cpu_ns() - start_ns;
    counts
}

fn thread_main<M: Map>(map: &M, o: &LookupOptions, id: u64, ready: &Barrier) -> Counts {
    let handle = map.handle();
    let mut random = Stream::new(o.seed, 1 + id);
    ready.wait();
    let start_ns = now_ns() + o.warmup_ms * MILLISECOND_NS;
    let before = look_up_until(map, &handle, o, &mut random, start_ns);
    let mut counts = look_up_until(map, &handle, o, &mut random, start_ns + o.duration_ms * MILLISECOND_NS);
    counts.errors += before.errors;
    counts
}

/// The whole program of a look-up binary. Exit codes: 0, 1 when a key was not found with its value, 2 usage, 69 when the
/// machine lacks a CPU.
pub fn main<M: Map>() -> ExitCode {
    let options = LookupOptions::parse();
    program(M::IDENTITY, options.describe, || {
        let counts = run::<M>(&options)?;
        let report = LookupReport {
            identity: M::IDENTITY,
            options: &options,
            lookups: counts.reads,
            cpu_ns_per_lookup: counts.cpu_ns as f64 / counts.reads.max(1) as f64,
            errors: counts.errors,
            load_average: load_average(),
            notes: [],
        };
        Ok((report, counts.errors != 0))
    })
}

fn run<M: Map>(o: &LookupOptions) -> Result<Counts, String> {
    watch(o.warmup_ms + o.duration_ms);
    o.cpus.nth(0).run_here()?;
    let map = M::build(
        o.entries as usize,
        (0..o.entries).map(|i| key_of(o.seed, i)).map(|key| (key, value_of(key))),
    );
    let ready = Barrier::new(o.threads as usize);
    thread::scope(|threads| {
        let start = |id| {
            let (map, ready) = (&map, &ready);
            threads.spawn(move || {
                let placed = o.cpus.nth(id as usize).run_here();
                let counts = thread_main(map, o, id, ready);
                placed.map(|()| counts)
            })
        };
        let started: Vec<_> = (0..o.threads).map(start).collect();
        started.into_iter().map(|thread| thread.join().expect("look-ups do not panic")).sum()
    })
}
