//! Watches a guest's vCPU threads on its host: how long each waited for a pCPU, which tasks ran there meanwhile, which quotas
//! throttled it; and, where its memory can be read, how long its grace periods took.
//!
//! Waits are known from the threads' run delay, which needs no privileges; the tasks that were in the way from perf's switch
//! records of all CPUs, which need root. What is not permitted is left out and said. The judgement is
//! [`reprieve_policy::explain::outside`]'s.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use reprieve_linux::boost::GuestRcu;
use reprieve_linux::cgroup::{Limit, limits_of};
use reprieve_linux::clock::{now_ns, sleep_until};
use reprieve_linux::occupants::{Occupants, Recorded, Stretch};
use reprieve_linux::proc::{ProcRoot, SchedStatReader, SysCpus};
use reprieve_policy::explain::outside::{
    Outside, Ran, Start, Taker, Throttle, Wait, Whose, in_the_way, waits,
};
use reprieve_policy::fingerprint::Off;

use crate::Result;
use crate::attach::{self, Given, Qemu, Seen, Watched};

/// Time between two looks at the run delays, ns.
const LOOK_NS: u64 = 1_000_000;
/// Switch records are collected at every so many looks.
const COLLECT_EVERY: u64 = 100;
/// The most growths of the run delay that are kept of one vCPU: a minute of one at each look.
const MOST_GROWTHS: usize = 60_000;

/// What was seen.
#[derive(Debug)]
pub struct Watch {
    /// Waits, and who was in the way.
    pub outside: Outside,
    /// Grace periods, if the guest's memory could be read.
    pub grace_periods: Option<Seen>,
    /// What could not be seen, and why.
    pub notes: Vec<String>,
}

/// The run delay of a vCPU's thread.
struct Delay {
    reader: SchedStatReader,
    last_ns: u64,
    /// By when it had grown, and by how much.
    growths: Vec<(u64, u64)>,
}

/// Watches until `is_over` says so, which is asked at each look with the time since the beginning, ns.
///
/// # Errors
/// A thread of the guest cannot be read.
pub fn watch(
    root: &ProcRoot,
    qemu: &Qemu,
    given: &Given,
    is_over: &mut dyn FnMut(u64) -> bool,
) -> Result<Watch> {
    let mut notes = Vec::new();
    let is_over = RefCell::new(is_over);
    let mut guest = guest(root, qemu, given, &mut notes, &|| (is_over.borrow_mut())(0));
    let mut occupants = Occupants::open(root, &SysCpus::default().online())
        .map_err(|error| notes.push(format!("which tasks were in the way was not seen: {error}")))
        .ok();
    let mut delays: Vec<Delay> =
        qemu.vcpus.iter().map(|tid| delay(root, qemu, *tid)).collect::<Result<_>>()?;
    let before: Vec<Vec<Limit>> = qemu.vcpus.iter().map(|tid| limits_of(root, qemu.pid, *tid)).collect();
    let stolen_before_ns = stolen_ns(root);
    let began_ns = now_ns();
    for look in 1.. {
        sleep_until(began_ns + look * LOOK_NS);
        delays.iter_mut().for_each(Delay::look);
        if guest.as_mut().is_some_and(|(watched, _)| watched.look().is_err()) {
            notes.push("the guest's memory could not be read to the end".into());
            guest = None;
        }
        if let Some(occupants) = occupants.as_mut().filter(|_| look.is_multiple_of(COLLECT_EVERY)) {
            occupants.look();
        }
        if (is_over.borrow_mut())(now_ns() - began_ns) {
            break;
        }
    }
    let end_ns = now_ns();
    let after: Vec<Vec<Limit>> = qemu.vcpus.iter().map(|tid| limits_of(root, qemu.pid, *tid)).collect();
    let mut outside = Outside {
        span_ns: end_ns - began_ns,
        waited_ns: delays.iter().map(Delay::sum_ns).collect(),
        throttles: throttles(&before, &after),
        host_stolen_ns: (
            stolen_ns(root).saturating_sub(stolen_before_ns),
            SysCpus::default().online().iter().count(),
        ),
        ..Outside::default()
    };
    if let Some(occupants) = occupants {
        let recorded = occupants.finish(end_ns);
        let stretches = &recorded.stretches;
        if recorded.missed {
            notes.push("some switches were not recorded: tasks may be missing".into());
        }
        let waits = all_waits(qemu, &delays, stretches, began_ns);
        let mut ns_of = in_the_way(&waits, &stretches.iter().map(ran).collect::<Vec<_>>());
        outside.nobody_ns = ns_of.remove(&0).unwrap_or(0);
        outside.takers = Some(takers(root, qemu, &ns_of, &recorded));
    }
    let grace_periods = guest.map(|(_, seen)| seen.lock().unwrap_or_else(PoisonError::into_inner).clone());
    Ok(Watch { outside, grace_periods, notes })
}

fn guest(
    root: &ProcRoot,
    qemu: &Qemu,
    given: &Given,
    notes: &mut Vec<String>,
    is_interrupted: &dyn Fn() -> bool,
) -> Option<(Watched, Arc<Mutex<Seen>>)> {
    let seen = Arc::new(Mutex::new(Seen::new(qemu.vcpus.len())));
    let attached = attach::attach(root, qemu.clone(), given, is_interrupted);
    match attached.and_then(|attached| Watched::new(root, attached, seen.clone())) {
        Ok(watched) => Some((watched, seen)),
        Err(error) => {
            notes.push(format!("grace periods were not seen: {error}"));
            None
        }
    }
}

fn delay(root: &ProcRoot, qemu: &Qemu, tid: i32) -> Result<Delay> {
    let reader = SchedStatReader::open(root, qemu.pid, tid)?;
    let last_ns = reader.read()?.delay_ns;
    Ok(Delay { reader, last_ns, growths: Vec::new() })
}

impl Delay {
    fn look(&mut self) {
        // A thread that has ended waits no more.
        let Ok(now) = self.reader.read() else { return };
        let grown_ns = now.delay_ns.saturating_sub(self.last_ns);
        self.last_ns = now.delay_ns;
        if grown_ns > 0 && self.growths.len() < MOST_GROWTHS {
            self.growths.push((now_ns(), grown_ns));
        }
    }

    fn sum_ns(&self) -> u64 {
        self.growths.iter().map(|(_, ns)| ns).sum()
    }
}

/// The waits of all vCPUs: each growth of a run delay lies before the starts since the growth before.
fn all_waits(qemu: &Qemu, delays: &[Delay], stretches: &[Stretch], began_ns: u64) -> Vec<Wait> {
    let mut all = Vec::new();
    for (tid, delay) in qemu.vcpus.iter().zip(delays) {
        let mut own: Vec<&Stretch> = stretches.iter().filter(|stretch| stretch.tid == *tid).collect();
        own.sort_by_key(|stretch| stretch.since_ns);
        let mut off_since_ns = began_ns;
        let starts: Vec<Start> = own
            .into_iter()
            .map(|stretch| {
                let off_since_ns = std::mem::replace(&mut off_since_ns, stretch.until_ns);
                Start { at_ns: stretch.since_ns, off_since_ns, cpu: stretch.cpu }
            })
            .collect();
        let mut left = &starts[..];
        for (by_ns, grown_ns) in &delay.growths {
            let (these, later) = left.split_at(left.partition_point(|start| start.at_ns <= *by_ns));
            waits(these, *grown_ns, &mut all);
            left = later;
        }
    }
    all
}

fn ran(stretch: &Stretch) -> Ran {
    let time = Off { since_ns: stretch.since_ns, back_ns: stretch.until_ns };
    Ran { cpu: stretch.cpu, tid: stretch.tid, time }
}

/// Whose these tasks are, added up by their names.
fn takers(root: &ProcRoot, qemu: &Qemu, ns_of: &BTreeMap<i32, u64>, recorded: &Recorded) -> Vec<Taker> {
    let pids: BTreeMap<i32, i32> =
        recorded.stretches.iter().map(|stretch| (stretch.tid, stretch.pid)).collect();
    let others: BTreeMap<i32, String> =
        attach::all(root).unwrap_or_default().into_iter().map(|other| (other.pid, other.name)).collect();
    let mut sums: BTreeMap<(Whose, String), u64> = BTreeMap::new();
    for (tid, ns) in ns_of {
        let pid = pids.get(tid).copied().unwrap_or(*tid);
        let whose = match others.get(&pid) {
            _ if pid == qemu.pid => Whose::Own,
            Some(name) => Whose::Vm(name.clone()),
            None => Whose::Other,
        };
        let name = recorded.names.get(tid).cloned().unwrap_or_else(|| "short-lived processes".into());
        *sums.entry((whose, name)).or_insert(0) += ns;
    }
    sums.into_iter().map(|((whose, name), ns)| Taker { whose, name, ns }).collect()
}

/// For each vCPU the quota that throttled it most; a quota of several vCPUs once.
fn throttles(before: &[Vec<Limit>], after: &[Vec<Limit>]) -> Vec<Throttle> {
    let mut found: BTreeMap<String, Throttle> = BTreeMap::new();
    for (before, after) in before.iter().zip(after) {
        let grown = |limit: &Limit| {
            let same = before.iter().find(|before| before.directory == limit.directory);
            let throttled_ns = limit.throttled_ns.saturating_sub(same?.throttled_ns);
            let cgroup = limit.directory.display().to_string();
            Some(Throttle { cgroup, quota_ns: limit.quota_ns, period_ns: limit.period_ns, throttled_ns })
        };
        let most = after.iter().filter_map(grown).max_by_key(|throttle| throttle.throttled_ns);
        if let Some(throttle) = most.filter(|throttle| throttle.throttled_ns > 0) {
            found.insert(throttle.cgroup.clone(), throttle);
        }
    }
    found.into_values().collect()
}

/// Steal of this host, ns: it may be a VM itself.
fn stolen_ns(root: &ProcRoot) -> u64 {
    const STEAL: usize = 7;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    root.cpu_ticks().map_or(0, |ticks| ticks[STEAL].saturating_mul(tick_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_of_several_vcpus_counts_once() {
        let limit = |directory: &str, throttled_ns| Limit {
            directory: directory.into(),
            quota_ns: 20,
            period_ns: 100,
            throttled_ns,
        };
        let before = [vec![limit("/vm/0", 5), limit("/vm", 10)], vec![limit("/vm/1", 5), limit("/vm", 10)]];
        let after = [vec![limit("/vm/0", 5), limit("/vm", 40)], vec![limit("/vm/1", 5), limit("/vm", 40)]];
        let found: Vec<_> =
            throttles(&before, &after).into_iter().map(|one| (one.cgroup, one.throttled_ns)).collect();
        assert_eq!(found, [("/vm".to_string(), 30)]);
        assert!(throttles(&before, &before).is_empty());
    }
}
