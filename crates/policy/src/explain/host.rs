//! Causes outside the VM: pauses, quotas, neighbours.
//!
//! Some times off are *shared*: all vCPUs come back from them at the same moment. A quota of the whole VM is so, and a pause. So is a
//! timer that the hypervisor itself serves late for all vCPUs, as QEMU without KVM does; that takes some per cent of the time in a
//! VM that nothing disturbs. Threads that compete for pCPUs let vCPUs come back one by one.

use super::{Cause, Confidence, Evidence, Finding, OFF_PERMILLE, PAUSE_NS, Vcpu};
use crate::fingerprint::{self, Off, Quota, Rhythm};

/// Threads that compete are worth a word if they take at least this part of a vCPU's time, in thousandths. A busy host takes some per cent for its
/// own threads; alerts that people use begin at 10 % of steal.
const BUSY_PERMILLE: u64 = 100;
/// Shared times off count for contention by one part of so many. Fitted: without it, 7 to 12 % of the time of quiet guests without
/// KVM looked like contention.
const SHARED_PART: u64 = 2;
/// One vCPU is off far more than the others if the others are off for less than this part of its time, in per cent. Fitted: beside a
/// pinned neighbour the others had up to 28 % of its time, and all had about the same where threads competed for all pCPUs.
const OTHERS_PERCENT: u64 = 50;
/// Steal confirms time off if it is at least this part of it, in per cent.
const CONFIRMED_PERCENT: u64 = 50;
/// A quota is sure if the vCPU was off at least so many times.
const MANY_PERIODS: usize = 20;

/// All vCPUs stood still at once. Takes these times off out of `rest`.
pub(super) fn pause(seen: &Evidence, rest: &mut Evidence) -> Option<Finding> {
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

/// What else the host does to vCPUs.
pub(super) fn host(seen: &Evidence) -> Option<Finding> {
    let alone = seen.alone();
    let quota = quota(seen, seen, &alone).or_else(|| quota(&alone, seen, &alone));
    quota.or_else(|| neighbours(seen, &alone)).or_else(|| stolen(seen))
}

/// The quota of the vCPU that is off most, by some of the times off.
fn quota(of: &Evidence, seen: &Evidence, alone: &Evidence) -> Option<Finding> {
    let is_much = |vcpu: &Vcpu| of.permille(vcpu.off_ns()) >= OFF_PERMILLE;
    let most = of.most_off().filter(|most| is_much(most))?;
    let Rhythm::Quota(quota) = fingerprint::rhythm(&most.offs) else { return None };
    let is_regular = |offs: &[Off]| matches!(fingerprint::rhythm(offs), Rhythm::Quota(_));
    // A hypervisor can let a vCPU wait for one that a quota stops. Then it is off for far less, and comes back with that one.
    let is_own = |vcpu: &Vcpu| {
        let of_one = alone.vcpus.iter().find(|of_one| of_one.vcpu == vcpu.vcpu);
        vcpu.off_ns() >= most.off_ns() / 100 * OTHERS_PERCENT
            || of_one.is_some_and(|of_one| is_regular(&of_one.offs))
    };
    let is_limited = |vcpu: &&Vcpu| is_much(vcpu) && is_regular(&vcpu.offs) && is_own(vcpu);
    let vcpus: Vec<usize> = of.vcpus.iter().filter(is_limited).map(|vcpu| vcpu.vcpu).collect();
    let is_alike = |vcpu: &Vcpu| fingerprint::in_phase(&vcpu.offs, &most.offs, quota.period_ns);
    let is_of_vm = vcpus.len() > 1 && vcpus.len() == of.vcpus.len() && of.vcpus.iter().all(is_alike);
    // Neither a vCPU that idles nor one that is off for another reason uses its quota up meanwhile.
    let others_ns = interrupted_ns(most, seen, alone).saturating_mul(quota.period_ns) / seen.span_ns.max(1);
    let on_ns = quota.on_ns.saturating_sub(others_ns);
    let on_ns = (on_ns as f64 * (1.0 - most.idle.clamp(0.0, 1.0))).round() as u64;
    let confidence = match quota.is_ambiguous {
        true => Confidence::Possible,
        false if most.offs.len() >= MANY_PERIODS => Confidence::Sure,
        false => Confidence::Likely,
    };
    let cause = Cause::Quota { quota: Quota { on_ns, ..quota }, vcpus, is_of_vm };
    Some(Finding { cause, confidence, lost_permille: of.permille(most.off_ns()) })
}

/// For how long a vCPU was off for other reasons than its quota, ns: in times off that are too short for it. Those that are shared count
/// for contention only by a part.
fn interrupted_ns(most: &Vcpu, seen: &Evidence, alone: &Evidence) -> u64 {
    let least_ns = fingerprint::shortest_of_rhythm_ns(&most.offs);
    let short_ns = |of: &Evidence| {
        let offs = of.vcpus.iter().find(|vcpu| vcpu.vcpu == most.vcpu).map_or(&[][..], |vcpu| &vcpu.offs);
        let short = offs.iter().map(Off::length_ns).filter(|ns| *ns < least_ns);
        short.fold(0, u64::saturating_add)
    };
    let (all_ns, alone_ns) = (short_ns(seen), short_ns(alone));
    alone_ns.saturating_add(all_ns.saturating_sub(alone_ns) / SHARED_PART)
}

/// Threads that compete for pCPUs, from times off that are not shared.
fn neighbours(seen: &Evidence, alone: &Evidence) -> Option<Finding> {
    let most = alone.most_off()?;
    let all = seen.vcpus.iter().find(|vcpu| vcpu.vcpu == most.vcpu)?;
    let all_ns = all.off_ns();
    let shared_ns = all_ns.saturating_sub(most.off_ns());
    if seen.permille(most.off_ns().saturating_add(shared_ns / SHARED_PART)) < BUSY_PERMILLE {
        return None;
    }
    // Of all times off: a time on must not go on through a shared one.
    let turns = fingerprint::turns(&most.offs).and_then(|_| fingerprint::turns(&all.offs));
    let others = alone.vcpus.iter().filter(|vcpu| vcpu.vcpu != most.vcpu).map(Vcpu::off_ns).max();
    let is_single = others.is_some_and(|others_ns| others_ns < most.off_ns() / 100 * OTHERS_PERCENT);
    let cause = match is_single {
        true => Cause::BusyNeighbour { vcpu: most.vcpu, turns },
        false => Cause::Contention { turns },
    };
    let off_ns = seen.vcpus.iter().map(Vcpu::off_ns).fold(0, u64::saturating_add);
    let is_confirmed = seen.steal_ns.is_some_and(|steal_ns| steal_ns >= off_ns / 100 * CONFIRMED_PERCENT);
    let confidence = match (is_confirmed, turns) {
        (true, _) => Confidence::Sure,
        (false, Some(_)) => Confidence::Likely,
        (false, None) => Confidence::Possible,
    };
    Some(Finding { cause, confidence, lost_permille: seen.permille(all_ns) })
}

/// Steal with too few times off for the other rules: absences between two beats.
fn stolen(seen: &Evidence) -> Option<Finding> {
    let lost_permille = seen.permille(seen.steal_ns?) / seen.vcpus.len().max(1) as u64;
    let (cause, confidence) = (Cause::Contention { turns: None }, Confidence::Likely);
    (lost_permille >= BUSY_PERMILLE).then_some(Finding { cause, confidence, lost_permille })
}
