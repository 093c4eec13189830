//! What was seen of a VM in a stretch of time: samples, added up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::stop;
use crate::fingerprint::{self, Off};
use crate::sample::{Sample, Tier, VcpuSample};

/// What was seen of one vCPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcpu {
    /// Its number.
    pub vcpu: usize,
    /// When it was off; without the beats that the guest itself delayed.
    pub offs: Vec<Off>,
    /// For how long the guest's own tasks kept the beat thread waiting, ns.
    pub kept_ns: u64,
    /// Time that it was idle, as a part of the span, from 0 to 1. The kernel counts on while the host keeps an idle vCPU off.
    pub idle: f64,
}

impl Vcpu {
    /// Time off, ns.
    pub fn off_ns(&self) -> u64 {
        self.offs.iter().map(Off::length_ns).fold(0, u64::saturating_add)
    }
}

/// What was seen of a VM in a stretch of time. `None` stands for what could not be measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Its length, ns.
    pub span_ns: u64,
    /// The vCPUs whose beats ran.
    pub vcpus: Vec<Vcpu>,
    /// Numbers of the other ones: no beat ran there, so nothing is known of them.
    pub silent: Vec<usize>,
    /// Steal of all vCPUs, ns; `None` if this host never books any.
    pub steal_ns: Option<u64>,
    /// Throttling of the process's own cgroup, ns.
    pub throttled_ns: Option<u64>,
    /// How far the clock of the day moved against the monotonic one, ns.
    pub stepped_ns: i64,
    /// How long the machine was suspended, ns.
    pub suspended_ns: u64,
    /// Whether the beats had real-time priority: then neither the guest's own tasks nor a quota of its own cgroup delay them.
    pub real_time: bool,
    /// Time that some task waited for a CPU, ns.
    pub cpu_wait_ns: Option<u64>,
    /// Time that some task waited for memory, ns.
    pub memory_wait_ns: Option<u64>,
    /// Durations of grace periods as `membarrier` shows them, ns, ascending.
    pub grace_periods_ns: Vec<u64>,
    /// How long RCU's kthread waited for a CPU while it could run, ns.
    pub kthread_wait_ns: Option<u64>,
    /// The highest tier in the samples.
    pub tier: Tier,
    /// Stalls and lockups that the kernel logged; `None` if its log was not read.
    pub logged: Option<u64>,
    /// Tasks that ran while others waited for their CPU, and for how long these waited, ns; the longest first.
    pub in_the_way: Vec<(String, u64)>,
    /// Durations of the kernel's own grace periods, ns, ascending; empty below tier T2.
    pub exact_grace_periods_ns: Vec<u64>,
    /// Objects that wait for grace periods, by function; the most first.
    pub queued: Vec<(String, u64)>,
}

impl Evidence {
    /// Adds up samples, in the order of time. Their beats should have the same rate.
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Evidence {
        let mut all = Evidence { real_time: true, ..Evidence::default() };
        let (mut vcpus, mut open_ns) = (BTreeMap::new(), 0);
        let (mut in_the_way, mut queued) = (BTreeMap::new(), BTreeMap::new());
        for sample in stop::put_right(samples).iter().map(Cow::as_ref) {
            all.span_ns = all.span_ns.saturating_add(sample.span_ns);
            all.real_time &= sample.real_time;
            all.stepped_ns = all.stepped_ns.saturating_add(sample.stepped_ns);
            all.suspended_ns = all.suspended_ns.saturating_add(sample.suspended_ns);
            add(&mut all.throttled_ns, sample.throttled_ns);
            add(&mut all.cpu_wait_ns, sample.cpu_wait_ns);
            add(&mut all.memory_wait_ns, sample.memory_wait_ns);
            add(&mut all.kthread_wait_ns, sample.kthread_wait_ns);
            all.grace_periods_ns.extend(&sample.grace_periods_ns);
            open_ns = sample.open_grace_period_ns;
            all.add_higher_tiers(sample);
            add_names(&mut in_the_way, &sample.in_the_way);
            if let Some(deferred) = &sample.deferred {
                add_names(&mut queued, &deferred.queued);
            }
            all.silent.extend(sample.vcpus.iter().map(|seen| seen.vcpu));
            for seen in sample.vcpus.iter().filter(|seen| seen.beats > 0 || !seen.offs.is_empty()) {
                add(&mut all.steal_ns, seen.steal_ns);
                add_vcpu(vcpus.entry(seen.vcpu).or_default(), seen);
            }
        }
        // A call that is still open counts with the time so far.
        all.grace_periods_ns.extend(Some(open_ns).filter(|ns| *ns > 0));
        all.grace_periods_ns.sort_unstable();
        all.exact_grace_periods_ns.sort_unstable();
        (all.in_the_way, all.queued) = (by_sum(in_the_way), by_sum(queued));
        all.silent.sort_unstable();
        all.silent.dedup();
        all.silent.retain(|vcpu| !vcpus.contains_key(vcpu));
        for (mut vcpu, idle_ns) in vcpus.into_values() {
            vcpu.idle = (idle_ns as f64 / all.span_ns.max(1) as f64).min(1.0);
            vcpu.offs.sort_by_key(|off| off.back_ns);
            all.vcpus.push(vcpu);
        }
        all
    }

    /// How long some task waited for a CPU, ns, unless the collector's own beats do so, as on a vCPU where none ran.
    pub fn waits_of_tasks_ns(&self) -> Option<u64> {
        self.cpu_wait_ns.filter(|_| self.silent.is_empty())
    }

    fn add_higher_tiers(&mut self, sample: &Sample) {
        self.tier = self.tier.max(sample.tier);
        let logged = sample
            .stalls
            .or(sample.lockups)
            .map(|_| sample.stalls.unwrap_or(0).saturating_add(sample.lockups.unwrap_or(0)));
        add(&mut self.logged, logged);
        if let Some(deferred) = &sample.deferred {
            self.exact_grace_periods_ns.extend(&deferred.grace_periods_ns);
        }
    }

    pub(super) fn permille(&self, ns: u64) -> u64 {
        let permille = (u128::from(ns) * 1000).checked_div(self.span_ns.into()).unwrap_or(0);
        u64::try_from(permille).unwrap_or(u64::MAX)
    }

    /// The same without times off that all vCPUs came back from at the same moment.
    pub(super) fn alone(&self) -> Evidence {
        let mut alone = self.clone();
        let offs: Vec<&[Off]> = self.vcpus.iter().map(|vcpu| &vcpu.offs[..]).collect();
        for (vcpu, offs) in alone.vcpus.iter_mut().zip(fingerprint::alone(&offs)) {
            vcpu.offs = offs;
        }
        alone
    }

    /// For how long the vCPU that was off most was off in times off that all vCPUs came back from at the same moment, ns.
    pub fn shared_ns(&self) -> u64 {
        let (alone, most) = (self.alone(), self.most_off());
        let of_it =
            |most: &Vcpu| alone.vcpus.iter().find(|vcpu| vcpu.vcpu == most.vcpu).map_or(0, Vcpu::off_ns);
        most.map_or(0, |most| most.off_ns().saturating_sub(of_it(most)))
    }

    /// The vCPU that was off most.
    pub(super) fn most_off(&self) -> Option<&Vcpu> {
        self.vcpus.iter().max_by_key(|vcpu| vcpu.off_ns())
    }
}

fn add(sum: &mut Option<u64>, ns: Option<u64>) {
    if let Some(ns) = ns {
        *sum = Some(sum.unwrap_or(0).saturating_add(ns));
    }
}

/// The most names that are added up.
const MOST_NAMES: usize = 1000;

fn add_names(sums: &mut BTreeMap<String, u64>, more: &[(String, u64)]) {
    for (name, sum) in more {
        let has_room = sums.len() < MOST_NAMES;
        match sums.get_mut(name.as_str()) {
            Some(total) => *total = total.saturating_add(*sum),
            None if has_room => drop(sums.insert(name.clone(), *sum)),
            None => {}
        }
    }
}

/// The largest first.
fn by_sum(sums: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums
}

fn add_vcpu((vcpu, idle_ns): &mut (Vcpu, u64), seen: &VcpuSample) {
    vcpu.vcpu = seen.vcpu;
    vcpu.offs.extend(&seen.offs);
    vcpu.kept_ns = vcpu.kept_ns.saturating_add(seen.kept_ns);
    *idle_ns = idle_ns.saturating_add(seen.idle_ns.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Deferred;

    #[test]
    fn of_a_vcpu_without_a_beat_nothing_is_known() {
        let sample = |beats: [u64; 3]| {
            let vcpu = |(vcpu, beats)| VcpuSample { vcpu, beats, ..VcpuSample::default() };
            Sample { vcpus: beats.into_iter().enumerate().map(vcpu).collect(), ..Sample::default() }
        };
        let all = Evidence::of([&sample([5, 0, 0]), &sample([0, 0, 5])]);
        assert_eq!(all.silent, [1]);
        let waiting = Evidence { cpu_wait_ns: Some(7), ..all.clone() };
        assert_eq!(waiting.waits_of_tasks_ns(), None, "a beat of its own waits on the silent vCPU");
        let heard = Evidence { silent: Vec::new(), ..waiting };
        assert_eq!(heard.waits_of_tasks_ns(), Some(7));
        assert_eq!(all.vcpus.iter().map(|vcpu| vcpu.vcpu).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn what_higher_tiers_saw_adds_up() {
        let sample = |tier, stalls, names: &[(&str, u64)], graces: &[u64]| {
            let names: Vec<(String, u64)> =
                names.iter().map(|(name, sum)| (name.to_string(), *sum)).collect();
            let deferred = Deferred { grace_periods_ns: graces.into(), queued: names.clone(), forced: None };
            Sample { tier, stalls, in_the_way: names, deferred: Some(deferred), ..Sample::default() }
        };
        let first = sample(Tier::T2, Some(2), &[("a", 5), ("b", 3)], &[9]);
        let second = sample(Tier::T1, None, &[("b", 4)], &[7, 8]);
        let all = Evidence::of([&Sample::default(), &first, &second]);
        let names = [("b".to_string(), 7), ("a".to_string(), 5)];
        assert_eq!((all.tier, all.logged), (Tier::T2, Some(2)));
        assert_eq!((&all.in_the_way[..], &all.queued[..]), (&names[..], &names[..]));
        assert_eq!(all.exact_grace_periods_ns, [7, 8, 9]);
        let many: Vec<_> = (0..2 * MOST_NAMES).map(|at| (at.to_string(), 1)).collect();
        let many = Sample { in_the_way: many, ..Sample::default() };
        assert_eq!(Evidence::of([&many, &many]).in_the_way.len(), MOST_NAMES);
    }

    #[test]
    fn samples_add_up() {
        let vcpu = |vcpu, back_ns, idle_ns| VcpuSample {
            vcpu,
            beats: 5,
            offs: vec![Off { since_ns: back_ns - 20, back_ns }],
            kept_ns: 3,
            idle_ns: Some(idle_ns),
            steal_ns: Some(4),
            ..VcpuSample::default()
        };
        let sample = |at_ns, open_grace_period_ns| Sample {
            at_ns,
            span_ns: 100,
            vcpus: vec![vcpu(0, at_ns, 40), vcpu(3, at_ns, 0)],
            throttled_ns: None,
            stepped_ns: -5,
            grace_periods_ns: vec![9, 7],
            open_grace_period_ns,
            ..Sample::default()
        };
        let unseen = VcpuSample { vcpu: 4, ..VcpuSample::default() };
        let mut last = sample(200, 30);
        last.vcpus.push(unseen);
        let all = Evidence::of([&sample(100, 50), &last]);
        assert_eq!((all.span_ns, all.stepped_ns, all.steal_ns, all.throttled_ns), (200, -10, Some(16), None));
        assert_eq!(all.grace_periods_ns, [7, 7, 9, 9, 30]);
        let seen: Vec<_> =
            all.vcpus.iter().map(|vcpu| (vcpu.vcpu, vcpu.off_ns(), vcpu.kept_ns, vcpu.idle)).collect();
        assert_eq!(seen, [(0, 40, 6, 0.4), (3, 40, 6, 0.0)]);
        assert!(!all.real_time);
    }
}
