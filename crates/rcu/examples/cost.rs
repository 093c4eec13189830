//! What each kind of section adds to a look-up of about 5 ns: thread CPU time, median of interleaved rounds.
//!
//! `cargo run --release -p reprieve-rcu --example cost`

use reprieve_rcu::{Domain, Fencing, Options, capabilities};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

const BUCKETS: usize = 1024;
const KEYS: u64 = 512;
const LOOKUPS: u64 = 4_000_000;
const ROUNDS: usize = 9;

struct Node {
    key: u64,
    value: u64,
    next: AtomicPtr<Node>,
}

/// A fixed table of chains: the structure is not the subject.
struct Table(Vec<AtomicPtr<Node>>);

fn bucket(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize % BUCKETS
}

impl Table {
    fn new() -> Self {
        let table = Self((0..BUCKETS).map(|_| AtomicPtr::new(ptr::null_mut())).collect());
        for key in 0..KEYS {
            let head = &table.0[bucket(key)];
            let next = AtomicPtr::new(head.load(Ordering::Relaxed));
            head.store(Box::into_raw(Box::new(Node { key, value: key * 31, next })), Ordering::Relaxed);
        }
        table
    }

    #[inline(always)]
    fn find(&self, key: u64) -> *const Node {
        let mut at = self.0[bucket(key)].load(Ordering::Acquire);
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
fn time(mut lookup: impl FnMut(u64) -> u64) -> f64 {
    let (mut x, mut sum) = (88_172_645_463_325_252u64, 0u64);
    let start = cpu_ns();
    for _ in 0..LOOKUPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum = sum.wrapping_add(lookup(x % KEYS));
    }
    black_box(sum);
    (cpu_ns() - start) as f64 / LOOKUPS as f64
}

fn main() {
    println!("{}", capabilities());
    let table = black_box(Table::new());
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
            time(|k| table.get(k)),
            // SAFETY: the look-up only loads.
            time(|k| unsafe { reader.read(|| table.get(k)) }),
            // SAFETY: as above.
            time(|k| unsafe { domain.read(|| table.get(k)) }),
        ];
        results.push(online.offline(|| {
            time(|k| {
                let _guard = reader.lock();
                table.get(k)
            })
        }));
        results.push(time(|k| {
            let _guard = domain.lock();
            table.get(k)
        }));
        // SAFETY: the traversal only loads, and nodes live for ever.
        results.push(time(|k| unsafe { slot.acquire(|| table.find(k)) }.map_or(0, |n| n.value)));
        results.push(time(|k| {
            let value = table.get(k);
            online.quiescent();
            value
        }));
        results.push(time(|k| {
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
