//! The open grace period: how old it is, and for whom it waits.

use super::memory::Memory;
use super::places::Places;
use crate::introspect::Reader;

/// A task that was preempted, or sleeps, within a read-side critical section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its PID in the guest.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// A grace period that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// How old it is, to a tick, ns; `None` if the length of a tick is not known.
    pub age_ns: Option<u64>,
    /// vCPUs whose quiescent state it still waits for.
    pub vcpus: Vec<usize>,
    /// Tasks that it waits for, at most [`TASKS`].
    pub tasks: Vec<Task>,
}

/// Most tasks that are named.
pub const TASKS: usize = 16;
/// Ticks that kernels have, ns: 100 to 1000 a second.
const TICK_NS: std::ops::RangeInclusive<u64> = 900_000..=11_000_000;
/// Longest name of a task, bytes.
const NAME_BYTES: u64 = 16;

/// The grace period that is open now, if one is.
pub fn open(reader: &Reader, memory: &Memory, places: &Places) -> Option<Open> {
    let state = reader.gp();
    let vcpus = (0..64).filter(|vcpu| state.holdouts >> vcpu & 1 == 1).collect();
    state.open.then(|| Open {
        age_ns: age_ns(reader, memory, places),
        vcpus,
        tasks: tasks(reader, memory, places).unwrap_or_default(),
    })
}

fn age_ns(reader: &Reader, memory: &Memory, places: &Places) -> Option<u64> {
    let offset = places.offset("rcu_state", "gp_start").ok()?;
    let since = memory.word(places.symbol("rcu_state").ok()?.checked_add(offset)?)?;
    reader.jiffies().checked_sub(since)?.checked_mul(tick_ns(memory, places)?)
}

/// The length of a tick, as the clock of ticks has it.
fn tick_ns(memory: &Memory, places: &Places) -> Option<u64> {
    let clock = places.symbol("clocksource_jiffies").ok()?;
    let number = |path| memory.half(clock.checked_add(places.offset("clocksource", path).ok()?)?);
    let (mult, shift) = (number("mult")?, number("shift")?);
    mult.checked_shr(shift).map(u64::from).filter(|ns| TICK_NS.contains(ns))
}

/// From `gp_tasks` on, the blocked tasks of a leaf hold up the open grace period.
fn tasks(reader: &Reader, memory: &Memory, places: &Places) -> Option<Vec<Task>> {
    let at = |structure, path| places.offset(structure, path).ok();
    let (first, all) = (at("rcu_node", "gp_tasks")?, at("rcu_node", "blkd_tasks")?);
    let (entry, pid, name) =
        (at("task_struct", "rcu_node_entry")?, at("task_struct", "pid")?, at("task_struct", "comm")?);
    let mut tasks = Vec::new();
    for leaf in &reader.layout.leaves {
        let end = leaf.address.checked_add(all)?;
        let mut link = memory.word(leaf.address.checked_add(first)?)?;
        while link != 0 && link != end && tasks.len() < TASKS {
            let task = link.wrapping_sub(entry);
            let Some(pid) = memory.half(task.wrapping_add(pid)) else { break };
            let Some(name) = memory.text(task.wrapping_add(name), NAME_BYTES) else { break };
            let Some(next) = memory.word(link) else { break };
            tasks.push(Task { pid, name });
            link = next;
        }
    }
    Some(tasks)
}
