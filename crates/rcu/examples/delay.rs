//! The time from unlinking an object to freeing it, while readers share a core. This crate exists to make it short.
//!
//! `cargo run --release -p reprieve-rcu --example delay -- [KIND...]`, with kinds read, acquire, lock,
//! online; each with `+batch` or `+thread` for batches of 16 or a reclaimer thread, and `/shared` for the
//! writer on the readers' core. 8 readers on CPU 0 look up random keys; a writer on CPU 1 replaces 5,000
//! entries a second.

use reprieve_rcu::{Domain, Options, capabilities};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 1 << 16;
const READERS: usize = 8;
const RATE_PER_S: u64 = 5_000;
const RUN: Duration = Duration::from_millis(1_500);

/// An entry. Its drop records how long ago it was unlinked.
struct Entry {
    key: u64,
    unlinked: Option<Instant>,
    delays: Arc<Delays>,
}

/// Delays in nanoseconds, one per free.
struct Delays {
    taken: AtomicU64,
    ns: Vec<AtomicU64>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.key = u64::MAX;
        if let Some(since) = self.unlinked {
            let at = self.delays.taken.fetch_add(1, Ordering::Relaxed) as usize;
            if let Some(place) = self.delays.ns.get(at) {
                place.store(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
        }
    }
}

struct Run {
    domain: Domain,
    table: Vec<AtomicPtr<Entry>>,
    stop: AtomicBool,
    lookups: AtomicU64,
    errors: AtomicU64,
}

fn pin(cpu: usize) {
    // SAFETY: a CPU set is plain data, and valid for the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

struct Random(u64);
impl Random {
    fn key(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % KEYS
    }
}

impl Run {
    fn key(&self, at: usize) -> u64 {
        // SAFETY: called within a section of the domain that the entries are retired in.
        unsafe { (*self.table[at].load(Ordering::Acquire)).key }
    }

    fn read_loop(&self, kind: &str, seed: u64) {
        pin(0);
        let reader = self.domain.register("reader").expect("a reader");
        let mut slot = reader.slot().expect("a slot");
        let mut online = reader.online();
        let (mut random, mut done, mut wrong) = (Random(seed), 0u64, 0u64);
        let mut body = |online: Option<&mut reprieve_rcu::Online<'_>>| {
            let at = random.key();
            let key = match kind {
                // SAFETY: two loads.
                "read" => unsafe { reader.read(|| self.key(at)) },
                "lock" => {
                    let _guard = reader.lock();
                    self.key(at)
                }
                "acquire" => {
                    // SAFETY: one load, of an entry that is retired by its address.
                    let found =
                        unsafe { slot.acquire(|| self.table[at].load(Ordering::Acquire).cast_const()) };
                    found.map_or(0, |e| e.key)
                }
                _ => self.key(at),
            };
            wrong += u64::from(key != at as u64);
            done += 1;
            if let Some(online) = online {
                online.quiescent();
            }
        };
        if kind == "online" {
            while !self.stop.load(Ordering::Relaxed) {
                body(Some(&mut online));
            }
        } else {
            online.offline(|| {
                while !self.stop.load(Ordering::Relaxed) {
                    body(None);
                }
            });
        }
        self.lookups.fetch_add(done, Ordering::Relaxed);
        self.errors.fetch_add(wrong, Ordering::Relaxed);
    }

    /// Replaces entries at the given rate. Returns how many, and the time spent on retiring them.
    fn write_loop(&self, delays: &Arc<Delays>, cpu: usize) -> (u64, Duration) {
        pin(cpu);
        let (start, mut done, mut cost) = (Instant::now(), 0, Duration::ZERO);
        let mut random = Random(99);
        while start.elapsed() < RUN {
            let due = Duration::from_nanos(done * 1_000_000_000 / RATE_PER_S);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let at = random.key();
            let new =
                Box::into_raw(Box::new(Entry { key: at as u64, unlinked: None, delays: delays.clone() }));
            let old = self.table[at].swap(new, Ordering::AcqRel);
            let before = Instant::now();
            // SAFETY: unlinked by the swap; readers do not read this field.
            unsafe {
                (&raw mut (*old).unlinked).write(Some(before));
                self.domain.retire(old);
            }
            cost += before.elapsed();
            done += 1;
        }
        (done, cost)
    }
}

fn measure(spec: &str) {
    let (spec_kind, shared) = spec.strip_suffix("/shared").map_or((spec, false), |k| (k, true));
    let (kind, mode) = spec_kind.split_once('+').unwrap_or((spec_kind, ""));
    let options = match mode {
        "batch" => Options::new().batch(16),
        "thread" => Options::new().batch(1 << 20).deadline_ns(100_000),
        _ => Options::new(),
    };
    let taken = RATE_PER_S as usize * 4;
    let delays =
        Arc::new(Delays { taken: AtomicU64::new(0), ns: (0..taken).map(|_| AtomicU64::new(0)).collect() });
    let entry = |key| Box::into_raw(Box::new(Entry { key, unlinked: None, delays: delays.clone() }));
    let run = Run {
        domain: Domain::new(options),
        table: (0..KEYS as u64).map(|k| AtomicPtr::new(entry(k))).collect(),
        stop: AtomicBool::new(false),
        lookups: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    };
    let reclaimer = (mode == "thread").then(|| run.domain.spawn_reclaimer().expect("a thread"));
    let (done, cost) = std::thread::scope(|s| {
        for seed in 1..=READERS {
            let run = &run;
            s.spawn(move || run.read_loop(kind, seed as u64));
        }
        std::thread::sleep(Duration::from_millis(200));
        let written = run.write_loop(&delays, usize::from(!shared));
        run.stop.store(true, Ordering::Relaxed);
        written
    });
    drop(reclaimer);
    run.domain.barrier();
    report(spec, &run, &delays, done, cost);
    // SAFETY: no reader is left.
    run.table.iter().for_each(|p| drop(unsafe { Box::from_raw(p.swap(ptr::null_mut(), Ordering::Relaxed)) }));
}

fn report(spec: &str, run: &Run, delays: &Delays, done: u64, cost: Duration) {
    let taken = (delays.taken.load(Ordering::Relaxed) as usize).min(delays.ns.len());
    let mut ns: Vec<u64> = delays.ns[..taken].iter().map(|d| d.load(Ordering::Relaxed)).collect();
    ns.sort_unstable();
    let us = |q: f64| ns[((ns.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let mean = ns.iter().sum::<u64>() as f64 / ns.len() as f64 / 1e3;
    let stats = run.domain.stats();
    println!(
        "{spec:16} delay us p50 {:8.1} avg {mean:8.1} p99 {:8.1} max {:8.1} | {done} deletes, {:5.1} us each | \
         peak {} | {:5.1} M look-ups, {} wrong | restarts {} fallbacks {}",
        us(0.5),
        us(0.99),
        us(1.0),
        cost.as_secs_f64() * 1e6 / done as f64,
        stats.peak_objects,
        run.lookups.load(Ordering::Relaxed) as f64 / 1e6,
        run.errors.load(Ordering::Relaxed),
        stats.restarts,
        stats.fallbacks
    );
}

fn main() {
    println!("{}", capabilities());
    let named: Vec<String> = std::env::args().skip(1).collect();
    let all = ["read", "acquire", "lock", "online", "read+batch", "read+thread", "lock+thread"];
    if named.is_empty() { all.iter().for_each(|k| measure(k)) } else { named.iter().for_each(|k| measure(k)) }
}
