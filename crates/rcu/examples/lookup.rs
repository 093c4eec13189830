//! What a look-up costs: CPU time of the calling thread, for 4 million random keys, on one thread and on two.
//!
//! The limit is `std`'s `HashMap` with the same hasher, which is not concurrent. Each round measures all kinds of
//! look-up in turn. Ratios are formed within a round, and their median is printed.
//!
//! `cargo run --release -p reprieve-rcu --example lookup [ENTRIES [ROUNDS]]`

use reprieve_rcu::map::{FastHash, MapOptions};
use reprieve_rcu::{Domain, RcuMap, Reader};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Barrier;

const LOOKUPS: u64 = 4_000_000;

type Std = HashMap<u64, u64, FastHash>;
type Peer = papaya::HashMap<u64, u64, FastHash>;

struct Maps {
    std: Std,
    rcu: RcuMap<u64, u64, FastHash>,
    papaya: Peer,
    domain: Domain,
    keys: u64,
}

/// A way to look keys up. Returns the sum of the values of many keys.
struct Way {
    name: &'static str,
    run: fn(&Maps, &Reader, u64) -> u64,
}

const WAYS: [Way; 8] = [
    Way { name: "std HashMap", run: |m, _, seed| m.sum(seed, |key| m.std[&key]) },
    Way {
        name: "RcuMap, one section",
        run: |m, reader, seed| {
            let guard = reader.lock();
            m.sum(seed, |key| *m.rcu.get(&key, &guard).expect("present"))
        },
    },
    Way {
        name: "RcuMap, a section each",
        run: |m, reader, seed| m.sum(seed, |key| *m.rcu.get(&key, &reader.lock()).expect("present")),
    },
    Way {
        name: "RcuMap, a section each, not registered",
        run: |m, _, seed| m.sum(seed, |key| *m.rcu.get(&key, &m.domain.lock()).expect("present")),
    },
    Way {
        name: "RcuMap, pinned each, not registered",
        run: |m, _, seed| m.sum(seed, |key| *m.rcu.pin().get(&key).expect("present")),
    },
    Way {
        name: "RcuMap, restartable",
        run: |m, _, seed| m.sum(seed, |key| m.rcu.copied(&key).expect("present")),
    },
    Way {
        name: "papaya, pinned once",
        run: |m, _, seed| {
            let guard = m.papaya.guard();
            m.sum(seed, |key| *m.papaya.get(&key, &guard).expect("present"))
        },
    },
    Way {
        name: "papaya, pinned each",
        run: |m, _, seed| m.sum(seed, |key| *m.papaya.pin().get(&key).expect("present")),
    },
];

impl Maps {
    fn new(keys: u64) -> Self {
        let domain = Domain::default();
        let options = MapOptions::new().capacity(keys as usize);
        let rcu = RcuMap::with_options(&domain, options, FastHash::default());
        let mut std = Std::with_capacity_and_hasher(keys as usize, FastHash::default());
        let papaya = Peer::with_capacity_and_hasher(keys as usize, FastHash::default());
        for n in 0..keys {
            std.insert(key(n), n);
            rcu.insert(key(n), n);
            papaya.pin().insert(key(n), n);
        }
        Self { std, rcu, papaya, domain, keys }
    }

    #[inline(always)]
    fn sum(&self, seed: u64, get: impl Fn(u64) -> u64) -> u64 {
        let mut x = seed;
        let mut sum = 0u64;
        for _ in 0..LOOKUPS {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let n = ((u128::from(x) * u128::from(self.keys)) >> 64) as u64;
            sum = sum.wrapping_add(get(key(n)));
        }
        sum
    }
}

/// The n-th key: random, but computed without a table (the finalizer of SplitMix64, a bijection).
#[inline(always)]
fn key(n: u64) -> u64 {
    let x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU nanoseconds per look-up, averaged over `threads` threads.
fn time(maps: &Maps, way: &Way, threads: usize, round: usize) -> f64 {
    let start = Barrier::new(threads);
    let one = |thread: usize| {
        let reader = maps.domain.register("lookup").expect("a reader");
        start.wait();
        let before = cpu_ns();
        black_box((way.run)(
            maps,
            &reader,
            88_172_645_463_325_252 + (round * threads + thread) as u64 * 2_654_435_761,
        ));
        (cpu_ns() - before) as f64 / LOOKUPS as f64
    };
    let sum: f64 = std::thread::scope(|s| {
        let spawn = |thread| {
            let one = &one;
            s.spawn(move || one(thread))
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).sum()
    });
    sum / threads as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let keys = arguments.first().copied().unwrap_or(4 << 20);
    let rounds = arguments.get(1).map_or(7, |&n| n as usize);
    let maps = Maps::new(keys);
    for threads in [1, 2] {
        println!(
            "{keys} entries, {threads} threads, {rounds} rounds: CPU ns per look-up, and times the limit"
        );
        let all: Vec<Vec<f64>> = (0..rounds)
            .map(|round| WAYS.iter().map(|way| time(&maps, way, threads, round)).collect())
            .collect();
        for (i, way) in WAYS.iter().enumerate() {
            let ns = median(all.iter().map(|round| round[i]).collect());
            let ratio = median(all.iter().map(|round| round[i] / round[0]).collect());
            println!("{:40} {ns:6.1} ns  {ratio:5.2}", way.name);
        }
    }
}
