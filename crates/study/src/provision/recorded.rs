//! Makes a profile from a recorded run.
//!
//! A record has no count of deferred frees. But it has the workload's operations per second, and each operation of the
//! supported workloads frees a known number of objects of known sizes. The sizes are those of Linux 6.1, from
//! /proc/slabinfo.

use super::profile::{DeferredFrees, Descheduled, GracePeriods, Profile, VERSION};
use crate::observe::distribution::Distribution;
use crate::observe::metric;
use crate::observe::observation::{self, Observation};
use crate::recorded::record::Study;
use crate::scenario::{BadScenario, Clones, Guest, Memory, Postmark, Result, Workload};
use crate::statistics;
use crate::units::SECOND_NS;

/// The profile of a study's runs under an undisturbed condition, by default the first such one. In a study with
/// cases, of one of these.
///
/// # Errors
/// There is no such case, condition or run, the host disturbs the guest under it, or the workload frees nothing after grace
/// periods.
pub fn profile(study: &Study, case: Option<&str>, condition: Option<&str>) -> Result<Profile> {
    let (scenario, runs) = (study.scenario.of_case(case)?, study.runs_in(case));
    let condition = match condition {
        Some(condition) => condition,
        None => undisturbed(study, case)?,
    };
    let runs: Vec<&Observation> = runs.iter().copied().filter(|run| run.condition == condition).collect();
    let known = study.scenario.conditions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let problem = format!("the record has no run of {condition:?} that counts; its conditions are {known}");
    let first = *runs.first().ok_or_else(|| BadScenario::new("condition", problem))?;
    if !study.scenario.is_undisturbed(condition, case) {
        return Err(disturbed(study, case, condition));
    }
    let per_operation = per_operation(&scenario.workload)?;
    let value = |id: &str| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.value(id)).collect();
        let problem = format!("the runs of {condition:?} have no {id}");
        statistics::median(&values).ok_or_else(|| BadScenario::new("condition", problem))
    };
    let operations_per_s = value(metric::THROUGHPUT)?;
    let deferred_frees = per_operation
        .into_iter()
        .map(|(cache, number, bytes)| DeferredFrees { cache, per_s: number * operations_per_s, bytes })
        .filter(|one| one.per_s > 0.0)
        .collect();
    let (guest, missing) = guest(&scenario.guest, &first.provenance.kernel);
    let idle_share = value(metric::IDLE_CPU)?.clamp(0.0, 1.0);
    let profile = Profile {
        profile_version: VERSION,
        source: source(study, case, condition, first, runs.len()),
        guest,
        host: scenario.host.clone(),
        deferred_frees,
        grace_periods: GracePeriods {
            mean_ns: value(metric::GP_MEAN)? as u64,
            p99_ns: value(metric::GP_P99)? as u64,
        },
        kernel_share: value(metric::KERNEL_CPU)?.clamp(0.0, 1.0 - idle_share),
        idle_share,
        descheduled: descheduled(&runs),
        missing,
    };
    // The record is not trusted either, so the profile is checked.
    Profile::from_json(&profile.to_json())
}

/// The condition of a record in which the host leaves the guest alone.
///
/// # Errors
/// There is none.
pub(super) fn undisturbed<'a>(study: &'a Study, case: Option<&str>) -> Result<&'a str> {
    let found = study.scenario.undisturbed(case);
    found.ok_or_else(|| disturbed(study, case, study.scenario.baseline()))
}

/// The host disturbs the guest under a condition, and what to take in its place.
fn disturbed(study: &Study, case: Option<&str>, condition: &str) -> BadScenario {
    let (scenario, of_case) = (&study.scenario, case.map_or(String::new(), |case| format!(", case {case}")));
    let way_out = match scenario.undisturbed(case) {
        Some(other) => format!("take --condition {other}"),
        None if scenario.cases.keys().any(|case| scenario.undisturbed(Some(case)).is_some()) => {
            "take another --case, whose host leaves the guest alone".into()
        }
        None => "record a condition without neighbours, quotas or pinning".into(),
    };
    BadScenario::new(
        "condition",
        format!("the host disturbs the guest under {condition:?}{of_case}; {way_out}"),
    )
}

/// Objects that an operation frees after a grace period: whose, how many, how large.
fn per_operation(workload: &Workload) -> Result<Vec<(String, f64, u64)>> {
    let entry = |cache: &str, number: f64, bytes: u64| (cache.to_string(), number, bytes);
    match workload {
        Workload::Memory(Memory { object_bytes, .. }) => {
            Ok(vec![entry("memory benchmark", 1.0, *object_bytes)])
        }
        // As in the simulator: 320 KiB for a network namespace, 3 KiB for another namespace, 5 KiB for the process.
        Workload::Clone(Clones { namespaces, .. }) => {
            let net = namespaces.iter().filter(|name| *name == "net").count();
            let others = namespaces.len() - net;
            Ok(vec![
                entry("network namespaces", 160.0 * net as f64, 2_048),
                entry("other namespaces", 6.0 * others as f64, 512),
                entry("processes", 10.0, 512),
            ])
        }
        // A transaction opens a file. In half of the cases it also deletes one, and otherwise it creates and opens
        // another.
        Workload::Postmark(Postmark { size_max_bytes, .. }) => Ok(vec![
            entry("filp", 1.5, 256),
            entry("shmem_inode_cache", 0.5, 760),
            entry("dentry", 0.5, 192),
            // Only files larger than a page have such nodes.
            entry("radix_tree_node", if *size_max_bytes > 4_096 { 0.5 } else { 0.0 }, 576),
        ]),
        other => {
            let problem = format!("{} frees nothing after grace periods that a record shows", other.kind());
            Err(BadScenario::new("workload.kind", problem))
        }
    }
}

/// The guest in terms of the simulator, and notes on what the simulator does not know.
fn guest(recorded: &Guest, kernel: &str) -> (Guest, Vec<String>) {
    let is = |series: &str| {
        [recorded.kernel.as_str(), kernel]
            .iter()
            .any(|name| *name == series || name.starts_with(&format!("{series}.")))
    };
    let (known, missing) = match () {
        () if is("6.12") => ("6.12", None),
        () if is("6.1") || (kernel.is_empty() && recorded.kernel.is_empty()) => ("", None),
        () => ("", Some(format!("the simulator does not know the kernel {kernel}; it uses 6.1 instead"))),
    };
    let guest = Guest {
        kernel: known.into(),
        append: String::new(),
        accelerator: Guest::default().accelerator,
        ..recorded.clone()
    };
    (guest, missing.into_iter().collect())
}

fn descheduled(runs: &[&Observation]) -> Option<Descheduled> {
    let mut all = Distribution::default();
    runs.iter().filter_map(|run| run.distributions.get(observation::VCPU_OFF)).for_each(|off| all.merge(off));
    let watched_ns: u64 = runs
        .iter()
        .map(|run| run.provenance.window_ns.saturating_mul(run.provenance.vcpus.len() as u64))
        .sum();
    let seconds = watched_ns as f64 / SECOND_NS as f64;
    Some(Descheduled {
        per_s: (watched_ns > 0).then(|| all.count() as f64 / seconds)?,
        p50_ns: all.quantile_ns(0.5)?,
        p99_ns: all.quantile_ns(0.99)?,
        max_ns: all.max_ns,
    })
}

fn source(study: &Study, case: Option<&str>, condition: &str, first: &Observation, runs: usize) -> String {
    let case = case.map_or(String::new(), |case| format!(", case {case}"));
    let kernel = match first.provenance.kernel.as_str() {
        "" => String::new(),
        kernel => format!(", Linux {kernel}"),
    };
    let ground = &first.provenance.ground;
    format!("{}{case}, condition {condition}, {runs} runs; {ground}{kernel}", study.scenario.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Provenance, VcpuTime};
    use crate::scenario::overrides;

    pub(in crate::provision) fn study(workload: &str) -> Study {
        let text = format!(
            "name = 's'\ntitle = 't'\nworkload = {{ {workload} }}\n[conditions.a]\n[conditions.b]\nhogs = 1"
        );
        let scenario = overrides::read(&text, None, &[]).unwrap();
        let run = |repetition: u32, throughput: f64| {
            let vcpus = vec![VcpuTime::default(); 2];
            let kernel = "6.12.48-cloud-amd64".to_string();
            let provenance = Provenance { window_ns: SECOND_NS, vcpus, kernel, ..Provenance::default() };
            let mut run = Observation::new("a", repetition, provenance);
            for (id, value) in [
                (metric::THROUGHPUT, throughput),
                (metric::IDLE_CPU, 0.25),
                (metric::KERNEL_CPU, 0.5),
                (metric::GP_MEAN, 4e6),
                (metric::GP_P99, 9e6),
            ] {
                run.metrics.insert(id.into(), value);
            }
            let mut off = Distribution::default();
            off.extend([2_000, 4_000]);
            run.distributions.insert(observation::VCPU_OFF.into(), off);
            run
        };
        Study::new(scenario, vec![run(0, 100.0), run(1, 300.0), run(2, 200.0)], None)
    }

    #[test]
    fn the_rate_is_that_of_the_operations_times_what_each_frees() {
        let memory = profile(&study("kind = 'memory', object_bytes = 512"), None, None).unwrap();
        assert_eq!(memory.rate(), (200.0, 200.0 * 512.0));
        assert_eq!((memory.kernel_share, memory.idle_share), (0.5, 0.25));
        assert_eq!(memory.grace_periods, GracePeriods { mean_ns: 4_000_000, p99_ns: 9_000_000 });
        assert_eq!(memory.guest.kernel, "6.12");
        let off = memory.descheduled.unwrap();
        assert_eq!((off.per_s, off.max_ns), (1.0, 4_000), "two times in each of three seconds of two vCPUs");
        let clone = profile(&study("kind = 'clone', namespaces = ['net', 'uts']"), None, None).unwrap();
        assert_eq!(clone.rate().0, 200.0 * (160.0 + 6.0 + 10.0));
        let postmark = "kind = 'postmark', files = 100, transactions = 100";
        let caches: Vec<String> = profile(&study(postmark), None, None)
            .unwrap()
            .deferred_frees
            .into_iter()
            .map(|one| one.cache)
            .collect();
        assert_eq!(caches, ["filp", "shmem_inode_cache", "dentry"], "files of one page have no tree");
    }

    #[test]
    fn a_case_whose_quotas_disturb_the_guest_has_no_profile() {
        let mut study = study("kind = 'memory'");
        let quota = "name = 's'\ntitle = 't'\nworkload = { kind = 'memory' }\n[conditions.a]\n[cases.calm]\n\
                     [cases.kept-off]\nquota = [{ vcpu = 1, percent = 20 }]";
        study.scenario = overrides::read(quota, None, &[]).unwrap();
        study.observations.iter_mut().for_each(|run| run.case = Some("kept-off".into()));
        let says = "condition: the host disturbs the guest under \"a\", case kept-off; take another --case, whose host \
                    leaves the guest alone";
        for condition in [None, Some("a")] {
            assert_eq!(profile(&study, Some("kept-off"), condition).unwrap_err().to_string(), says);
        }
        study.observations.iter_mut().for_each(|run| run.case = Some("calm".into()));
        assert!(profile(&study, Some("calm"), None).is_ok());
    }

    #[test]
    fn what_the_record_lacks_is_said() {
        let study = study("kind = 'memory'");
        let refused = |case, condition| profile(&study, case, condition).unwrap_err().to_string();
        assert!(refused(None, Some("b")).starts_with("condition: the record has no run of \"b\""));
        assert!(refused(Some("c"), None).contains("there is no case \"c\""));
        let mut disturbed = study.clone();
        let condition = disturbed.scenario.conditions.shift_remove("b").unwrap();
        disturbed.scenario.conditions.shift_insert(0, "b".into(), condition);
        assert_eq!(disturbed.scenario.baseline(), "b");
        assert!(profile(&disturbed, None, None).unwrap().source.contains("condition a, 3 runs"));
        disturbed.observations.iter_mut().for_each(|run| run.condition = "b".into());
        assert_eq!(
            profile(&disturbed, None, Some("b")).unwrap_err().to_string(),
            "condition: the host disturbs the guest under \"b\"; take --condition a"
        );
        let mut other = study.clone();
        other.scenario.workload = Workload::Wakeup(Default::default());
        assert!(
            profile(&other, None, None).unwrap_err().to_string().starts_with("workload.kind: wakeup frees")
        );
    }
}
