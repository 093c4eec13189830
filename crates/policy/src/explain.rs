//! What slowed a VM down, judged from inside it: causes, each with its evidence and how sure it is.
//!
//! The rules, in this order; a cause that explains time off takes that time from the rules below it:
//!
//! | cause | rule |
//! |---|---|
//! | [`Cause::Pause`] | all vCPUs were off at once, once or twice, for long |
//! | [`Cause::ClockStep`] | the clock of the day stepped against the monotonic one |
//! | [`Cause::OwnQuota`] | the kernel counted throttling in the process's own cgroup |
//! | [`Cause::Quota`] | a vCPU comes back at multiples of a period ([`crate::fingerprint`]) |
//! | [`Cause::BusyNeighbour`] | one vCPU is off far more than the others, without a period |
//! | [`Cause::Contention`] | vCPUs are off, without a period |
//! | [`Cause::OwnCpu`] | the guest's own tasks kept the beat threads waiting |
//! | [`Cause::OwnMemory`] | the kernel counted stalls for memory (PSI) |
//! | [`Cause::StarvedKthread`] | RCU's kthread waited for a vCPU, and nothing of the host explains it; before an overload of the guest's own only if grace periods are long |
//! | [`Cause::LongReader`] | grace periods are long, and nothing of the host explains it; before an overload of the guest's own only if beats of real-time priority had to wait |
//!
//! Nothing that a rule finds means [`quiet`](Verdict::is_quiet): no damage was seen, which is an answer, too. The thresholds
//! are estimates of our own, fixed before the recorded runs were looked at.

mod evidence;
pub mod log;
mod name;
pub mod outside;
mod recent;

use crate::fingerprint::{self, Off, Quota, Rhythm, Turns};

pub use evidence::{Evidence, Vcpu};
pub use recent::{ENOUGH_NS, Recent, State};

/// A vCPU that a quota keeps off for less than this part of the time is not worth a word, in thousandths.
pub const OFF_PERMILLE: u64 = 20;
/// The same for time off without a period. A busy host takes some per cent for its own threads; alerts that people use begin at
/// 10 % of steal.
const BUSY_PERMILLE: u64 = 100;
/// One vCPU is off far more than the others if the others are off for less than this part of its time, in per cent.
const OTHERS_PERCENT: u64 = 20;
/// A pause stops all vCPUs for at least this long, ns.
const PAUSE_NS: u64 = 200_000_000;
/// A step of the clock, ns: NTP slews below 128 ms, and steps above.
const STEP_NS: u64 = 100_000_000;
/// The guest's own tasks, or memory, hold it up if they do so for this part of the time, in thousandths.
const OWN_PERMILLE: u64 = 50;
/// Tasks wait for a CPU, as PSI counts it, for this part of the time, in thousandths. One task that waits is enough for it, so it
/// is more than [`OWN_PERMILLE`].
const WAITING_PERMILLE: u64 = 300;
/// A grace period above this is long, ns. Undisturbed ones take 10 to 30 ms at 250 Hz.
const LONG_GP_NS: u64 = 100_000_000;
/// Steal confirms time off if it is at least this part of it, in per cent.
const CONFIRMED_PERCENT: u64 = 50;
/// A quota is sure from so many periods on.
const MANY_PERIODS: usize = 20;

/// Something that slows the VM down.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The whole VM stood still: suspended, migrated, or restored from a snapshot.
    Pause {
        /// For how long at most, ns.
        longest_ns: u64,
    },
    /// The clock of the day stepped.
    ClockStep {
        /// By how much, ns.
        by_ns: i64,
    },
    /// The cgroup in which the process runs has a quota, and used it up.
    OwnQuota {
        /// Throttled time, ns.
        throttled_ns: u64,
        /// The quota, if the times off show it.
        quota: Option<Quota>,
    },
    /// The host limits the VM's CPU time.
    Quota {
        /// The quota of the vCPU that is off most. If it stops all vCPUs, that of each.
        quota: Quota,
        /// The vCPUs that have one.
        vcpus: Vec<usize>,
        /// Whether all are off together: one quota for the whole VM.
        is_of_vm: bool,
    },
    /// A busy thread of the host shares the pCPU of a single vCPU.
    BusyNeighbour {
        /// The vCPU.
        vcpu: usize,
        /// Turns with the other thread, if they can be told.
        turns: Option<Turns>,
    },
    /// The host has more vCPUs to run than pCPUs.
    Contention {
        /// Turns with others, of the vCPU that is off most.
        turns: Option<Turns>,
    },
    /// The guest has more to run than vCPUs.
    OwnCpu,
    /// Tasks wait for memory.
    OwnMemory,
    /// RCU's kthread cannot run for other tasks of the guest.
    StarvedKthread,
    /// A task in the kernel does not pass a quiescent state for long.
    LongReader,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Something else could look the same.
    Possible,
    /// One measurement says so.
    Likely,
    /// Two independent measurements say so, or one for many times.
    Sure,
}

/// A cause with what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// How sure it is.
    pub confidence: Confidence,
    /// Time that it took from the vCPU that lost most, or during which some task waited; thousandths of the span. 0 if it took
    /// none.
    pub lost_permille: u64,
}

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Causes; the first one is the answer.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether no damage was seen.
    pub fn is_quiet(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Judges what was seen.
pub fn judge(seen: &Evidence) -> Verdict {
    let mut rest = seen.clone();
    let pause = pause(seen, &mut rest);
    let own_quota = own_quota(&rest);
    // Without real-time priority a throttled process cannot see what else the host does.
    let by_host = if own_quota.is_none() || seen.real_time { host(&rest) } else { None };
    let is_explained = pause.is_some() || by_host.is_some() || own_quota.is_some();
    let own_cpu = own_cpu(seen);
    let grace_periods = grace_periods(seen).filter(|found| !is_explained && found.is_worth(own_cpu.as_ref()));
    let first = grace_periods.as_ref().is_some_and(|found| found.is_first);
    let mut findings: Vec<Finding> = [pause, clock_step(seen), own_quota, by_host, own_cpu, own_memory(seen)]
        .into_iter()
        .flatten()
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.lost_permille));
    if let Some(found) = grace_periods {
        findings.insert(if first { 0 } else { findings.len() }, found.finding);
    }
    Verdict { findings }
}

/// All vCPUs stood still at once. Takes these times off out of `rest`.
fn pause(seen: &Evidence, rest: &mut Evidence) -> Option<Finding> {
    let offs: Vec<&[Off]> = seen.vcpus.iter().map(|vcpu| &vcpu.offs[..]).collect();
    let (first, others) = offs.split_first()?;
    let all = others.iter().fold(first.to_vec(), |all, offs| fingerprint::both_off(&all, offs));
    let long: Vec<Off> = all.into_iter().filter(|off| off.length_ns() >= PAUSE_NS).collect();
    // Many such stops are a quota's with a long period.
    if long.len() > 2 || long.is_empty() && seen.suspended_ns < PAUSE_NS {
        return None;
    }
    for vcpu in &mut rest.vcpus {
        vcpu.offs.retain(|off| long.iter().all(|pause| fingerprint::both_off(&[*off], &[*pause]).is_empty()));
    }
    let longest_ns = long.iter().map(Off::length_ns).max().unwrap_or(0).max(seen.suspended_ns);
    let lost_permille = seen.permille(long.iter().map(Off::length_ns).sum());
    // With one vCPU a busy host could do the same. The kernel counts suspensions itself.
    let confidence = match seen.vcpus.len() {
        _ if seen.suspended_ns >= PAUSE_NS => Confidence::Sure,
        1 => Confidence::Possible,
        _ => Confidence::Likely,
    };
    Some(Finding { cause: Cause::Pause { longest_ns }, confidence, lost_permille })
}

fn clock_step(seen: &Evidence) -> Option<Finding> {
    let by_ns = seen.stepped_ns;
    (by_ns.unsigned_abs() >= STEP_NS).then_some(Finding {
        cause: Cause::ClockStep { by_ns },
        confidence: Confidence::Sure,
        lost_permille: 0,
    })
}

fn own_quota(seen: &Evidence) -> Option<Finding> {
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

/// What the host does to vCPUs.
fn host(seen: &Evidence) -> Option<Finding> {
    let most = seen.most_off()?;
    if seen.permille(most.off_ns()) < OFF_PERMILLE {
        return stolen(seen);
    }
    let lost_permille = seen.permille(most.off_ns());
    let off_ns = seen.vcpus.iter().map(Vcpu::off_ns).fold(0, u64::saturating_add);
    let is_confirmed = seen.steal_ns.is_some_and(|steal_ns| steal_ns >= off_ns / 100 * CONFIRMED_PERCENT);
    let rhythm = fingerprint::rhythm(&most.offs);
    if let Rhythm::Quota(quota) = rhythm {
        let is_limited = |vcpu: &&Vcpu| {
            let is_much = seen.permille(vcpu.off_ns()) >= OFF_PERMILLE;
            is_much && matches!(fingerprint::rhythm(&vcpu.offs), Rhythm::Quota(_))
        };
        let vcpus: Vec<usize> = seen.vcpus.iter().filter(is_limited).map(|vcpu| vcpu.vcpu).collect();
        let is_alike = |vcpu: &Vcpu| fingerprint::in_phase(&vcpu.offs, &most.offs, quota.period_ns);
        let is_of_vm = vcpus.len() > 1 && vcpus.len() == seen.vcpus.len() && seen.vcpus.iter().all(is_alike);
        // A vCPU that idles does not use its quota up meanwhile.
        let on_ns = (quota.on_ns as f64 * (1.0 - most.idle.clamp(0.0, 1.0))).round() as u64;
        let confidence = match quota.is_ambiguous {
            true => Confidence::Possible,
            false if most.offs.len() >= MANY_PERIODS => Confidence::Sure,
            false => Confidence::Likely,
        };
        let cause = Cause::Quota { quota: Quota { on_ns, ..quota }, vcpus, is_of_vm };
        return Some(Finding { cause, confidence, lost_permille });
    }
    if lost_permille < BUSY_PERMILLE {
        return stolen(seen);
    }
    let turns = match rhythm {
        Rhythm::Turns(turns) => Some(turns),
        _ => None,
    };
    let others = seen.vcpus.iter().filter(|vcpu| vcpu.vcpu != most.vcpu).map(Vcpu::off_ns).max();
    let is_alone = others.is_some_and(|others_ns| others_ns < most.off_ns() / 100 * OTHERS_PERCENT);
    let cause = match is_alone {
        true => Cause::BusyNeighbour { vcpu: most.vcpu, turns },
        false => Cause::Contention { turns },
    };
    let confidence = match (is_confirmed, turns) {
        (true, _) => Confidence::Sure,
        (false, Some(_)) => Confidence::Likely,
        (false, None) => Confidence::Possible,
    };
    Some(Finding { cause, confidence, lost_permille })
}

/// Steal without times off: absences between two beats.
fn stolen(seen: &Evidence) -> Option<Finding> {
    let lost_permille = seen.permille(seen.steal_ns?) / seen.vcpus.len().max(1) as u64;
    let (cause, confidence) = (Cause::Contention { turns: None }, Confidence::Likely);
    (lost_permille >= BUSY_PERMILLE).then_some(Finding { cause, confidence, lost_permille })
}

fn own_cpu(seen: &Evidence) -> Option<Finding> {
    let kept_ns = seen.vcpus.iter().map(|vcpu| vcpu.kept_ns).max()?;
    let waited_permille = seen.cpu_wait_ns.map_or(0, |ns| seen.permille(ns));
    let is_waiting = waited_permille >= WAITING_PERMILLE;
    let lost_permille = seen.permille(kept_ns).max(if is_waiting { waited_permille } else { 0 });
    // The kernel counts the throttling of the process's cgroup as waiting, too.
    let is_throttled = seen.throttled_ns.is_some_and(|ns| seen.permille(ns) >= OFF_PERMILLE);
    (lost_permille >= OWN_PERMILLE && !is_throttled).then_some(Finding {
        cause: Cause::OwnCpu,
        confidence: Confidence::Likely,
        lost_permille,
    })
}

fn own_memory(seen: &Evidence) -> Option<Finding> {
    let lost_permille = seen.permille(seen.memory_wait_ns?);
    (lost_permille >= OWN_PERMILLE).then_some(Finding {
        cause: Cause::OwnMemory,
        confidence: Confidence::Sure,
        lost_permille,
    })
}

/// A finding on grace periods.
struct Waits {
    finding: Finding,
    /// Whether it explains why tasks wait, rather than the other way round.
    is_first: bool,
}

impl Waits {
    /// Beside an overload of the guest's own, a kthread that waits is only one task of many that do.
    fn is_worth(&self, own_cpu: Option<&Finding>) -> bool {
        self.is_first || own_cpu.is_none()
    }
}

/// Long grace periods, or a kthread that waits.
fn grace_periods(seen: &Evidence) -> Option<Waits> {
    let median_ns = seen.grace_periods_ns.get(seen.grace_periods_ns.len() / 2).copied();
    let is_long = median_ns.is_some_and(|ns| ns >= LONG_GP_NS);
    let kthread_permille = seen.kthread_wait_ns.map_or(0, |ns| seen.permille(ns));
    if kthread_permille >= OWN_PERMILLE {
        let (cause, confidence) = (Cause::StarvedKthread, Confidence::Likely);
        let finding = Finding { cause, confidence, lost_permille: kthread_permille };
        return Some(Waits { finding, is_first: is_long });
    }
    // Only code that cannot be preempted, or a task of a higher priority, delays beats of real-time priority.
    let kept_ns = seen.vcpus.iter().map(|vcpu| vcpu.kept_ns).max().unwrap_or(0);
    let is_first = seen.real_time && seen.permille(kept_ns) >= OWN_PERMILLE;
    let (cause, confidence) = (Cause::LongReader, Confidence::Possible);
    let finding = Finding { cause, confidence, lost_permille: 0 };
    is_long.then_some(Waits { finding, is_first })
}

#[cfg(test)]
mod tests;
