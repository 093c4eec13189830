//! Compares how long and how often vCPUs are kept from running, in real guests and in the simulator. Grace periods
//! depend on these times: where the times differ, grace periods differ too.

use crate::conform::conformance::real_and_simulated;
use crate::observe::distribution::Distribution;
use crate::observe::observation::VCPU_OFF;
use crate::recorded::record::Study;
use crate::units::SECOND_NS;

/// Times off, over all runs of a condition together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffTimes {
    /// Times a vCPU was preempted or throttled, per second of each vCPU.
    pub per_s: f64,
    /// Share of the time during which a vCPU was preempted or throttled.
    pub share: f64,
    /// Median time off, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Longest, ns.
    pub longest_ns: u64,
}

/// One condition on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct OffRow {
    /// Name of the condition.
    pub condition: String,
    /// Of the real guests.
    pub real: OffTimes,
    /// Simulated.
    pub simulated: OffTimes,
}

/// A row for each condition with such times on both sides, in the order of the real study's conditions; none unless
/// exactly one of the studies was simulated.
pub fn between(first: &Study, second: &Study) -> Vec<OffRow> {
    let Some((real, simulated)) = real_and_simulated(first, second) else { return Vec::new() };
    let row = |condition: &String| {
        let (real, simulated) = (of(real, condition)?, of(simulated, condition)?);
        Some(OffRow { condition: condition.clone(), real, simulated })
    };
    real.scenario.conditions.keys().filter_map(row).collect()
}

fn of(study: &Study, condition: &str) -> Option<OffTimes> {
    let mut all = Distribution::default();
    let mut vcpus_ns = 0.0;
    for run in study.runs_of(condition) {
        all.merge(run.distributions.get(VCPU_OFF)?);
        vcpus_ns += run.provenance.window_ns as f64 * run.provenance.vcpus.len() as f64;
    }
    if vcpus_ns == 0.0 {
        return None;
    }
    Some(OffTimes {
        per_s: all.count() as f64 / vcpus_ns * SECOND_NS as f64,
        share: all.mean_ns().unwrap_or(0.0) * all.count() as f64 / vcpus_ns,
        p50_ns: all.quantile_ns(0.5).unwrap_or(0),
        p99_ns: all.quantile_ns(0.99).unwrap_or(0),
        longest_ns: all.max_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Observation, Provenance, VcpuTime};
    use crate::scenario::GroundKind;
    use crate::scenario::overrides;

    fn study(ground: GroundKind, off_us: &[u64]) -> Study {
        let text = "name = 't'\ntitle = 't'\n[workload]\nkind = 'memory'\n[conditions.baseline]\n[conditions.hogs]\nhogs = 1";
        let scenario = overrides::read(text, Some(ground), &[]).unwrap();
        let provenance = Provenance {
            ground: format!("{ground}, 0.0.0"),
            window_ns: SECOND_NS,
            vcpus: vec![VcpuTime::default(); 2],
            ..Provenance::default()
        };
        let run = |repetition| {
            let mut out = Observation::new("baseline", repetition, provenance.clone());
            let mut times = Distribution::default();
            times.extend(off_us.iter().map(|us| us * 1000));
            out.distributions.insert(VCPU_OFF.into(), times);
            out
        };
        Study::new(scenario, vec![run(0), run(1)], None)
    }

    #[test]
    fn times_of_all_runs_are_taken_together() {
        let (real, simulated) = (study(GroundKind::Vm, &[100, 100, 700]), study(GroundKind::Sim, &[50]));
        let rows = between(&simulated, &real);
        assert_eq!(rows.len(), 1, "a condition without runs has no row");
        let OffRow { real, simulated, .. } = &rows[0];
        assert_eq!((real.per_s, simulated.per_s), (1.5, 0.5));
        assert!((real.share - 0.00045).abs() < 1e-9);
        assert_eq!((real.longest_ns, simulated.longest_ns), (700_000, 50_000));
        assert_eq!(between(&study(GroundKind::Sim, &[1]), &study(GroundKind::Sim, &[1])), []);
    }
}
