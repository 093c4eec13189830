//! Refuses keys without effect, because the ground, the host's scheduler or the workload does not read them.
//!
//! A file may have such keys, because one file serves several grounds. A condition, a case, a sweep and `--set` ask
//! for a difference, so they are refused if there can be none.

use super::{BadScenario, GroundKind, Remedy, Result, Scenario, SchedulerKind};

/// Keys that nothing reads in some scenarios.
struct Unread {
    /// Keys, or prefixes that end in a dot or `_`.
    keys: &'static [&'static str],
    /// Whether the keys are without effect in a scenario.
    applies: fn(&Scenario) -> bool,
    /// The reason.
    why: &'static str,
}

const UNREAD: &[Unread] = &[
    Unread {
        keys: &["host."],
        applies: |s| s.ground == GroundKind::Threads,
        why: "[host] describes a simulated host; here this machine's own scheduler runs",
    },
    Unread {
        keys: &[
            "host.pcpus",
            "host.scheduler",
            "host.hz",
            "host.switch_ns",
            "host.cold_cache_ns",
            "host.noise_",
            "host.slice_us",
            "host.xen.",
        ],
        applies: |s| s.ground == GroundKind::Vm,
        why: "[host] describes a simulated host; here this machine's own scheduler runs",
    },
    Unread {
        keys: &[
            "host.hz",
            "host.switch_ns",
            "host.cold_cache_ns",
            "host.slice_us",
            "host.xen.race_window_ns",
        ],
        applies: |s| s.ground == GroundKind::Xen,
        why: "real Xen cannot change it; only the simulator can",
    },
    Unread {
        keys: &["host.noise_per_s", "host.noise_ns", "host.noise_tail", "host.noise_bound"],
        applies: |s| s.ground == GroundKind::Xen,
        why: "only simulated hosts have threads of their own to order",
    },
    Unread {
        keys: &["guest.hz", "guest.speed", "guest.timer_thread_ns", "guest.spinlocks", "limits."],
        applies: |s| s.ground != GroundKind::Sim,
        why: "only the simulator reads it",
    },
    Unread {
        keys: &["guest.rcu.", "guest.boot_limit_ms", "observe.sample_hz", "observe.sync_every_ms"],
        applies: |s| s.ground == GroundKind::Xen,
        why: "the guests of real Xen measure latency alone, and nobody looks into them",
    },
    Unread {
        keys: &["guest.", "observe.sample_hz", "observe.sync_every_ms"],
        applies: |s| s.ground == GroundKind::Threads,
        why: "real threads run on this machine; there is no guest",
    },
    Unread {
        keys: &["observe.sample_hz", "observe.sync_every_ms"],
        applies: |s| s.ground == GroundKind::Vm && !s.workload.loads_rcu(),
        why: "this workload measures itself; the guest's memory is not looked into",
    },
    Unread {
        keys: &["guest.boot_limit_ms", "guest.accelerator"],
        applies: |s| s.ground == GroundKind::Sim,
        why: "simulated guests do not boot",
    },
    Unread {
        keys: &["run.foreign_cpu_limit_percent", "run.redo_limit"],
        applies: |s| s.ground == GroundKind::Sim,
        why: "other programs of this machine cannot disturb a simulated run",
    },
    Unread {
        keys: &["host.xen."],
        applies: |s| !s.host.scheduler.is_xen(),
        why: "host.scheduler is none of Xen's; set it to credit, credit2 or rtds",
    },
    Unread {
        keys: &["host.xen."],
        applies: |s| s.ground == GroundKind::Sim && s.host.scheduler == SchedulerKind::Rtds,
        why: "rtds knows budgets and periods alone: the quota of a condition",
    },
    Unread {
        keys: &["host.hz", "host.noise_bound"],
        applies: |s| s.ground == GroundKind::Sim && s.host.scheduler.is_xen(),
        why: "Xen has ticks of its own, and a vCPU of dom0 on each pCPU; only Linux's schedulers read it",
    },
    Unread {
        keys: &["host.xen.slice_ms", "host.xen.version", "host.xen.race_window_ns"],
        applies: |s| s.ground == GroundKind::Sim && s.host.scheduler != SchedulerKind::Credit,
        why: "of the simulated schedulers only credit reads it",
    },
    Unread {
        keys: &["host.boost."],
        applies: |s| {
            !matches!(s.ground, GroundKind::Sim | GroundKind::Vm)
                || !s
                    .conditions
                    .values()
                    .any(|condition| condition.remedies.iter().any(|remedy| remedy.is_boost()))
        },
        why: "no condition has the remedy boost or boost-unaimed on this ground",
    },
    Unread {
        keys: &["host.boost.look_ns"],
        applies: |s| s.ground != GroundKind::Sim,
        why: "only the simulator reads it: a real look takes what it takes",
    },
    Unread {
        keys: &["host.boost.unaimed_per_s"],
        applies: |s| !s.has_remedy(Remedy::BoostUnaimed),
        why: "no condition has the remedy boost-unaimed",
    },
    Unread {
        keys: &["host.boost.threshold_us"],
        applies: |s| !s.has_remedy(Remedy::Boost),
        why: "no condition has the remedy boost, which alone waits for a grace period to be that old",
    },
    Unread {
        keys: &["guest.slab."],
        applies: |s| lacks(s, Remedy::DeferredAwareSlab),
        why: "no condition has the remedy deferred-aware-slab on the simulator",
    },
    Unread {
        keys: &["host.slice_grant."],
        applies: |s| lacks(s, Remedy::SliceGrant),
        why: "no condition has the remedy slice-grant on the simulator",
    },
    Unread {
        keys: &["host.short_slices."],
        applies: |s| lacks(s, Remedy::ShortSlices),
        why: "no condition has the remedy short-slices on the simulator",
    },
    Unread {
        keys: &["host.co_schedule."],
        applies: |s| lacks(s, Remedy::CoSchedule),
        why: "no condition has the remedy co-schedule on the simulator",
    },
    Unread {
        keys: &["host.steady_cpus."],
        applies: |s| lacks(s, Remedy::SteadyCpus),
        why: "no condition has the remedy steady-cpus on the simulator",
    },
    Unread {
        keys: &["guest.pressure."],
        applies: |s| lacks(s, Remedy::BackPressure),
        why: "no condition has the remedy back-pressure on the simulator",
    },
    Unread {
        keys: &["guest.ask_first."],
        applies: |s| lacks(s, Remedy::AskFirst),
        why: "no condition has the remedy ask-first on the simulator",
    },
    Unread {
        keys: &["guest.memory_mib", "guest.rcu.", "observe.sync_every_ms"],
        applies: |s| s.ground == GroundKind::Sim && s.workload.is_latency(),
        why: "a workload of wake-ups or requests frees no memory and waits for no grace period",
    },
    Unread {
        keys: &["observe.sync_every_ms"],
        applies: |s| s.ground == GroundKind::Sim && s.guest.vcpus == 1,
        why: "with one vCPU synchronize_rcu() has nobody to wait for, so it is not timed",
    },
];

/// Whether no condition has that remedy on the simulator.
fn lacks(scenario: &Scenario, remedy: Remedy) -> bool {
    scenario.ground != GroundKind::Sim || !scenario.has_remedy(remedy)
}

impl Scenario {
    fn has_remedy(&self, remedy: Remedy) -> bool {
        self.conditions.values().any(|condition| condition.remedies.contains(&remedy))
    }

    /// Refuses a key that nothing reads when this scenario is run.
    ///
    /// # Errors
    /// The key, and why it has no effect.
    pub(crate) fn check_effect(&self, key: &str) -> Result {
        let is =
            |known: &&str| if known.ends_with(['.', '_']) { key.starts_with(*known) } else { key == *known };
        let unread = UNREAD.iter().find(|unread| unread.keys.iter().any(is) && (unread.applies)(self));
        let Some(Unread { why, .. }) = unread else { return Ok(()) };
        Err(BadScenario::new(key, format!("has no effect here: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use crate::GroundKind;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'memory' }
        [on.sim.host]
        slice_us = 2000
        [conditions.a]
        [conditions.b]
    ";

    fn refusal(ground: GroundKind, more: &str, assignments: &[&str]) -> String {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        match overrides::read(&format!("{TEXT}{more}"), Some(ground), &assignments) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_key_that_the_ground_does_not_read_is_refused_wherever_it_is_asked_for() {
        let sweep = "[sweeps.s]\nkey = 'host.slice_us'\nvalues = [0, 500]";
        let set = "set = { host.slice_us = 500 }";
        let why = "host.slice_us: has no effect here: [host] describes a simulated host";
        for (more, key) in [(sweep, "sweeps.s.key: "), (set, "conditions.b.set: ")] {
            assert_eq!(refusal(GroundKind::Sim, more, &[]), "");
            let refused = refusal(GroundKind::Vm, more, &[]);
            assert!(refused.starts_with(&format!("{key}{why}")), "{refused}");
        }
        let assigned = |ground| refusal(ground, "", &["host.slice_us=500"]);
        assert_eq!(assigned(GroundKind::Sim), "");
        assert!(assigned(GroundKind::Vm).starts_with(why));
        let case = "[cases.c]\nset = { run.window_ms = 900, guest.boot_limit_ms = 2000 }";
        assert!(
            refusal(GroundKind::Sim, case, &[])
                .starts_with("cases.c.set: guest.boot_limit_ms: has no effect")
        );
        assert_eq!(refusal(GroundKind::Vm, case, &[]), "");
    }

    #[test]
    fn settings_of_boosts_are_read_where_something_boosts() {
        let quota = "[conditions.c]\nquota = [{ vcpu = 1, percent = 20 }]\nremedies = ['boost']";
        let set = |ground, more: &str, key: &str| refusal(ground, more, &[&format!("host.boost.{key}=200")]);
        for ground in [GroundKind::Sim, GroundKind::Vm] {
            assert_eq!(set(ground, quota, "cap_us"), "");
            assert!(set(ground, "", "cap_us").contains("no condition has the remedy boost"));
            assert!(
                set(ground, quota, "unaimed_per_s").contains("no condition has the remedy boost-unaimed")
            );
            let unaimed = quota.replace("'boost'", "'boost-unaimed'");
            assert_eq!(set(ground, &unaimed, "unaimed_per_s"), "");
            assert!(set(ground, &unaimed, "threshold_us").contains("which alone waits for a grace period"));
        }
        let both =
            "[conditions.c]\nquota = [{ vcpu = 1, percent = 20 }]\nremedies = ['boost', 'boost-unaimed']";
        assert!(refusal(GroundKind::Vm, both, &[]).starts_with("conditions.c.remedies: choose one"));
        let without = "[conditions.c]\nremedies = ['boost']";
        assert_eq!(refusal(GroundKind::Sim, without, &[]), "");
        let refused = refusal(GroundKind::Vm, without, &[]);
        assert!(
            refused.starts_with("conditions.c.remedies: in real guests only a vCPU with a quota"),
            "{refused}"
        );
    }

    #[test]
    fn a_burst_is_no_larger_than_its_quota_and_alone() {
        let quota = |burst_ms: u64, more: &str| {
            format!("[conditions.c]\nquota = [{{ vcpu = 1, percent = 20, burst_ms = {burst_ms} }}]\n{more}")
        };
        assert_eq!(refusal(GroundKind::Vm, &quota(20, ""), &[]), "");
        let refused = refusal(GroundKind::Vm, &quota(21, ""), &[]);
        assert!(refused.starts_with("conditions.c.quota: the kernel takes no burst_ms beyond"), "{refused}");
        let refused = refusal(GroundKind::Vm, &quota(20, "remedies = ['boost']"), &[]);
        assert!(refused.contains("would fill the burst"), "{refused}");
        let rtds = "set = { host.scheduler = 'rtds', host.slice_us = 0 }";
        assert!(refusal(GroundKind::Sim, &quota(20, rtds), &[]).contains("Xen's rtds saves no unused time"));
    }

    #[test]
    fn a_key_that_some_condition_reads_can_be_assigned() {
        let mixed = "[conditions.c]\nset = { host.scheduler = 'credit' }";
        let set = |more| refusal(GroundKind::Sim, more, &["host.slice_us=0", "host.xen.slice_ms=10"]);
        assert!(set(mixed).is_empty() || set(mixed).starts_with("host.xen:"), "{}", set(mixed));
        let weight = "set = { host.scheduler = 'rtds', host.slice_us = 0, host.xen.guest_weight = 512 }";
        assert!(refusal(GroundKind::Sim, weight, &[]).contains("has no effect here: rtds knows budgets"));
        assert!(
            refusal(GroundKind::Sim, "", &["host.xen.slice_ms=30"])
                .contains("host.scheduler is none of Xen's")
        );
    }
}
