//! The limits of the simulated host, and what goes with which scheduler.

use super::{bad, within};
use crate::scenario::{BadScenario, GroundKind, Scenario, SchedulerKind, Xen};

/// Most kinds of further threads of the host's own.
const MOST_NOISE_TAILS: usize = 8;

impl Scenario {
    pub(super) fn check_host(&self) -> Result<(), BadScenario> {
        let host = &self.host;
        if host.noise_tail.len() > MOST_NOISE_TAILS {
            return bad(
                "host.noise_tail",
                format!(
                    "{} kinds of threads are more than {MOST_NOISE_TAILS}; merge some",
                    host.noise_tail.len()
                ),
            );
        }
        let mut noise_permille = host.noise_per_s.saturating_mul(host.noise_ns) / 1_000_000;
        for tail in &host.noise_tail {
            noise_permille += tail.for_us * 1000 / (tail.every_us + tail.for_us);
        }
        if noise_permille > 900 {
            return bad(
                "host.noise_ns",
                "the host's own threads would take more than 90 % of each pCPU; lower it, noise_per_s or noise_tail",
            );
        }
        self.check_xen()
    }

    fn check_xen(&self) -> Result<(), BadScenario> {
        let (host, xen) = (&self.host, &self.host.xen);
        // A slice that is no more than the rate limit would never end in time.
        if xen.ratelimit_us != 0 {
            within("host.xen.ratelimit_us", xen.ratelimit_us, 100, (xen.slice_ms * 1_000).min(500_000))?;
        }
        for (key, cap) in
            [("guest_cap_percent", xen.guest_cap_percent), ("spinner_cap_percent", xen.spinner_cap_percent)]
        {
            if cap != 0 && host.scheduler != SchedulerKind::Credit && self.ground == GroundKind::Sim {
                return bad(
                    format!("host.xen.{key}"),
                    "only credit has caps on the simulator; set host.scheduler to credit, or remove it",
                );
            }
        }
        for (n, fix) in xen.fixes.iter().enumerate() {
            let (name, wanted) = (fix.name(), fix.scheduler());
            if host.scheduler != wanted {
                let (wanted, given) = (wanted.name(), host.scheduler.name());
                let problem = format!("{name} is a fix of Xen's {wanted}, and host.scheduler is {given}");
                return bad("host.xen.fixes", problem);
            }
            if xen.fixes[..n].contains(fix) {
                return bad("host.xen.fixes", format!("{name} is there twice; remove one"));
            }
        }
        if !host.scheduler.is_xen() && *xen != Xen::default() {
            let problem =
                "host.scheduler is none of Xen's; set it to credit, credit2 or rtds, or remove this";
            return bad("host.xen", problem);
        }
        if host.scheduler.is_xen() && host.slice_us != 0 {
            return bad(
                "host.slice_us",
                "Xen's schedulers do not read it; set host.xen.slice_ms, or remove it",
            );
        }
        Ok(())
    }
}
