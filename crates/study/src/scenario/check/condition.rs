//! The limits of a condition: what the host does must fit the guest, the window and the simulated host.

use super::{bad, refuse_if, within};
use crate::scenario::{Condition, GroundKind, Remedy, Result, Scenario, SchedulerKind, Workload, limits};

impl Scenario {
    pub(super) fn check_condition(&self, name: &str) -> Result {
        let prefix = format!("conditions.{name}.");
        let key = |key: &str| format!("{prefix}{key}");
        let condition = &self.conditions[name];
        self.check_quotas(&key("quota"), condition)?;
        if condition.overcommit != 0.0 {
            within(&key("overcommit"), condition.overcommit, 1.0, 16.0)?;
        }
        self.check_times(&key, condition)?;
        check_replay(&key("replay"), condition)?;
        self.check_remedies(&key("remedies"), condition)?;
        check_bursts(&key, condition, self.guest.vcpus)?;
        self.check_condition_on_ground(&prefix, condition)?;
        if self.ground != GroundKind::Sim {
            return Ok(());
        }
        self.check_threads(name, condition)?;
        let pcpus = self.pcpus_under(condition);
        let Some(other) = condition.pcpus.iter().find(|pcpu| **pcpu >= pcpus) else { return Ok(()) };
        bad(key("pcpus"), format!("there is no pCPU {other}; the simulated host has {pcpus}"))
    }

    /// A remedy must have something to work on.
    fn check_remedies(&self, key: &str, condition: &Condition) -> Result<()> {
        if condition.remedies.is_empty() {
            return Ok(());
        }
        if !self.workload.loads_rcu() {
            return bad(key, "this workload waits for no grace period; remove it");
        }
        for (n, remedy) in condition.remedies.iter().enumerate() {
            let is_there_twice = condition.remedies[..n].contains(remedy);
            refuse_if(is_there_twice, key, format!("{remedy} is there twice; remove one"))?;
            let of_host = self.without_effect(condition, *remedy);
            if let Some(problem) = of_host.or_else(|| self.has_no_effect(*remedy)) {
                return bad(key, format!("{remedy}: {problem}"));
            }
        }
        let boosts = condition.remedies.iter().filter(|remedy| remedy.is_boost()).count();
        refuse_if(boosts > 1, key, "choose one way to boost: both would act on the same vCPUs")?;
        if self.ground == GroundKind::Vm {
            if let Some(remedy) = condition.remedies.iter().find(|remedy| !remedy.is_boost()) {
                return bad(key, format!("{remedy}: only the simulator can do that; remove it"));
            }
            let problem =
                "in real guests only a vCPU with a quota can be boosted; give one a quota, or remove it";
            refuse_if(condition.quota.is_empty(), key, problem)?;
        }
        let is_of_host = condition.remedies.iter().any(|remedy| !remedy.is_of_guest());
        if is_of_host && self.ground == GroundKind::Sim && self.host.scheduler.is_xen() {
            return bad(
                key,
                "only under Linux's schedulers are there remedies; set host.scheduler to eevdf or cfs, or remove it",
            );
        }
        if !condition.replay.is_empty() {
            return bad(key, "what a recording says cannot be changed by a remedy; remove one of them");
        }
        Ok(())
    }

    /// Why a remedy cannot do anything under this condition.
    fn without_effect(&self, condition: &Condition, remedy: Remedy) -> Option<&'static str> {
        let slice_us = self.host.slice_us;
        let is_short = slice_us != 0 && slice_us <= self.host.short_slices.slice_us;
        let first = condition.pcpus.first();
        match remedy {
            Remedy::Unpin if condition.pcpus.iter().all(|pcpu| Some(pcpu) == first) => {
                Some("vCPUs are not pinned to several pCPUs; name these in pcpus, or remove it")
            }
            Remedy::SteadyCpus if self.guest.vcpus < 2 => {
                Some("a guest of one vCPU has no other one; raise guest.vcpus, or remove it")
            }
            Remedy::CoSchedule if self.guest.vcpus < 2 => {
                Some("a guest of one vCPU has none that could run together; raise guest.vcpus, or remove it")
            }
            Remedy::EvenShare => no_even_share(condition),
            Remedy::ShortSlices if is_short => {
                Some("host.slice_us is no longer than host.short_slices.slice_us already; remove one of them")
            }
            _ => None,
        }
    }

    /// Limits the threads that the simulated host's scheduler chooses from.
    fn check_threads(&self, name: &str, condition: &Condition) -> Result {
        let vcpus = self.guest.vcpus as u64;
        let pcpus = self.pcpus_under(condition) as u64;
        let vms =
            1 + u64::from(self.workload.io().map_or(0, |io| io.rivals)) + u64::from(condition.neighbours);
        let overcommitted = (condition.overcommit * pcpus as f64).ceil() as u64;
        let spikes: u64 = condition.spikes.iter().map(|spike| u64::from(spike.vcpus)).sum();
        let each_pcpu = 1 + u64::from(condition.hogs);
        let threads =
            vms * vcpus + overcommitted + each_pcpu * pcpus + u64::from(condition.spinners) + spikes;
        let problem = format!(
            "its VMs, hogs and spikes have {threads} threads on the simulated host, more than {}; remove some",
            limits::HOST_THREADS
        );
        refuse_if(threads > limits::HOST_THREADS, format!("conditions.{name}"), problem)
    }

    fn check_quotas(&self, key: &str, condition: &Condition) -> Result {
        let capped = matches!(self.host.scheduler, SchedulerKind::Credit | SchedulerKind::Credit2);
        let has_none = capped && self.ground == GroundKind::Sim;
        let problem = "Xen's credit schedulers have no quotas; set host.scheduler to rtds, or remove it";
        refuse_if(has_none && !condition.quota.is_empty(), key, problem)?;
        let mut limited = vec![false; self.guest.vcpus];
        for quota in &condition.quota {
            let Some(seen) = limited.get_mut(quota.vcpu) else {
                return bad(key, self.no_vcpu(quota.vcpu));
            };
            let problem = format!("vCPU {} has two quotas; remove one", quota.vcpu);
            refuse_if(std::mem::replace(seen, true), key, problem)?;
            let granted_ms = quota.percent / 100.0 * (quota.period_ms as f64);
            let problem = "the kernel grants no less than 1 ms a period; lengthen the period";
            refuse_if(granted_ms < 1.0, key, problem)?;
            let problem = "the kernel takes no burst_ms beyond what may be run in a period; lower it";
            refuse_if(quota.burst_ms as f64 > granted_ms, key, problem)?;
            let has_burst = quota.burst_ms > 0;
            let problem =
                "Xen's rtds saves no unused time; set host.scheduler to eevdf or cfs, or remove burst_ms";
            refuse_if(
                has_burst && self.ground == GroundKind::Sim && self.host.scheduler.is_xen(),
                key,
                problem,
            )?;
            let problem =
                "a boost writes the quota, and would fill the burst; remove burst_ms, or the remedy";
            let is_boosted = condition.remedies.iter().any(|remedy| remedy.is_boost());
            refuse_if(has_burst && is_boosted, key, problem)?;
        }
        Ok(())
    }

    /// Pauses and spikes must lie within the window, and name vCPUs that exist.
    fn check_times(&self, key: &dyn Fn(&str) -> String, condition: &Condition) -> Result {
        // The window of a workload of fixed size ends with its work.
        let window_ms = match self.workload {
            Workload::Postmark { .. } => 3_600_000,
            _ => self.run.window_ms,
        };
        let fits = |key: String, at_ms: u64, for_ms: u64| {
            let is_outside = for_ms == 0 || at_ms.saturating_add(for_ms) > window_ms;
            let problem = format!("{for_ms} ms at {at_ms} ms are not within the {window_ms} ms of a window");
            refuse_if(is_outside, key, problem)
        };
        for pause in &condition.pauses {
            refuse_if(pause.vcpu >= self.guest.vcpus, key("pauses"), self.no_vcpu(pause.vcpu))?;
            fits(key("pauses"), pause.at_ms, pause.for_ms)?;
        }
        for spike in &condition.spikes {
            fits(key("spikes"), spike.at_ms, spike.for_ms)?;
        }
        Ok(())
    }

    pub(super) fn no_vcpu(&self, vcpu: usize) -> String {
        format!("there is no vCPU {vcpu}; the last one is {}", self.guest.vcpus - 1)
    }
}

/// An even share is what busy neighbours leave, so it needs these and nothing else.
fn no_even_share(condition: &Condition) -> Option<&'static str> {
    let alone = Condition { overcommit: 0.0, ..condition.clone() };
    if condition.overcommit <= 1.0 {
        return Some("no busy neighbour shares the pCPUs; set overcommit above 1, or remove it");
    }
    if condition.remedies.len() > 1 {
        return Some("a vCPU that is never descheduled needs no other remedy; remove the others, or it");
    }
    let problem = "it shares with the neighbours of overcommit alone; remove what else disturbs the guest";
    (!alone.is_undisturbed()).then_some(problem)
}

/// A recording holds everything that the host did, so nothing else may disturb the guest.
fn check_replay(key: &str, condition: &Condition) -> Result {
    let alone = Condition { replay: String::new(), ..condition.clone() };
    let is_disturbed = !condition.replay.is_empty() && !alone.is_undisturbed();
    let problem =
        "a recording holds all that the host did to the guest; remove it, or what else disturbs the guest";
    refuse_if(is_disturbed, key, problem)
}

/// Bursts of one pCPU must not meet, and the kernel lets real-time threads have 95 % of a second
/// (`sched_rt_runtime_us`).
fn check_bursts(key: &dyn Fn(&str) -> String, condition: &Condition, vcpus: usize) -> Result {
    let Some(bursts) = condition.bursts else { return Ok(()) };
    if let Some(vcpu) = bursts.vcpu {
        within(&key("bursts.vcpu"), vcpu, 0, vcpus.saturating_sub(1))?;
    }
    within(&key("bursts.for_ms"), bursts.for_ms, 1, bursts.every_ms * 9 / 10)?;
    within(&key("bursts.jitter_ms"), bursts.jitter_ms, 0, (bursts.every_ms - bursts.for_ms) / 2)
}
