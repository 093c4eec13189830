//! Counts what a kernel frees after grace periods, and times these, by perf events at the kernel's own functions.
//!
//! | function | what is taken of it |
//! |---|---|
//! | `call_rcu`, `call_rcu_hurry` | the number of calls; of every [`PERIOD`]th, the callback |
//! | `kvfree_call_rcu` | the number of calls; of every [`PERIOD`]th, the caller |
//! | `rcu_gp_init`, `rcu_gp_cleanup` | when each grace period began and ended |
//!
//! Most callbacks free the object that they are queued with, so their functions tell whose objects these are. Each CPU has an
//! event, and a call passes through those of all CPUs. The events end with this process. Where a function frees something last
//! of all, the compiler may have made that a jump, and its caller is taken for it.
//!
//! Source: kernel/rcu/tree.c of Linux 6.1 and 6.12.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

use perf_event_open_sys::bindings as perf;
use reprieve_policy::cpus::CpuSet;

use super::Symbols;
use crate::perf::kprobe::{Kprobes, Register, with_register};
use crate::perf::per_cpu::{EventSpec, PerCpu};
use crate::perf::record::{PerfRecord, SAMPLE_REST_BYTES};
use crate::{Error, Result};

/// Every so many calls one is recorded. Prime, so that it has nothing in common with bursts.
pub const PERIOD: u64 = 61;
/// Pages of a ring: room for 4,000 records on one CPU between two looks, so for 250,000 calls.
const RING_PAGES: usize = 64;
/// Frames of a call chain that are recorded: the function itself, which may be in it twice, its caller, and the caller's.
const FRAMES: u16 = 4;
/// The longest pause between two looks: then no record is lost up to a million calls a second on each CPU.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest grace period that counts, ns; a begin without an end is forgotten.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// From here on, words of a call chain are no addresses but marks (`PERF_CONTEXT_MAX`).
const MARKS: u64 = -4095_i64 as u64;

/// Callbacks that are queued, with their function as second argument.
const CALLS: [&CStr; 2] = [c"call_rcu", c"call_rcu_hurry"];
/// Frees without a callback.
const FREES: &CStr = c"kvfree_call_rcu";
const BEGIN: &CStr = c"rcu_gp_init";
const END: &CStr = c"rcu_gp_cleanup";

/// Who frees objects, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct Frees {
    /// The callback, or for objects that are freed without one, the function that freed them.
    pub function: String,
    /// Whether it is a callback.
    pub is_callback: bool,
    /// The number of objects, from all calls and the share of records with this function.
    pub objects: f64,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deferred {
    /// By function, the most objects first.
    pub frees: Vec<Frees>,
    /// Durations of the grace periods that began and ended meanwhile, ns.
    pub grace_periods_ns: Vec<u64>,
    /// Whether records are missing. The number of objects is right nevertheless.
    pub missed: bool,
}

/// An event at a function, and what its records said.
struct Probe {
    events: PerCpu,
    is_callback: bool,
    /// Records by the address that they hold.
    seen: BTreeMap<u64, u64>,
    /// Calls that were taken.
    taken: u64,
}

/// Watches a kernel's deferred frees and grace periods.
pub struct Watch {
    symbols: Symbols,
    frees: Vec<Probe>,
    begins: PerCpu,
    ends: PerCpu,
    /// Times at which grace periods began and ended; the latter are marked.
    bounds: Vec<(u64, bool)>,
    missed: bool,
}

impl Watch {
    /// Begins to watch these CPUs; `sys` is the `/sys` to use, and `symbols` are those of the running kernel.
    ///
    /// # Errors
    /// It is not permitted, or the kernel has no such events or functions.
    pub fn begin(sys: &Path, symbols: Symbols, online: &CpuSet) -> Result<Watch> {
        let probes = Kprobes::find(sys)?;
        let has = |function: &CStr| symbols.has(&function.to_string_lossy());
        if let Some(missing) = [CALLS[0], FREES, BEGIN, END].into_iter().find(|function| !has(function)) {
            return Err(Error::Missing {
                what: "function of RCU",
                path: missing.to_string_lossy().into_owned().into(),
                way_out: "use Linux 5.9 or later with CONFIG_TREE_RCU, or write the profile by hand",
            });
        }
        let each = |attributes| spec(attributes, PERIOD, "deferred frees");
        let calls = CALLS.into_iter().filter(|function| has(function));
        let mut frees = calls
            .map(|function| {
                Probe::open(each(with_register(probes.begin(function), Register::Second)), true, online)
            })
            .collect::<Result<Vec<_>>>()?;
        frees.push(Probe::open(each(with_caller(probes.begin(FREES))), false, online)?);
        let bound = |function| PerCpu::open(spec(probes.begin(function), 1, "grace periods"), online);
        Ok(Watch {
            symbols,
            frees,
            begins: bound(BEGIN)?,
            ends: bound(END)?,
            bounds: Vec::new(),
            missed: false,
        })
    }

    /// Takes the records since the last look.
    pub fn look(&mut self) {
        for probe in &mut self.frees {
            self.missed |= probe.look(&self.symbols);
        }
        let bounds = &mut self.bounds;
        for (events, is_end) in [(&mut self.begins, false), (&mut self.ends, true)] {
            self.missed |= events.drain(&mut |record| {
                if let PerfRecord::Sample { time_ns, .. } = record {
                    bounds.push((time_ns, is_end));
                }
            });
        }
    }

    /// Takes what was seen since it began, or since this was called last.
    ///
    /// # Errors
    /// Calls could not be counted.
    pub fn take(&mut self) -> Result<Deferred> {
        self.look();
        let mut frees = Vec::new();
        for probe in &mut self.frees {
            let counted = probe.events.count()?;
            let objects = counted.saturating_sub(std::mem::replace(&mut probe.taken, counted));
            frees.extend(shares(&probe.seen, objects, probe.is_callback, &self.symbols));
            probe.seen.clear();
        }
        frees.sort_by(|a, b| b.objects.total_cmp(&a.objects).then_with(|| a.function.cmp(&b.function)));
        self.bounds.sort_unstable();
        let grace_periods_ns = durations(&self.bounds);
        // The one that is open counts when it has ended.
        let open = self.bounds.last().copied().filter(|(_, is_end)| !is_end);
        self.bounds.clear();
        self.bounds.extend(open);
        Ok(Deferred { frees, grace_periods_ns, missed: std::mem::take(&mut self.missed) })
    }

    /// Ends it, and gives what was seen.
    ///
    /// # Errors
    /// Calls could not be counted.
    pub fn end(mut self) -> Result<Deferred> {
        self.take()
    }
}

impl Probe {
    fn open(spec: EventSpec, is_callback: bool, online: &CpuSet) -> Result<Probe> {
        Ok(Probe { events: PerCpu::open(spec, online)?, is_callback, seen: BTreeMap::new(), taken: 0 })
    }

    fn look(&mut self, symbols: &Symbols) -> bool {
        let (seen, is_callback) = (&mut self.seen, self.is_callback);
        self.events.drain(&mut |record| {
            if let PerfRecord::Sample { rest, .. } = record {
                let address = if is_callback { callback(&rest) } else { caller(&rest, symbols) };
                *seen.entry(address.unwrap_or(0)).or_default() += 1;
            }
        })
    }
}

fn spec(mut attributes: perf::perf_event_attr, period: u64, what: &'static str) -> EventSpec {
    attributes.__bindgen_anon_1.sample_period = period;
    EventSpec { attributes, ring_pages: RING_PAGES, what }
}

fn with_caller(mut attributes: perf::perf_event_attr) -> perf::perf_event_attr {
    attributes.sample_type |= u64::from(perf::PERF_SAMPLE_CALLCHAIN);
    attributes.set_exclude_callchain_user(1);
    attributes.sample_max_stack = FRAMES;
    attributes
}

fn word(rest: &[u8; SAMPLE_REST_BYTES], index: usize) -> u64 {
    u64::from_ne_bytes(rest[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

/// The register in a record.
fn callback(rest: &[u8; SAMPLE_REST_BYTES]) -> Option<u64> {
    (word(rest, 0) != u64::from(perf::PERF_SAMPLE_REGS_ABI_NONE)).then(|| word(rest, 1))
}

/// The caller in a record: after the number of frames and marks among them, the first address that is in a function, but not in
/// the one that was called.
fn caller(rest: &[u8; SAMPLE_REST_BYTES], symbols: &Symbols) -> Option<u64> {
    let recorded = word(rest, 0).min(SAMPLE_REST_BYTES as u64 / 8 - 1) as usize;
    let mut frames = (1..=recorded).map(|index| word(rest, index)).filter(|address| *address < MARKS);
    frames.find(|address| symbols.name(*address).is_some_and(|name| FREES.to_bytes() != name.as_bytes()))
}

/// Gives each function its share of so many objects.
fn shares(seen: &BTreeMap<u64, u64>, objects: u64, is_callback: bool, symbols: &Symbols) -> Vec<Frees> {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (address, records) in seen {
        *by_name.entry(symbols.name(*address).unwrap_or("unknown")).or_default() += records;
    }
    if by_name.is_empty() && objects > 0 {
        // Fewer calls than make a record.
        by_name.insert("unknown", 1);
    }
    let records: u64 = by_name.values().sum();
    let share = |count: u64| objects as f64 * count as f64 / records as f64;
    by_name
        .into_iter()
        .map(|(name, count)| Frees { function: name.into(), is_callback, objects: share(count) })
        .filter(|frees| frees.objects > 0.0)
        .collect()
}

/// The durations between begins and the ends that follow them, in the order of time.
fn durations(bounds: &[(u64, bool)]) -> Vec<u64> {
    let pairs = bounds.windows(2).filter(|pair| !pair[0].1 && pair[1].1);
    pairs.map(|pair| pair[1].0 - pair[0].0).filter(|ns| *ns <= LONGEST_NS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(words: [u64; 6]) -> [u8; SAMPLE_REST_BYTES] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.try_into().unwrap()
    }

    #[test]
    fn records_hold_the_callback_or_the_caller() {
        assert_eq!(callback(&rest([2, 77, 0, 0, 0, 0])), Some(77));
        assert_eq!(callback(&rest([0, 77, 0, 0, 0, 0])), None, "without registers");
        let symbols = Symbols::of("10 T kvfree_call_rcu\n20 T first\n30 T second\n");
        let kernel = -128_i64 as u64;
        assert_eq!(caller(&rest([4, kernel, 0x10, 0x24, 0x38, 0]), &symbols), Some(0x24));
        assert_eq!(caller(&rest([5, kernel, 0x10, 0x10, 0x24, 0x38]), &symbols), Some(0x24), "twice");
        assert_eq!(caller(&rest([2, kernel, 0x10, 0x24, 0, 0]), &symbols), None, "without a caller");
    }

    #[test]
    fn every_object_is_somebody_s() {
        let symbols = Symbols::of("10 T free_file\n20 t free_dentry\n");
        let seen = BTreeMap::from([(0x10, 2), (0x14, 1), (0x20, 1), (0, 4)]);
        let of = |name: &str, objects| Frees { function: name.into(), is_callback: true, objects };
        let found = shares(&seen, 800, true, &symbols);
        assert_eq!(found, [of("free_dentry", 100.0), of("free_file", 300.0), of("unknown", 400.0)]);
        assert_eq!(shares(&BTreeMap::new(), 5, true, &symbols), [of("unknown", 5.0)]);
        assert_eq!(shares(&BTreeMap::new(), 0, true, &symbols), []);
    }

    #[test]
    fn a_grace_period_counts_if_both_its_bounds_were_seen() {
        let (begin, end) = (false, true);
        let bounds = [(5, end), (10, begin), (30, end), (40, begin), (90, begin), (95, end), (99, begin)];
        assert_eq!(durations(&bounds), [20, 5]);
    }
}
