//! Causes inside the VM: its clock, the quota of the process's own cgroup, its tasks, its memory, and RCU.

use super::{Cause, Confidence, Evidence, Finding, OFF_PERMILLE, Vcpu};
use crate::fingerprint::{self, Off, Rhythm};

/// The smallest step of the clock that counts, ns. ntpd steps it by 128 ms or more, and slews it for less; this leaves a margin.
const STEP_NS: u64 = 100_000_000;
/// The guest's own tasks, memory, or grace periods hold it up if they do so for this part of the time, in thousandths.
const OWN_PERMILLE: u64 = 50;
/// Tasks wait for a CPU, as PSI counts it, for this part of the time, in thousandths. One task that waits is enough for it, so it
/// is more than [`OWN_PERMILLE`].
pub(crate) const OVERLOAD_PERMILLE: u64 = 300;
/// A call of `membarrier`, which waits for one or two grace periods, is long above this, ns. Undisturbed ones take 5 to 30 ms at 250 Hz.
const LONG_GP_NS: u64 = 100_000_000;
/// Long grace periods are the starved kthread's if it waited for this part of their time, in per cent, and a reader's if not. Fitted:
/// in recorded guests it waited for 70 to 220 % of it when it was starved, and for 2 to 22 % beside long readers.
const KTHREAD_PERCENT: u64 = 50;
/// The kthread is the one that waits, rather than one of many, if it waited for this part of the time that some task did, in per cent.
/// Fitted: in tuning runs it was 80 to 130 % when it was starved, and 0 % when the guest had too many tasks.
const KTHREAD_OF_WAITS_PERCENT: u64 = 50;
/// Times off explain a grace period of up to so many times the longest of them. Fitted: in contention it was up to 3 times as long.
const EXPLAINED_TIMES: u64 = 5;
/// Times off explain waits of the kthread for up to so many times as long as the vCPU that is off most.
const KTHREAD_TIMES: u64 = 2;

pub(super) fn clock_step(seen: &Evidence) -> Option<Finding> {
    let by_ns = seen.stepped_ns;
    (by_ns.unsigned_abs() >= STEP_NS).then_some(Finding {
        cause: Cause::ClockStep { by_ns },
        confidence: Confidence::Sure,
        lost_permille: 0,
    })
}

pub(super) fn quota(seen: &Evidence) -> Option<Finding> {
    let throttled_ns = seen.throttled_ns.filter(|ns| seen.permille(*ns) >= OFF_PERMILLE)?;
    let quota = match fingerprint::rhythm(&seen.most_off()?.offs) {
        Rhythm::Quota(quota) => Some(quota),
        _ => None,
    };
    // Time off is of one vCPU; the kernel counts throttling on all CPUs.
    let lost_ns = if seen.real_time { throttled_ns.min(seen.span_ns) } else { seen.most_off()?.off_ns() };
    let lost_permille = seen.permille(lost_ns);
    let cause = Cause::OwnQuota { throttled_ns, quota };
    Some(Finding { cause, confidence: Confidence::Sure, lost_permille })
}

pub(super) fn cpu(seen: &Evidence) -> Option<Finding> {
    let waited_permille = seen.waits_of_tasks_ns().map_or(0, |ns| seen.permille(ns));
    let is_waiting = waited_permille >= OVERLOAD_PERMILLE;
    let kept_ns = seen.vcpus.iter().map(|vcpu| vcpu.kept_ns).max()?;
    let lost_permille = seen.permille(kept_ns).max(if is_waiting { waited_permille } else { 0 });
    // The kernel counts the throttling of the process's cgroup as waiting, too.
    let is_throttled = seen.throttled_ns.is_some_and(|ns| seen.permille(ns) >= OFF_PERMILLE);
    (lost_permille >= OWN_PERMILLE && !is_throttled).then_some(Finding {
        cause: Cause::OwnCpu,
        confidence: Confidence::Likely,
        lost_permille,
    })
}

pub(super) fn memory(seen: &Evidence) -> Option<Finding> {
    let lost_permille = seen.permille(seen.memory_wait_ns?);
    (lost_permille >= OWN_PERMILLE).then_some(Finding {
        cause: Cause::OwnMemory,
        confidence: Confidence::Sure,
        lost_permille,
    })
}

/// A finding on grace periods.
pub(super) struct Waits {
    /// The finding.
    pub finding: Finding,
    /// True if it explains why tasks wait, rather than the other way round.
    pub is_first: bool,
    /// True if RCU's kthread itself did at least half of the waiting for CPUs that PSI counts.
    pub is_most: bool,
}

/// Long grace periods, or a kthread that waits, as far as the host does not explain them. Beside an overload of the guest's own, a
/// kthread that waits is only one task of many that do.
pub(super) fn grace_periods(seen: &Evidence, is_host: bool, is_overloaded: bool) -> Option<Waits> {
    let waits = starved_kthread(seen, is_host).or_else(|| long_reader(seen, is_host));
    waits.filter(|waits| waits.is_first || waits.is_most || !is_overloaded)
}

fn starved_kthread(seen: &Evidence, is_host: bool) -> Option<Waits> {
    let waited_ns = seen.kthread_wait_ns?;
    let lost_permille = seen.permille(waited_ns);
    let off_permille = seen.most_off().map_or(0, |most| seen.permille(most.off_ns()));
    let is_explained = is_host && lost_permille <= off_permille.saturating_mul(KTHREAD_TIMES);
    let long_ns = long_graces_ns(seen, LONG_GP_NS);
    let is_long = seen.permille(long_ns) >= OWN_PERMILLE;
    let is_reader = is_long && waited_ns < long_ns / 100 * KTHREAD_PERCENT;
    if lost_permille < OWN_PERMILLE || is_explained || is_reader {
        return None;
    }
    let finding = Finding { cause: Cause::StarvedKthread, confidence: Confidence::Likely, lost_permille };
    let is_most = seen.cpu_wait_ns.is_some_and(|ns| waited_ns >= ns / 100 * KTHREAD_OF_WAITS_PERCENT);
    Some(Waits { finding, is_first: is_long, is_most })
}

fn long_reader(seen: &Evidence, is_host: bool) -> Option<Waits> {
    let offs = seen.vcpus.iter().flat_map(|vcpu| &vcpu.offs);
    let explained_ns = match is_host {
        true => offs.map(Off::length_ns).max().unwrap_or(0).saturating_mul(EXPLAINED_TIMES),
        false => 0,
    };
    if seen.permille(long_graces_ns(seen, LONG_GP_NS.max(explained_ns))) < OWN_PERMILLE {
        return None;
    }
    // Only code that cannot be preempted, or a task of a higher priority, delays beats of real-time priority.
    let kept_ns = seen.vcpus.iter().map(|vcpu: &Vcpu| vcpu.kept_ns).max().unwrap_or(0);
    let is_first = seen.real_time && seen.permille(kept_ns) >= OWN_PERMILLE;
    let (cause, confidence) = (Cause::LongReader, Confidence::Possible);
    Some(Waits { finding: Finding { cause, confidence, lost_permille: 0 }, is_first, is_most: false })
}

/// The sum of the grace periods that took at least so long, ns.
fn long_graces_ns(seen: &Evidence, least_ns: u64) -> u64 {
    seen.grace_periods_ns.iter().filter(|ns| **ns >= least_ns).fold(0, |sum, ns| sum.saturating_add(*ns))
}
