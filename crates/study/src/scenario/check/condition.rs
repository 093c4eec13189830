//! The limits of a condition: what the host does must fit the guest, the window and the simulated host.

use super::{bad, within, within_f64};
use crate::scenario::{BadScenario, Condition, GroundKind, Scenario, SchedulerKind, Workload, limits};

impl Scenario {
    pub(super) fn check_condition(&self, name: &str) -> Result<(), BadScenario> {
        let prefix = format!("conditions.{name}.");
        let key = |key: &str| format!("{prefix}{key}");
        let condition = &self.conditions[name];
        self.check_quotas(&key("quota"), condition)?;
        if condition.overcommit != 0.0 {
            within_f64(&key("overcommit"), condition.overcommit, 1.0, 16.0)?;
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
        match condition.pcpus.iter().find(|pcpu| **pcpu >= pcpus) {
            Some(other) => {
                bad(key("pcpus"), format!("there is no pCPU {other}; the simulated host has {pcpus}"))
            }
            None => Ok(()),
        }
    }

    /// A remedy must have something to work on.
    fn check_remedies(&self, key: &str, condition: &Condition) -> Result<(), BadScenario> {
        if condition.remedies.is_empty() {
            return Ok(());
        }
        if !self.workload.loads_rcu() {
            return bad(key, "this workload waits for no grace period; remove it");
        }
        if self.host.scheduler.is_xen() {
            return bad(
                key,
                "only Linux's schedulers can boost; set host.scheduler to eevdf or cfs, or remove it",
            );
        }
        match condition.replay.is_empty() {
            true => Ok(()),
            false => bad(key, "what a recording says cannot be changed by a remedy; remove one of them"),
        }
    }

    /// Limits the threads that the simulated host's scheduler chooses from.
    fn check_threads(&self, name: &str, condition: &Condition) -> Result<(), BadScenario> {
        let vcpus = self.guest.vcpus as u64;
        let pcpus = self.pcpus_under(condition) as u64;
        let vms =
            1 + u64::from(self.workload.io().map_or(0, |io| io.rivals)) + u64::from(condition.neighbours);
        let overcommitted = (condition.overcommit * pcpus as f64).ceil() as u64;
        let spikes: u64 = condition.spikes.iter().map(|spike| u64::from(spike.vcpus)).sum();
        let each_pcpu = 1 + u64::from(condition.hogs);
        let threads =
            vms * vcpus + overcommitted + each_pcpu * pcpus + u64::from(condition.spinners) + spikes;
        if threads > limits::HOST_THREADS {
            let problem = format!(
                "its VMs, hogs and spikes have {threads} threads on the simulated host, more than {}; remove some",
                limits::HOST_THREADS
            );
            return bad(format!("conditions.{name}"), problem);
        }
        Ok(())
    }

    fn check_quotas(&self, key: &str, condition: &Condition) -> Result<(), BadScenario> {
        let capped = matches!(self.host.scheduler, SchedulerKind::Credit | SchedulerKind::Credit2);
        if capped && self.ground == GroundKind::Sim && !condition.quota.is_empty() {
            return bad(
                key,
                "Xen's credit schedulers have no quotas; set host.scheduler to rtds, or remove it",
            );
        }
        let mut limited = vec![false; self.guest.vcpus];
        for quota in &condition.quota {
            let Some(seen) = limited.get_mut(quota.vcpu) else {
                return bad(key, self.no_vcpu(quota.vcpu));
            };
            if std::mem::replace(seen, true) {
                return bad(key, format!("vCPU {} has two quotas; remove one", quota.vcpu));
            }
            if quota.percent / 100.0 * (quota.period_ms as f64) < 1.0 {
                return bad(key, "the kernel grants no less than 1 ms a period; lengthen the period");
            }
        }
        Ok(())
    }

    /// Pauses and spikes must lie within the window, and name vCPUs that exist.
    fn check_times(&self, key: &dyn Fn(&str) -> String, condition: &Condition) -> Result<(), BadScenario> {
        // The window of a workload of fixed size ends with its work.
        let window_ms = match self.workload {
            Workload::Postmark { .. } => 3_600_000,
            _ => self.run.window_ms,
        };
        let fits = |key: String, at_ms: u64, for_ms: u64| {
            if for_ms == 0 || at_ms.saturating_add(for_ms) > window_ms {
                return bad(
                    key,
                    format!("{for_ms} ms at {at_ms} ms are not within the {window_ms} ms of a window"),
                );
            }
            Ok(())
        };
        for pause in &condition.pauses {
            if pause.vcpu >= self.guest.vcpus {
                return bad(key("pauses"), self.no_vcpu(pause.vcpu));
            }
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

/// A recording holds everything that the host did, so nothing else may disturb the guest.
fn check_replay(key: &str, condition: &Condition) -> Result<(), BadScenario> {
    let alone = Condition { replay: String::new(), ..condition.clone() };
    match condition.replay.is_empty() || alone.is_undisturbed() {
        true => Ok(()),
        false => bad(
            key,
            "a recording holds all that the host did to the guest; remove it, or what else disturbs the guest",
        ),
    }
}

/// Bursts of one pCPU must not meet, and the kernel lets real-time threads have 95 % of a second
/// (`sched_rt_runtime_us`).
fn check_bursts(
    key: &dyn Fn(&str) -> String,
    condition: &Condition,
    vcpus: usize,
) -> Result<(), BadScenario> {
    let Some(bursts) = condition.bursts else { return Ok(()) };
    if let Some(vcpu) = bursts.vcpu {
        within(&key("bursts.vcpu"), vcpu as u64, 0, vcpus.saturating_sub(1) as u64)?;
    }
    within(&key("bursts.for_ms"), bursts.for_ms, 1, bursts.every_ms * 9 / 10)?;
    within(&key("bursts.jitter_ms"), bursts.jitter_ms, 0, (bursts.every_ms - bursts.for_ms) / 2)
}
