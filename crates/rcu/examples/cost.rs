//! What each kind of section adds to a look-up: thread CPU time, median of interleaved rounds. With few keys a bare
//! look-up takes about 5 ns. With 4 million keys it waits for memory, and a section adds the overlap with other
//! look-ups that it prevents. The last rows show this for plain instructions beside the same bare look-up.
//!
//! `cargo run --release -p reprieve-rcu --example cost -- [KEYS] [--json FILE]`; the second adds to the file.

use reprieve_rcu::{Domain, Fencing, Options, capabilities};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
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

/// A fixed table of chains, because the structure does not matter here.
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

/// `LOADS` loads and `STORES` stores that hit the first-level cache, and `NOPS` instructions that do nothing.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn beside<const LOADS: usize, const STORES: usize, const NOPS: usize>(line: &mut [u64; 8]) {
    // SAFETY: loads from and stores to `line` alone.
    unsafe {
        std::arch::asm!(
            ".rept {loads}", "mov {t}, [{line}]", ".endr",
            ".rept {stores}", "mov [{line} + 8], {line}", ".endr",
            ".rept {nops}", "nop", ".endr",
            loads = const LOADS, stores = const STORES, nops = const NOPS,
            line = in(reg) line.as_mut_ptr(), t = out(reg) _, options(nostack, preserves_flags),
        );
    }
}

/// Nanoseconds per look-up, by name.
type Row = (&'static str, f64);

/// One round of every kind of section.
fn sections(keys: u64, table: &Table, domain: &Domain, fenced: &Domain) -> Vec<Row> {
    let reader = domain.register("cost").expect("a reader");
    let fenced_reader = fenced.register("fenced").expect("a reader");
    let mut slot = reader.slot().expect("a slot");
    let mut rows: Vec<Row> = vec![
        ("bare", time(keys, |k| table.get(k))),
        // SAFETY: the look-up only loads.
        ("read", time(keys, |k| unsafe { reader.read(|| table.get(k)) })),
        // SAFETY: as above.
        ("domain.read", time(keys, |k| unsafe { domain.read(|| table.get(k)) })),
    ];
    let lock = |k| {
        let _guard = reader.lock();
        table.get(k)
    };
    rows.push(("lock", time(keys, lock)));
    let domain_lock = |k| {
        let _guard = domain.lock();
        table.get(k)
    };
    rows.push(("domain.lock", time(keys, domain_lock)));
    // SAFETY: the traversal only loads, and nodes live for ever.
    let acquire = |k| unsafe { slot.acquire(|| table.find(k)) }.map_or(0, |n| n.value);
    rows.push(("acquire", time(keys, acquire)));
    let mut online = reader.online();
    let quiescent = |k| {
        let value = table.get(k);
        online.quiescent();
        value
    };
    rows.push(("quiescent", time(keys, quiescent)));
    let mut alone = domain.register("alone").expect("a reader");
    let enter = |k| {
        let _entered = alone.enter();
        table.get(k)
    };
    rows.push(("enter", time(keys, enter)));
    let fenced_lock = |k| {
        let _guard = fenced_reader.lock();
        table.get(k)
    };
    rows.push(("fenced lock", time(keys, fenced_lock)));
    rows
}

/// One round of bare look-ups beside plain instructions.
#[cfg(target_arch = "x86_64")]
fn instructions(keys: u64, table: &Table) -> Vec<Row> {
    fn row<const L: usize, const S: usize, const N: usize>(
        name: &'static str,
        keys: u64,
        table: &Table,
    ) -> Row {
        let mut line = [0; 8];
        let look_up = |k| {
            beside::<L, S, N>(&mut line);
            table.get(k)
        };
        (name, time(keys, look_up))
    }
    vec![
        row::<1, 0, 0>("1 load", keys, table),
        row::<4, 0, 0>("4 loads", keys, table),
        row::<8, 0, 0>("8 loads", keys, table),
        row::<0, 4, 0>("4 stores", keys, table),
        row::<0, 8, 0>("8 stores", keys, table),
        row::<0, 0, 8>("8 no-ops", keys, table),
        row::<0, 0, 32>("32 no-ops", keys, table),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions(_: u64, _: &Table) -> Vec<Row> {
    Vec::new()
}

fn arguments() -> (u64, Option<PathBuf>) {
    let (mut keys, mut json, mut rest) = (KEYS, None, std::env::args().skip(1));
    while let Some(argument) = rest.next() {
        match (argument.as_str(), argument.parse()) {
            ("--json", _) => json = rest.next().map(PathBuf::from),
            (_, Ok(n)) if n > 0 => keys = n,
            _ => {
                eprintln!("usage: cost [KEYS] [--json FILE]");
                std::process::exit(2);
            }
        }
    }
    (keys, json)
}

fn main() {
    let (keys, json) = arguments();
    println!("{}", capabilities());
    let table = black_box(Table::new(keys));
    let (domain, fenced) = (Domain::default(), Domain::new(Options::new().fencing(Fencing::Fenced)));
    let mut rounds: Vec<Vec<Row>> = (0..ROUNDS)
        .map(|_| [sections(keys, &table, &domain, &fenced), instructions(keys, &table)].concat())
        .collect();
    let mut lines = String::new();
    let rows = rounds[0].len();
    let names: Vec<_> = rounds[0].iter().map(|row| row.0).collect();
    let mut spread = |i: usize| {
        rounds.sort_by(|a, b| a[i].1.total_cmp(&b[i].1));
        [0, ROUNDS / 2, ROUNDS - 1].map(|at| rounds[at][i].1)
    };
    let bare = spread(0)[1];
    for (i, name) in (0..rows).zip(names) {
        let [least, median, most] = spread(i);
        println!("{name:12} {median:6.2} ns per look-up, {:+6.2} ns", median - bare);
        lines += &format!(
            "{{\"keys\": {keys}, \"beside\": \"{name}\", \"added_ns\": {:.2}, \"ns\": [{least:.2}, {median:.2}, {most:.2}]}}\n",
            median - bare
        );
    }
    if let Some(path) = json
        && let Err(e) = append(&path, &lines)
    {
        eprintln!("cost: {}: {e}", path.display());
        std::process::exit(1);
    }
}

fn append(path: &Path, lines: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(lines.as_bytes())
}
