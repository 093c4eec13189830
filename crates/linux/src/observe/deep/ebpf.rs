//! The highest tier by eBPF: loads, attaches and reads `kernel.bpf.c`.
//!
//! It needs Linux 5.11 or later with CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER, and CAP_BPF and CAP_PERFMON to load.
//! The programs end with this process. Calls that interrupt the program itself on the same CPU are not counted; that takes an
//! interrupt within its 0.1 us.

use std::collections::HashMap;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use reprieve_policy::sample::Deferred;

use super::{MOST_FUNCTIONS, REST, Symbols, most};

/// The compiled programs.
const PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel.bpf.o"));
/// A program at a function that not all kernels have, or not as a function of its own.
const OPTIONAL: [(&str, &str); 2] = [("gp_forced", "force_qs_rnp"), ("queue_hurry", "call_rcu_hurry")];
/// The function whose callers are looked for.
const FREES: &str = "kvfree_call_rcu";
/// Grace periods that the kernel keeps for us.
const GRACES: u64 = 512;
/// Words of one.
const GRACE_WORDS: usize = 4;
/// The most tasks in the way that a sample names.
const MOST_TASKS: usize = 8;
/// Most names that are looked at: several times as many as the map has room for.
const MOST_KEYS: usize = 4096;
/// Length of a task's name, bytes.
const COMM_BYTES: usize = 16;

/// A grace period, by CLOCK_MONOTONIC, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grace {
    /// When RCU set out to begin it.
    pub begin_ns: u64,
    /// When it had begun for those that wait for one.
    pub begun_ns: u64,
    /// When RCU knew that it was over.
    pub end_ns: u64,
    /// How often it was forced.
    pub forced: u64,
}

/// The loaded programs.
pub struct Ebpf {
    // Fields drop in order: the programs are detached before their maps are freed.
    _links: Vec<Link>,
    graces: MapHandle,
    queued: MapHandle,
    in_the_way: MapHandle,
    symbols: Symbols,
    is_force_seen: bool,
    /// What was taken so far.
    graces_taken: u64,
    queued_taken: HashMap<u64, u64>,
    in_the_way_taken: HashMap<[u8; COMM_BYTES], u64>,
    _object: Object,
}

impl Ebpf {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// The reason and the way out, as text.
    pub fn arm(symbols: Symbols) -> Result<Ebpf, String> {
        load(symbols).map_err(|e| {
            format!(
                "no eBPF ({e}): run as root or with CAP_BPF and CAP_PERFMON, on Linux 5.11 or later with \
                 CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER"
            )
        })
    }

    /// Grace periods that ended since the last time. The oldest are missing if there were more than `GRACES`.
    pub fn take_graces(&mut self) -> Vec<Grace> {
        let found = self.graces.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        let (ended, graces) = parse_graces(&found, self.graces_taken);
        self.graces_taken = ended;
        graces
    }

    /// Takes what happened since the last time.
    pub fn take(&mut self, deferred: &mut Deferred, in_the_way: &mut Vec<(String, u64)>) {
        let graces = self.take_graces();
        deferred.grace_periods_ns = graces.iter().map(|grace| grace.end_ns - grace.begin_ns).collect();
        deferred.forced = self.is_force_seen.then(|| graces.iter().map(|grace| grace.forced).sum());
        deferred.queued = most(self.take_queued(), MOST_FUNCTIONS);
        *in_the_way = most(self.take_in_the_way(), MOST_TASKS);
    }

    /// Objects queued since the last time, by function.
    fn take_queued(&mut self) -> Vec<(String, u64)> {
        let mut queued = Vec::new();
        for key in self.queued.keys() {
            let Some(address) = word(&key, 0) else { continue };
            let each = self.queued.lookup_percpu(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
            let sum = each.iter().filter_map(|of_cpu| word(of_cpu, 0)).fold(0, u64::saturating_add);
            let taken = self.queued_taken.insert(address, sum).unwrap_or(0);
            let name = if address == 0 { REST } else { self.symbols.name(address).unwrap_or("unknown") };
            queued.push((name.to_string(), sum.saturating_sub(taken)));
        }
        queued
    }

    /// For how long others waited since the last time, by the names of the tasks that ran meanwhile.
    fn take_in_the_way(&mut self) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut now = HashMap::new();
        // The iteration begins anew if a name makes room for another meanwhile.
        for key in self.in_the_way.keys().take(MOST_KEYS) {
            let Ok(comm) = <[u8; COMM_BYTES]>::try_from(&key[..]) else { continue };
            let found = self.in_the_way.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
            let sum = word(&found, 0).unwrap_or(0);
            // A name that had made room for others, and is back, begins anew.
            let taken = self.in_the_way_taken.get(&comm).copied().filter(|taken| *taken <= sum).unwrap_or(0);
            if now.insert(comm, sum).is_none() {
                names.push((name_of(&comm), sum - taken));
            }
        }
        self.in_the_way_taken = now;
        names
    }
}

fn load(symbols: Symbols) -> Result<Ebpf, Box<dyn std::error::Error>> {
    // The library's messages are also in its errors.
    libbpf_rs::set_print(None);
    let kernel = Btf::from_vmlinux()?;
    let mut open = ObjectBuilder::default().open_memory(PROGRAMS)?;
    let mut is_force_seen = false;
    for mut program in open.progs_mut() {
        let function = OPTIONAL.iter().find(|(name, _)| *name == program.name().to_string_lossy());
        let Some((name, function)) = function else { continue };
        let is_there = kernel.type_by_name::<types::Func<'_>>(function).is_some();
        program.set_autoload(is_there);
        is_force_seen |= is_there && *name == OPTIONAL[0].0;
    }
    set_addresses(&mut open, &symbols)?;
    let object = open.load()?;
    let map = |name: &str| -> Result<MapHandle, Box<dyn std::error::Error>> {
        let map = object.maps().find(|map| map.name().to_string_lossy() == name).ok_or("a map is missing")?;
        Ok(MapHandle::try_from(&map)?)
    };
    let (graces, queued, in_the_way) = (map("graces")?, map("queued")?, map("in_the_way")?);
    // The place of what finds no room.
    let none = vec![0u64.to_ne_bytes().to_vec(); libbpf_rs::num_possible_cpus()?];
    queued.update_percpu(&0u64.to_ne_bytes(), &none, MapFlags::ANY)?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if is_force_seen || name != OPTIONAL[0].0 {
            if !program.autoload() {
                continue;
            }
            links.push(program.attach()?);
        }
    }
    Ok(Ebpf {
        _links: links,
        graces,
        queued,
        in_the_way,
        symbols,
        is_force_seen,
        graces_taken: 0,
        queued_taken: HashMap::new(),
        in_the_way_taken: HashMap::new(),
        _object: object,
    })
}

/// Tells the programs where the function whose callers they look for begins and ends.
fn set_addresses(open: &mut OpenObject, symbols: &Symbols) -> Result<(), Box<dyn std::error::Error>> {
    let addresses = symbols.addresses(FREES).ok_or("this kernel has no kvfree_call_rcu")?;
    let mut constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let constants = constants.as_mut().ok_or("no constants")?;
    let value = [addresses.start, addresses.end].map(u64::to_ne_bytes).concat();
    Ok(constants.set_initial_value(&value)?)
}

/// How many ended so far, and those after the first `taken` that are still there.
fn parse_graces(bytes: &[u8], taken: u64) -> (u64, Vec<Grace>) {
    let Some(ended) = word(bytes, 0) else { return (taken, Vec::new()) };
    let of = |number: u64| {
        // The count comes first, then the open one.
        let at = 1 + GRACE_WORDS + (number % GRACES) as usize * GRACE_WORDS;
        let grace = Grace {
            begin_ns: word(bytes, at)?,
            begun_ns: word(bytes, at + 1)?,
            end_ns: word(bytes, at + 2)?,
            forced: word(bytes, at + 3)?,
        };
        Some(grace).filter(|grace| grace.begin_ns <= grace.end_ns)
    };
    (ended, (taken.max(ended.saturating_sub(GRACES))..ended).filter_map(of).collect())
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(8 * index..8 * index + 8)?.try_into().ok()?))
}

fn name_of(comm: &[u8; COMM_BYTES]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(COMM_BYTES);
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests;
