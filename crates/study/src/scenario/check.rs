//! The limits of a scenario: what no ground could run is refused here, with the key at fault.

use super::{BadScenario, Condition, Scenario, Workload, all_namespaces};
use crate::metric;

/// Longest addition to the kernel's command line, which ends at 2048 bytes (COMMAND_LINE_SIZE on x86).
const APPEND_BYTES: usize = 1024;

fn bad<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, BadScenario> {
    Err(BadScenario { key: key.into(), problem: problem.into() })
}

fn within(key: &str, value: u64, low: u64, high: u64) -> Result<(), BadScenario> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    bad(key, format!("{value} is not within {low} to {high}"))
}

impl Scenario {
    /// Refuses what no ground could run. Limits of the machine at hand (its memory, its pCPUs) are the
    /// ground's to check.
    pub fn check(&self) -> Result<(), BadScenario> {
        within("run.repeat", self.run.repeat.into(), 1, 1_000)?;
        within("run.warmup_ms", self.run.warmup_ms, 0, 600_000)?;
        within("run.window_ms", self.run.window_ms, 500, 3_600_000)?;
        within("run.redo_limit", self.run.redo_limit.into(), 0, 1_000)?;
        within("guest.vcpus", self.guest.vcpus as u64, 1, 64)?;
        within("guest.memory_mib", self.guest.memory_mib, 128, 1 << 20)?;
        within("guest.boot_limit_ms", self.guest.boot_limit_ms, 1_000, 3_600_000)?;
        within("observe.sample_hz", self.observe.sample_hz.into(), 10, 20_000)?;
        within("observe.sync_every_ms", self.observe.sync_every_ms, 0, 60_000)?;
        if !(0.0..=100.0).contains(&self.run.foreign_cpu_limit_percent) {
            return bad("run.foreign_cpu_limit_percent", "is not within 0 to 100");
        }
        let append = &self.guest.append;
        if append.len() > APPEND_BYTES || append.contains(char::is_control) {
            return bad(
                "guest.append",
                format!("is not at most {APPEND_BYTES} bytes without control characters"),
            );
        }
        if self.conditions.is_empty() {
            return bad("conditions", "a scenario needs at least one condition, the baseline");
        }
        for name in &self.run.conditions {
            if !self.conditions.contains_key(name) {
                let known: Vec<&str> = self.conditions.keys().map(String::as_str).collect();
                return bad(
                    "run.conditions",
                    format!("no condition {name:?}; there are {}", known.join(", ")),
                );
            }
        }
        for (name, condition) in &self.conditions {
            self.check_condition(name, condition)?;
        }
        self.check_workload()?;
        self.check_published()
    }

    fn check_condition(&self, name: &str, condition: &Condition) -> Result<(), BadScenario> {
        let key = |key: &str| format!("conditions.{name}.{key}");
        let mut limited = vec![false; self.guest.vcpus];
        for quota in &condition.quota {
            let Some(seen) = limited.get_mut(quota.vcpu) else {
                let last = self.guest.vcpus - 1;
                return bad(key("quota"), format!("there is no vCPU {}; the last one is {last}", quota.vcpu));
            };
            if std::mem::replace(seen, true) {
                return bad(key("quota"), format!("vCPU {} has two quotas", quota.vcpu));
            }
            if !(quota.percent >= 1.0 && quota.percent <= 100.0) {
                return bad(key("quota"), format!("{} % is not within 1 to 100 % of a pCPU", quota.percent));
            }
            if !(1..=1000).contains(&quota.period_ms) {
                return bad(
                    key("quota"),
                    format!("a period of {} ms is not within 1 to 1000 ms", quota.period_ms),
                );
            }
            if quota.percent / 100.0 * (quota.period_ms as f64) < 1.0 {
                return bad(
                    key("quota"),
                    "the kernel grants no less than 1 ms a period; lengthen the period",
                );
            }
        }
        if condition.neighbours > 64 {
            return bad(key("neighbours"), format!("{} is more than 64", condition.neighbours));
        }
        if condition.hogs > 64 {
            return bad(key("hogs"), format!("{} is more than 64", condition.hogs));
        }
        Ok(())
    }

    fn check_workload(&self) -> Result<(), BadScenario> {
        let memory_mib = self.guest.memory_mib;
        match &self.workload {
            Workload::Memory { object_bytes, burst, pause_us, backlog_limit_mib } => {
                within("workload.object_bytes", *object_bytes, 16, 1 << 16)?;
                within("workload.burst", (*burst).into(), 1, 100_000)?;
                within("workload.pause_us", *pause_us, 0, 1_000_000)?;
                within("workload.backlog_limit_mib", *backlog_limit_mib, 0, memory_mib)
            }
            Workload::Clone { namespaces, stop_below_mib } => {
                let known = all_namespaces();
                if let Some(other) = namespaces.iter().find(|name| !known.contains(name)) {
                    let problem = format!("{other:?} is none of {}", known.join(", "));
                    return Err(BadScenario { key: "workload.namespaces".into(), problem });
                }
                within("workload.stop_below_mib", *stop_below_mib, 0, memory_mib)
            }
            Workload::Postmark { processes, files, transactions, size_min_bytes, size_max_bytes } => {
                within("workload.processes", (*processes).into(), 1, 64)?;
                within("workload.files", *files, (*processes).into(), 10_000_000)?;
                within("workload.transactions", *transactions, (*processes).into(), 100_000_000)?;
                within("workload.size_min_bytes", *size_min_bytes, 1, *size_max_bytes)?;
                within("workload.size_max_bytes", *size_max_bytes, *size_min_bytes, 1 << 20)?;
                // A file takes whole pages, and an inode and a dentry of about 1 KiB together.
                let file_bytes = (size_min_bytes + size_max_bytes).div_ceil(2).next_multiple_of(4096) + 1024;
                let need_mib = files.saturating_mul(file_bytes) >> 20;
                if need_mib * 4 > memory_mib * 3 {
                    let problem = format!(
                        "the files take about {need_mib} MiB of a guest with {memory_mib} MiB; \
                         lower it or raise guest.memory_mib"
                    );
                    return Err(BadScenario { key: "workload.files".into(), problem });
                }
                Ok(())
            }
        }
    }

    fn check_published(&self) -> Result<(), BadScenario> {
        let bad = |key: &str, problem: String| Err(BadScenario { key: key.into(), problem });
        for published in &self.published.ratios {
            if metric::find(&published.metric).is_none() {
                return bad("published.ratios", format!("there is no metric {:?}", published.metric));
            }
            if !(published.ratio.is_finite() && published.ratio > 0.0) {
                return bad("published.ratios", format!("{} is not a ratio", published.ratio));
            }
        }
        let condition = &self.published.condition;
        if !self.published.ratios.is_empty() && !self.conditions.contains_key(condition) {
            return bad("published.condition", format!("there is no condition {condition:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        toml::from_str(
            r#"
            name = "t"
            title = "t"
            [workload]
            kind = "memory"
            [conditions.baseline]
            [conditions.overcommitted]
            quota = [{ vcpu = 1, percent = 20 }]
            "#,
        )
        .unwrap()
    }

    #[test]
    fn the_first_condition_is_the_baseline() {
        let scenario = scenario();
        assert_eq!(scenario.check(), Ok(()));
        assert_eq!(scenario.baseline(), "baseline");
        assert!(scenario.conditions[0].is_undisturbed() && !scenario.conditions[1].is_undisturbed());
    }

    #[test]
    fn refuses_what_cannot_run_and_names_the_key() {
        let key = |change: &dyn Fn(&mut Scenario)| {
            let mut scenario = scenario();
            change(&mut scenario);
            scenario.check().unwrap_err().key
        };
        assert_eq!(key(&|s| s.guest.vcpus = 0), "guest.vcpus");
        assert_eq!(key(&|s| s.run.repeat = 0), "run.repeat");
        assert_eq!(key(&|s| s.guest.append = "a\0b".into()), "guest.append");
        assert_eq!(key(&|s| s.guest.append = "a".repeat(1025)), "guest.append");
        assert_eq!(key(&|s| s.conditions[1].quota[0].vcpu = 2), "conditions.overcommitted.quota");
        assert_eq!(key(&|s| s.conditions[1].quota[0].percent = 120.0), "conditions.overcommitted.quota");
        assert_eq!(key(&|s| s.conditions[1].quota[0].percent = f64::NAN), "conditions.overcommitted.quota");
        assert_eq!(key(&|s| s.conditions[1].quota[0].period_ms = 2), "conditions.overcommitted.quota");
        assert_eq!(key(&|s| s.run.conditions = vec!["x".into()]), "run.conditions");
        assert_eq!(key(&|s| s.conditions.clear()), "conditions");
        let postmark = Workload::Postmark {
            processes: 2,
            files: 128_000,
            transactions: 10,
            size_min_bytes: 500,
            size_max_bytes: 4000,
        };
        assert_eq!(key(&|s| s.workload = postmark.clone()), "workload.files");
    }
}
