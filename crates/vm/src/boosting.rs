//! Boosts the vCPUs of a lab guest through [`reprieve_linux::boost`], as a condition's remedies ask for.

use reprieve_linux::boost::{Aim, Boosting, Given, GuestRcu, Limited, Plan, RcuLook};
use reprieve_policy::boost::{LEAST_NS, Settings};
use reprieve_study::derive::put;
use reprieve_study::fairness::most_in_a_second_ns;
use reprieve_study::scenario::{Boost, Remedy, VcpuQuota};
use reprieve_study::units::SECOND_NS;
use reprieve_study::{Condition, Observation, metric};

use crate::Result;
use crate::host::Host;
use crate::introspect::Reader;
use crate::qemu::Machine;
use crate::watch::Recording;

impl GuestRcu for Reader {
    fn look(&mut self) -> reprieve_linux::Result<RcuLook> {
        let gp = self.gp();
        Ok(RcuLook {
            open: gp.open.then_some(gp.sequence),
            holdouts: gp.holdouts,
            ticks: self.jiffies(),
            not_preemptible: self.not_preemptible(),
            kthread_on: self.gp_kthread_wanted_on(),
        })
    }
}

/// Starts boosts if the condition asks for them.
///
/// # Errors
/// A quota of `limits` cannot be written, or the machine has ended.
pub fn start(
    condition: &Condition,
    boost: &Boost,
    seed: u64,
    guest: Reader,
    (machine, host): (&Machine, &Host),
    limits: Vec<Limited>,
) -> Result<Option<Boosting>> {
    let aim = condition.remedies.iter().find_map(|remedy| match remedy {
        Remedy::Boost => Some(Aim::GracePeriods),
        Remedy::BoostUnaimed => Some(Aim::Clock { per_s: boost.unaimed_per_s, seed }),
        _ => None,
    });
    let Some(aim) = aim else { return Ok(None) };
    let settings = Settings {
        threshold_ns: boost.threshold_us * 1000,
        cap_ns: (boost.cap_us * 1000).max(LEAST_NS),
        cool_down_ns: boost.cool_down_us * 1000,
        debt_ns: boost.debt_us * 1000,
        share_permille: boost.share_percent * 10,
        before_tick: boost.before_tick,
    };
    let plan = Plan {
        proc_root: host.proc_root.clone(),
        pid: machine.pid(),
        tids: machine.vcpu_tids.clone(),
        limits,
        settings,
        look_ns: boost.look_us * 1000,
        aim,
        may_act: true,
    };
    Ok(Some(Boosting::start(plan, guest)?))
}

/// Adds the boosts within the window to the observation.
pub fn observe(out: &mut Observation, (before, after): (Given, Given)) {
    let window_ns = out.provenance.window_ns as f64;
    let vcpus = out.provenance.vcpus.len() as f64;
    if window_ns > 0.0 {
        put(out, metric::BOOSTS, (after.visits - before.visits) as f64 * SECOND_NS as f64 / window_ns);
        put(out, metric::BOOSTED_CPU, (after.lent_ns - before.lent_ns) as f64 / (window_ns * vcpus));
        put(out, metric::BOOST_CPU, (after.own_cpu_ns - before.own_cpu_ns) as f64 / window_ns);
    }
}

/// Adds to the observation how well the vCPUs kept to their quotas in each second. Adds nothing if it is not known when
/// they ran.
pub fn fairness(out: &mut Observation, quotas: &[VcpuQuota], recording: &Recording) {
    let share = |quota: &VcpuQuota| {
        let running = recording.scheduling.running.get(quota.vcpu)?;
        let most_ns = most_in_a_second_ns(running, recording.window)?;
        Some(most_ns as f64 / (quota.percent / 100.0 * SECOND_NS as f64))
    };
    if let Some(largest) = quotas.iter().filter_map(share).reduce(f64::max) {
        put(out, metric::QUOTA_PEAK, largest);
    }
}
