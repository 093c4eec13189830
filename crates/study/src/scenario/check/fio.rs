//! The limits of the workload `fio`.

use super::refuse_if;
use crate::scenario::{Condition, Fio, Placement, Result, Scenario};

impl Scenario {
    pub(super) fn check_fio(&self, fio: &Fio) -> Result {
        let problem = format!("{} is not a power of two", fio.block_kib);
        refuse_if(!fio.block_kib.is_power_of_two(), "workload.block_kib", problem)?;
        let is_alone = fio.placement.policy().is_some() && self.guest.vcpus < 2;
        refuse_if(is_alone, "guest.vcpus", "the daemon needs two vCPUs to move tasks between")
    }

    /// Refuses what fio's guest cannot have beside it, and a placement without what it needs.
    pub(super) fn check_condition_of_fio(&self, prefix: &str, condition: &Condition) -> Result {
        let Some(fio) = self.workload.fio() else { return Ok(()) };
        let key = |key: &str| format!("{prefix}{key}");
        let problem = "fio's guest is alone; use bursts, quota or hogs";
        refuse_if(condition.neighbours > 0, key("neighbours"), problem)?;
        let problem = "fio's vCPUs are not paused; use bursts";
        refuse_if(!condition.pauses.is_empty(), key("pauses"), problem)?;
        let knows_nothing = fio.placement == Placement::Oracle && condition.bursts.is_none();
        let problem = "the oracle policy needs bursts; add some, or choose another workload.placement";
        refuse_if(knows_nothing, key("bursts"), problem)
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::GroundKind;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'fio', access = 'sequential', block_kib = 128, jobs = 4 }
        [conditions.alone]
        [conditions.disturbed]
        bursts = { for_ms = 25, every_ms = 60, jitter_ms = 10 }
        set = { workload.placement = 'oracle' }
    ";

    fn refused_on(ground: GroundKind, assignments: &[&str]) -> String {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        overrides::read(TEXT, Some(ground), &assignments).unwrap_err().to_string()
    }

    #[test]
    fn other_grounds_refuse_fio_and_bursts() {
        assert!(overrides::read(TEXT, Some(GroundKind::Vm), &[]).is_ok());
        for ground in [GroundKind::Sim, GroundKind::Xen, GroundKind::Threads] {
            assert_eq!(
                refused_on(ground, &[]),
                format!("workload.kind: fio does not run on {ground}; choose --on vm")
            );
        }
        let memory = "name='t'\ntitle='t'\nworkload={kind='memory'}\n[conditions.a]\n\
                      bursts={for_ms=1,every_ms=2}";
        assert!(overrides::read(memory, Some(GroundKind::Vm), &[]).is_ok());
        let refused = overrides::read(memory, Some(GroundKind::Sim), &[]).unwrap_err();
        assert!(refused.to_string().starts_with("conditions.a.bursts: only real guests"), "{refused}");
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_its_key() {
        for (assignment, expected) in [
            ("workload.block_kib=3", "workload.block_kib: 3 is not within 4 to 1024"),
            ("workload.block_kib=12", "workload.block_kib: 12 is not a power of two"),
            ("workload.jobs=0", "workload.jobs: 0 is not within 1 to 64"),
            ("workload.latency_us=1000001", "workload.latency_us: 1000001 is not within 0 to 1000000"),
            ("conditions.disturbed.neighbours=1", "conditions.disturbed.neighbours: fio's guest is alone"),
            ("conditions.disturbed.pauses=[{vcpu=0,at_ms=0,for_ms=1}]", "conditions.disturbed.pauses: fio's"),
            ("conditions.disturbed.bursts.for_ms=55", "conditions.disturbed.bursts.for_ms: 55 is not within"),
            ("conditions.disturbed.bursts.jitter_ms=18", "conditions.disturbed.bursts.jitter_ms: 18 is not"),
        ] {
            let refused = refused_on(GroundKind::Vm, &[assignment]);
            assert!(refused.contains(expected), "{assignment}: {refused}");
        }
        let third = TEXT.replace("jitter_ms = 10", "vcpu = 2");
        let third = overrides::read(&third, Some(GroundKind::Vm), &[]).unwrap_err().to_string();
        assert!(third.contains("conditions.disturbed.bursts.vcpu: 2 is not within 0 to 1"), "{third}");
        let alone = refused_on(GroundKind::Vm, &["workload.placement=oracle"]);
        assert!(alone.starts_with("conditions.alone.bursts: the oracle policy needs"), "{alone}");
        let small = refused_on(GroundKind::Vm, &["guest.vcpus=1"]);
        assert!(small.contains("the daemon needs two vCPUs"), "{small}");
        let unknown = refused_on(GroundKind::Vm, &["workload.placement=home"]);
        assert!(unknown.contains("workload.placement"), "{unknown}");
    }
}
