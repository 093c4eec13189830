//! What was seen of a VM in a stretch of time: samples, added up.

use crate::fingerprint::Off;
use crate::sample::{Sample, VcpuSample};

/// What was seen of one vCPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcpu {
    /// Its number.
    pub vcpu: usize,
    /// When it was off; without the beats that the guest itself delayed.
    pub offs: Vec<Off>,
    /// For how long the guest's own tasks kept the beat thread waiting, ns.
    pub kept_ns: u64,
    /// Time that it was idle, as a part of its time on, from 0 to 1.
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
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
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
}

impl Evidence {
    /// Adds up samples, in the order of time. Their beats should have the same rate.
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Evidence {
        let mut all = Evidence { real_time: true, ..Evidence::default() };
        let (mut idle_ns, mut open_ns) = (Vec::new(), 0);
        for sample in samples {
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
            for seen in sample.vcpus.iter().filter(|seen| seen.beats > 0 || !seen.offs.is_empty()) {
                add(&mut all.steal_ns, seen.steal_ns);
                add_vcpu(&mut all.vcpus, &mut idle_ns, seen);
            }
        }
        // A call that is still open counts with the time so far.
        all.grace_periods_ns.extend(Some(open_ns).filter(|ns| *ns > 0));
        all.grace_periods_ns.sort_unstable();
        for (vcpu, idle_ns) in all.vcpus.iter_mut().zip(idle_ns) {
            let on_ns = all.span_ns.saturating_sub(vcpu.off_ns());
            vcpu.idle = (idle_ns as f64 / on_ns.max(1) as f64).min(1.0);
        }
        all
    }

    pub(super) fn permille(&self, ns: u64) -> u64 {
        ns.saturating_mul(1000).checked_div(self.span_ns).unwrap_or(0)
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

fn add_vcpu(vcpus: &mut Vec<Vcpu>, idle_ns: &mut Vec<u64>, seen: &VcpuSample) {
    let at = vcpus.iter().position(|vcpu| vcpu.vcpu == seen.vcpu).unwrap_or_else(|| {
        vcpus.push(Vcpu { vcpu: seen.vcpu, ..Vcpu::default() });
        idle_ns.push(0);
        vcpus.len() - 1
    });
    vcpus[at].offs.extend(&seen.offs);
    vcpus[at].kept_ns = vcpus[at].kept_ns.saturating_add(seen.kept_ns);
    idle_ns[at] = idle_ns[at].saturating_add(seen.idle_ns.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(seen, [(0, 40, 6, 0.5), (3, 40, 6, 0.0)]);
        assert!(!all.real_time);
    }
}
