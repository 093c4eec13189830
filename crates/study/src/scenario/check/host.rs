//! The limits of the simulated host, and what goes with which scheduler.

use super::{refuse_if, within};
use crate::scenario::{GroundKind, Result, Scenario, SchedulerKind, Xen};

/// Most kinds of further threads of the host's own.
const MOST_NOISE_TAILS: usize = 8;

impl Scenario {
    pub(super) fn check_host(&self) -> Result {
        let host = &self.host;
        let tails = host.noise_tail.len();
        let problem = format!("{tails} kinds of threads are more than {MOST_NOISE_TAILS}; merge some");
        refuse_if(tails > MOST_NOISE_TAILS, "host.noise_tail", problem)?;
        let mut noise_permille = host.noise_per_s.saturating_mul(host.noise_ns) / 1_000_000;
        for tail in &host.noise_tail {
            noise_permille += tail.for_us * 1000 / (tail.every_us + tail.for_us);
        }
        let problem = "the host's own threads would take more than 90 % of each pCPU; lower it, noise_per_s or noise_tail";
        refuse_if(noise_permille > 900, "host.noise_ns", problem)?;
        self.check_xen()
    }

    fn check_xen(&self) -> Result {
        let (host, xen) = (&self.host, &self.host.xen);
        // A slice that is no more than the rate limit would never end in time.
        if xen.ratelimit_us != 0 {
            within("host.xen.ratelimit_us", xen.ratelimit_us, 100, (xen.slice_ms * 1_000).min(500_000))?;
        }
        for (key, cap) in
            [("guest_cap_percent", xen.guest_cap_percent), ("spinner_cap_percent", xen.spinner_cap_percent)]
        {
            let has_none = host.scheduler != SchedulerKind::Credit && self.ground == GroundKind::Sim;
            let problem = "only credit has caps on the simulator; set host.scheduler to credit, or remove it";
            refuse_if(cap != 0 && has_none, format!("host.xen.{key}"), problem)?;
        }
        for (n, fix) in xen.fixes.iter().enumerate() {
            let (wanted, given) = (fix.scheduler().name(), host.scheduler.name());
            let problem = format!("{fix} is a fix of Xen's {wanted}, and host.scheduler is {given}");
            refuse_if(host.scheduler != fix.scheduler(), "host.xen.fixes", problem)?;
            let is_there_twice = xen.fixes[..n].contains(fix);
            refuse_if(is_there_twice, "host.xen.fixes", format!("{fix} is there twice; remove one"))?;
        }
        let is_idle = !host.scheduler.is_xen() && *xen != Xen::default();
        let problem = "host.scheduler is none of Xen's; set it to credit, credit2 or rtds, or remove this";
        refuse_if(is_idle, "host.xen", problem)?;
        let problem = "Xen's schedulers do not read it; set host.xen.slice_ms, or remove it";
        refuse_if(host.scheduler.is_xen() && host.slice_us != 0, "host.slice_us", problem)
    }
}
