//! Who keeps a VM's vCPUs off, judged on its host: by what the kernel counted and which tasks ran meanwhile.
//!
//! The host knows what a guest can only infer: how long each vCPU could run and did not (run delay), for how long a quota
//! throttled it, and which tasks had its pCPU. A wait is the time before a vCPU starts to run, as long as its run delay grew;
//! the tasks that ran on that pCPU meanwhile are *in the way*.
//!
//! While a quota throttles a vCPU, other tasks run on its pCPU without being in its way. The kernel counts throttling without
//! saying when it was, so if a quota explains half of the waits or more, no task is blamed.

use std::collections::BTreeMap;

use super::Confidence;
use crate::fingerprint::Off;

/// A vCPU that waits for less than this part of the time is not worth a word, in thousandths.
const WAIT_PERMILLE: u64 = 20;
/// Steal of the host itself below this part of its time is not worth a word, in thousandths: half of where alerts that people use begin.
const STOLEN_PERMILLE: u64 = 50;
/// Tasks that are named.
const NAMED: usize = 5;

/// A vCPU's thread that starts to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When, ns.
    pub at_ns: u64,
    /// Since when it was not running, ns.
    pub off_since_ns: u64,
    /// On which pCPU.
    pub cpu: u32,
}

/// A time that a vCPU waited, and the pCPU on which it ran next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The time.
    pub off: Off,
    /// The pCPU.
    pub cpu: u32,
}

/// The waits before these starts. Between two looks at the run delay it grew by `delay_ns`, and the thread started so often.
/// Each wait is at most as long as the thread was not running.
pub fn waits(starts: &[Start], mut delay_ns: u64, into: &mut Vec<Wait>) {
    for start in starts {
        let length_ns = delay_ns.min(start.at_ns.saturating_sub(start.off_since_ns));
        delay_ns -= length_ns;
        if length_ns > 0 {
            let off = Off { since_ns: start.at_ns - length_ns, back_ns: start.at_ns };
            into.push(Wait { off, cpu: start.cpu });
        }
    }
}

/// A task that had a pCPU. Task 0 is nobody: the pCPU idled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The pCPU.
    pub cpu: u32,
    /// The task.
    pub tid: i32,
    /// When.
    pub time: Off,
}

/// For how long each task had the pCPU of one of these waits meanwhile, ns.
pub fn in_the_way(waits: &[Wait], ran: &[Ran]) -> BTreeMap<i32, u64> {
    let mut by_cpu: BTreeMap<u32, Vec<&Ran>> = BTreeMap::new();
    ran.iter().for_each(|one| by_cpu.entry(one.cpu).or_default().push(one));
    by_cpu.values_mut().for_each(|all| all.sort_by_key(|one| one.time.since_ns));
    let mut ns_of = BTreeMap::new();
    for Wait { off, cpu } in waits {
        let there = by_cpu.get(cpu).map_or(&[][..], |all| &all[..]);
        // What one pCPU ran does not overlap, so the ends are sorted, too.
        let first = there.partition_point(|one| one.time.back_ns <= off.since_ns);
        for one in there[first..].iter().take_while(|one| one.time.since_ns < off.back_ns) {
            let ns = one.time.back_ns.min(off.back_ns) - one.time.since_ns.max(off.since_ns);
            *ns_of.entry(one.tid).or_insert(0) += ns;
        }
    }
    ns_of
}

/// Whose task is in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The VM's own process: its I/O and emulation threads, or another vCPU.
    Own,
    /// Another VM, with its name.
    Vm(String),
    /// Anybody else.
    Other,
}

/// A task that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// Whose it is.
    pub whose: Whose,
    /// Its name.
    pub name: String,
    /// For how long it had the pCPU of a vCPU that waited, ns.
    pub ns: u64,
}

/// A quota that throttled vCPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The cgroup.
    pub cgroup: String,
    /// CPU time in each period, ns.
    pub quota_ns: u64,
    /// The period, ns.
    pub period_ns: u64,
    /// Throttling, ns.
    pub throttled_ns: u64,
}

/// What was seen of a VM on its host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outside {
    /// For how long, ns.
    pub span_ns: u64,
    /// How long each vCPU could run and did not, ns.
    pub waited_ns: Vec<u64>,
    /// The quotas that throttled them.
    pub throttles: Vec<Throttle>,
    /// The tasks in the way; `None` if that may not be seen.
    pub takers: Option<Vec<Taker>>,
    /// For how long nobody had the pCPU of a vCPU that waited, ns.
    pub nobody_ns: u64,
    /// Steal of the host itself, ns, over its CPUs, and their number: it is a VM, too, if there is any.
    pub host_stolen_ns: (u64, usize),
}

/// Who keeps vCPUs off.
#[derive(Clone, Debug, PartialEq)]
pub enum Culprit {
    /// A quota: the one that throttled most.
    Quota(Throttle),
    /// Threads of the VM's own process.
    Own(Vec<Taker>),
    /// Other VMs and tasks.
    Others(Vec<Taker>),
    /// A host below this host.
    HostBelow,
    /// It may not be seen.
    Unseen,
    /// Nobody had the pCPU: a change of pCPU, or a limit that no cgroup shows.
    Nobody,
}

/// A culprit and how sure it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Blame {
    /// The culprit.
    pub culprit: Culprit,
    /// How sure.
    pub confidence: Confidence,
    /// Its part in the waits, in thousandths; of the host below: steal as a part of the time.
    pub share_permille: u64,
}

/// The verdict of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutsideVerdict {
    /// The part of the time that the vCPU that waited most did, in thousandths.
    pub waited_permille: u64,
    /// The culprits, the largest part first; empty if no vCPU waited.
    pub blames: Vec<Blame>,
}

/// Judges what was seen on the host.
pub fn judge(seen: &Outside) -> OutsideVerdict {
    let span_ns = seen.span_ns.max(1);
    let most_ns = seen.waited_ns.iter().copied().max().unwrap_or(0);
    let waited_permille = most_ns.saturating_mul(1000) / span_ns;
    let mut blames = Vec::new();
    let (stolen_ns, cpus) = seen.host_stolen_ns;
    let stolen_permille = stolen_ns.saturating_mul(1000) / span_ns / cpus.max(1) as u64;
    if waited_permille >= WAIT_PERMILLE {
        blames = of_waits(seen);
    }
    if stolen_permille >= STOLEN_PERMILLE {
        let share_permille = stolen_permille;
        blames.push(Blame { culprit: Culprit::HostBelow, confidence: Confidence::Sure, share_permille });
    }
    blames.sort_by_key(|blame| std::cmp::Reverse(blame.share_permille));
    OutsideVerdict { waited_permille, blames }
}

fn of_waits(seen: &Outside) -> Vec<Blame> {
    let all_ns = seen.waited_ns.iter().sum::<u64>().max(1);
    let permille = |ns: u64| ns.saturating_mul(1000).checked_div(all_ns).unwrap_or(0).min(1000);
    let blame = |culprit, confidence, ns| Blame { culprit, confidence, share_permille: permille(ns) };
    let throttled_ns: u64 = seen.throttles.iter().map(|throttle| throttle.throttled_ns).sum();
    let worst = seen.throttles.iter().max_by_key(|throttle| throttle.throttled_ns);
    if let Some(worst) = worst.filter(|_| permille(throttled_ns) >= 500) {
        return vec![blame(Culprit::Quota(worst.clone()), Confidence::Sure, throttled_ns)];
    }
    let Some(takers) = &seen.takers else {
        return vec![blame(Culprit::Unseen, Confidence::Possible, all_ns)];
    };
    let (own, others): (Vec<&Taker>, Vec<&Taker>) =
        takers.iter().partition(|taker| taker.whose == Whose::Own);
    let sum = |takers: &[&Taker]| takers.iter().map(|taker| taker.ns).sum::<u64>();
    // A part of the waits that is not worth a word on its own is not blamed either.
    let worth = |ns: u64| permille(ns) >= 100;
    let confidence = if permille(throttled_ns) < 100 { Confidence::Sure } else { Confidence::Likely };
    let mut blames = Vec::new();
    if worth(sum(&own)) {
        blames.push(blame(Culprit::Own(largest(&own)), confidence, sum(&own)));
    }
    if worth(sum(&others)) {
        blames.push(blame(Culprit::Others(largest(&others)), confidence, sum(&others)));
    }
    if let Some(worst) = worst.filter(|_| worth(throttled_ns)) {
        blames.push(blame(Culprit::Quota(worst.clone()), Confidence::Sure, throttled_ns));
    }
    if worth(seen.nobody_ns.saturating_sub(throttled_ns)) {
        blames.push(blame(
            Culprit::Nobody,
            Confidence::Possible,
            seen.nobody_ns.saturating_sub(throttled_ns),
        ));
    }
    blames
}

fn largest(takers: &[&Taker]) -> Vec<Taker> {
    let mut sorted: Vec<Taker> = takers.iter().map(|taker| (*taker).clone()).collect();
    sorted.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
    sorted.truncate(NAMED);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn off(since_ns: u64, back_ns: u64) -> Off {
        Off { since_ns, back_ns }
    }

    #[test]
    fn a_delay_lies_before_the_starts_that_ended_it() {
        let start = |at_ns, off_since_ns| Start { at_ns, off_since_ns, cpu: 1 };
        let mut found = Vec::new();
        waits(&[start(100, 60), start(200, 150), start(300, 290)], 70, &mut found);
        let expected = [off(60, 100), off(170, 200)].map(|off| Wait { off, cpu: 1 });
        assert_eq!(found, expected);
    }

    #[test]
    fn tasks_are_in_the_way_on_the_same_cpu_at_the_same_time() {
        let ran = |cpu, tid, since_ns, back_ns| Ran { cpu, tid, time: off(since_ns, back_ns) };
        let all =
            [ran(1, 5, 0, 70), ran(1, 6, 70, 90), ran(1, 5, 90, 130), ran(2, 7, 0, 500), ran(1, 0, 130, 200)];
        let waits = [Wait { off: off(60, 100), cpu: 1 }, Wait { off: off(150, 160), cpu: 1 }];
        assert_eq!(in_the_way(&waits, &all), BTreeMap::from([(0, 10), (5, 20), (6, 20)]));
        assert!(in_the_way(&[Wait { off: off(0, 9), cpu: 3 }], &all).is_empty());
    }

    fn seen(waited_s: &[u64]) -> Outside {
        Outside {
            span_ns: 10 * SECOND,
            waited_ns: waited_s.iter().map(|s| s * SECOND).collect(),
            takers: Some(Vec::new()),
            ..Outside::default()
        }
    }

    fn taker(whose: Whose, name: &str, s: u64) -> Taker {
        Taker { whose, name: name.into(), ns: s * SECOND }
    }

    fn culprits(seen: &Outside) -> Vec<Culprit> {
        judge(seen).blames.into_iter().map(|blame| blame.culprit).collect()
    }

    #[test]
    fn a_vm_that_does_not_wait_blames_nobody() {
        let quiet = Outside { takers: Some(vec![taker(Whose::Other, "cc1", 9)]), ..seen(&[0, 0]) };
        assert!(judge(&quiet).blames.is_empty());
    }

    #[test]
    fn a_quota_that_explains_the_waits_is_blamed_alone() {
        let throttle =
            Throttle { cgroup: "vm".into(), quota_ns: 20, period_ns: 100, throttled_ns: 7 * SECOND };
        let takers = vec![taker(Whose::Other, "cc1", 8)];
        let mut limited =
            Outside { throttles: vec![throttle.clone()], takers: Some(takers.clone()), ..seen(&[8, 1]) };
        assert_eq!(culprits(&limited), [Culprit::Quota(throttle)]);
        assert_eq!(judge(&limited).waited_permille, 800);
        limited.throttles[0].throttled_ns = SECOND / 2;
        assert_eq!(culprits(&limited), [Culprit::Others(takers)]);
    }

    #[test]
    fn own_threads_and_others_are_told_apart() {
        let (own, vm) = (taker(Whose::Own, "iothread1", 3), taker(Whose::Vm("db".into()), "CPU 0/KVM", 5));
        let tiny = taker(Whose::Own, "worker", 0);
        let mut both = Outside { takers: Some(vec![own.clone(), vm.clone()]), ..seen(&[8]) };
        assert_eq!(culprits(&both), [Culprit::Others(vec![vm]), Culprit::Own(vec![own])]);
        both.takers = Some(vec![tiny]);
        both.nobody_ns = 4 * SECOND;
        both.host_stolen_ns = (4 * SECOND, 4);
        assert_eq!(culprits(&both), [Culprit::Nobody, Culprit::HostBelow]);
        both.takers = None;
        assert!(culprits(&both).contains(&Culprit::Unseen));
    }
}
