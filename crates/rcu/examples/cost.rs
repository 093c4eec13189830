//! What each kind of section adds to a look-up: thread CPU time, median of interleaved rounds. With few keys a
//! bare look-up takes about 5 ns; with 4 million it waits for memory, and a section adds what it keeps the processor
//! from doing meanwhile.
//!
//! `cargo run --release -p reprieve-rcu --example cost [KEYS]`

use reprieve_rcu::{Domain, Fencing, Options, capabilities};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

const KEYS: u64 = 512;
const LOOKUPS: u64 = 4_000_000;
const ROUNDS: usize = 9;

struct Node {
    key: u64,
    value: u64,
    next: AtomicPtr<Node>,
}

/// A fixed table of chains: the structure is not the subject.
struct Table {
    heads: Vec<AtomicPtr<Node>>,
    mask: usize,
}

impl Table {
    fn new(keys: u64) -> Self {
        let buckets = 2 * (keys as usize).next_power_of_two();
        let table = Self {
            heads: (0..buckets).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            mask: buckets - 1,
        };
        for key in 0..keys {
            let head = table.head(key);
            let next = AtomicPtr::new(head.load(Ordering::Relaxed));
            head.store(Box::into_raw(Box::new(Node { key, value: key * 31, next })), Ordering::Relaxed);
        }
        table
    }

    #[inline(always)]
    fn head(&self, key: u64) -> &AtomicPtr<Node> {
        &self.heads[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize & self.mask]
    }

    #[inline(always)]
    fn find(&self, key: u64) -> *const Node {
        let mut at = self.head(key).load(Ordering::Acquire);
        // SAFETY: nodes are never freed in this program.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.key == key {
                break;
            }
            at = node.next.load(Ordering::Acquire);
        }
        at
    }

    #[inline(always)]
    fn get(&self, key: u64) -> u64 {
        // SAFETY: nodes are never freed in this program.
        unsafe { self.find(key).as_ref() }.map_or(0, |n| n.value)
    }
}

fn cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds per call of `lookup`.
#[inline(never)]
fn time(keys: u64, mut lookup: impl FnMut(u64) -> u64) -> f64 {
    let (mut x, mut sum) = (88_172_645_463_325_252u64, 0u64);
    let start = cpu_ns();
    for _ in 0..LOOKUPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum = sum.wrapping_add(lookup(((u128::from(x) * u128::from(keys)) >> 64) as u64));
    }
    black_box(sum);
    (cpu_ns() - start) as f64 / LOOKUPS as f64
}

fn main() {
    println!("{}", capabilities());
    let keys = std::env::args().nth(1).map_or(KEYS, |keys| keys.parse().expect("a number"));
    let table = black_box(Table::new(keys));
    let domain = Domain::default();
    let reader = domain.register("cost").expect("a reader");
    let fenced = Domain::new(Options::new().fencing(Fencing::Fenced));
    let fenced_reader = fenced.register("fenced").expect("a reader");
    let mut slot = reader.slot().expect("a slot");
    let mut online = reader.online();
    let names = ["bare", "read", "domain.read", "lock", "domain.lock", "acquire", "quiescent", "fenced lock"];
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for _ in 0..ROUNDS {
        let mut results = vec![
            time(keys, |k| table.get(k)),
            // SAFETY: the look-up only loads.
            time(keys, |k| unsafe { reader.read(|| table.get(k)) }),
            // SAFETY: as above.
            time(keys, |k| unsafe { domain.read(|| table.get(k)) }),
        ];
        results.push(online.offline(|| {
            time(keys, |k| {
                let _guard = reader.lock();
                table.get(k)
            })
        }));
        results.push(time(keys, |k| {
            let _guard = domain.lock();
            table.get(k)
        }));
        // SAFETY: the traversal only loads, and nodes live for ever.
        results.push(time(keys, |k| unsafe { slot.acquire(|| table.find(k)) }.map_or(0, |n| n.value)));
        results.push(time(keys, |k| {
            let value = table.get(k);
            online.quiescent();
            value
        }));
        results.push(time(keys, |k| {
            let _guard = fenced_reader.lock();
            table.get(k)
        }));
        rounds.iter_mut().zip(results).for_each(|(all, r)| all.push(r));
    }
    for all in &mut rounds {
        all.sort_by(f64::total_cmp);
    }
    let bare = rounds[0][ROUNDS / 2];
    for (name, all) in names.iter().zip(&rounds) {
        let ns = all[ROUNDS / 2];
        println!("{name:12} {ns:6.2} ns per look-up, {:+6.2} ns", ns - bare);
    }
}
