//! Makes the conditions to simulate from the user's wishes.

use indexmap::IndexMap;

use crate::recorded::record::Study;
use crate::scenario::{
    BadScenario, Condition, GroundKind, Published, Remedy, Result, Scenario, Setting, Workload,
};
use crate::statistics;
use crate::units::MILLISECOND_NS;

/// The condition without neighbours.
pub const UNDISTURBED: &str = "undisturbed";
/// Least and largest overcommit ratio, and the most ratios in one plan.
const RATIO: (f64, f64) = (1.0, 16.0);
const RATIOS: usize = 16;
/// Inputs are varied at the largest ratio up to this one. There, effects are clear, and the simulator was checked.
const VARIED_AT: f64 = 2.0;
/// A varied input is multiplied by this.
const TIMES: i64 = 2;
/// Least and largest length of simulated windows that are to be as long as measured ones, in ms.
const WINDOW_MS: (u64, u64) = (500, 60_000);
/// The varied length of the host scheduler's slices, in us: several times the schedulers' own lengths.
const LONG_SLICE_US: i64 = 12_000;

/// The user's wishes for a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// Busy vCPUs on each pCPU, including the guest's own.
    pub ratios: Vec<f64>,
    /// What is tried, each alone; `None` for all that can be and are not [for comparison](Remedy::is_for_comparison).
    pub remedies: Option<Vec<Remedy>>,
    /// Whether to vary inputs, to see which matter.
    pub varied: bool,
    /// Repetitions of each condition.
    pub repeat: u32,
    /// Seed of the workload.
    pub seed: u64,
}

/// A condition of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The condition's name in the scenario.
    pub condition: String,
    /// Text for a table that says what the condition is.
    pub label: String,
    /// Busy vCPUs on each pCPU, if the condition is a ratio.
    pub ratio: Option<f64>,
    /// The remedy, if any.
    pub remedy: Option<Remedy>,
    /// The varied input, if any.
    pub varied: Option<Varied>,
}

/// An input that is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Varied {
    /// Name of the condition in which the input has its own value.
    pub of: String,
    /// Name of the undisturbed condition with the same varied input.
    pub undisturbed: String,
    /// Text for the input and its other value, such as `objects twice as large`.
    pub what: String,
}

/// The scenario to simulate, with a description of its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Arranged {
    /// The scenario. Its first condition is [`UNDISTURBED`].
    pub scenario: Scenario,
    /// The other conditions, and ratio 1, which is the undisturbed condition.
    pub cells: Vec<Cell>,
}

/// Arranges a plan of overcommit ratios.
///
/// # Errors
/// A ratio, a remedy or the scenario cannot be simulated, or the host has fewer pCPUs than the guest has vCPUs: then the guest
/// alone overcommits it, at every ratio.
pub fn ratios(base: &Scenario, wishes: &Wishes) -> Result<Arranged> {
    let ratios = sorted(&wishes.ratios)?;
    let mut making = Making::of(base, wishes)?;
    let vcpus = base.guest.vcpus;
    let pcpus = base.host.pcpus_for(vcpus);
    if pcpus < vcpus {
        let problem = format!(
            "{pcpus} pCPUs are fewer than the guest's {vcpus} vCPUs, so the guest alone overcommits them; plan with --set \
             host.pcpus={vcpus} or --set guest.vcpus={pcpus}"
        );
        return Err(BadScenario::new("host.pcpus", problem));
    }
    for ratio in &ratios {
        if *ratio == 1.0 {
            making.cells.push(Cell::of(UNDISTURBED, "1", Some(1.0)));
            continue;
        }
        let label = ratio.to_string();
        let condition = Condition { overcommit: *ratio, ..Condition::default() };
        making.add(&format!("ratio-{label}"), &label, Some(*ratio), condition, wishes)?;
    }
    let at = ratios.iter().rev().find(|ratio| **ratio > 1.0 && **ratio <= VARIED_AT);
    if let Some(at) = at.filter(|_| wishes.varied) {
        making.vary(&format!("ratio-{at}"))?;
    }
    making.done()
}

/// Arranges the conditions of a measured study, or of one of its cases with the quotas of that case, to be laid beside it; all
/// but the [undisturbed](Scenario::undisturbed) one. Those that the simulator cannot do are left out. Windows are as long as
/// the measured ones.
///
/// # Errors
/// None can be simulated.
pub fn as_measured(
    base: &Scenario,
    measured: &Study,
    case: Option<&str>,
    wishes: &Wishes,
) -> Result<Arranged> {
    let mut making = Making::of(base, &Wishes { remedies: Some(Vec::new()), ..wishes.clone() })?;
    let undisturbed = measured.scenario.undisturbed(case);
    let quota = case.and_then(|case| measured.scenario.cases.get(case)).map(|case| &case.quota[..]);
    // A longer window has higher peaks.
    let windows: Vec<f64> = measured.observations.iter().map(|run| run.provenance.window_ns as f64).collect();
    if let Some(window_ns) = statistics::median(&windows) {
        let window_ms = (window_ns / MILLISECOND_NS as f64).round() as u64;
        making.scenario.run.window_ms = window_ms.clamp(WINDOW_MS.0, WINDOW_MS.1);
    }
    for (name, condition) in measured.scenario.chosen().filter(|(name, _)| Some(name.as_str()) != undisturbed)
    {
        let mut plain = Condition { label: String::new(), ..condition.clone() };
        plain.quota.extend_from_slice(quota.unwrap_or_default());
        let _ = making.add(name, name, None, plain, &Wishes { remedies: Some(Vec::new()), ..wishes.clone() });
    }
    let problem = "the simulator can simulate none of the record's conditions besides the undisturbed one";
    if making.cells.is_empty() { Err(BadScenario::new("conditions", problem)) } else { making.done() }
}

/// A remedy's name in a scenario file.
pub fn remedy_name(remedy: Remedy) -> String {
    serde_json::to_value(remedy).ok().and_then(|name| name.as_str().map(String::from)).unwrap_or_default()
}

fn sorted(ratios: &[f64]) -> Result<Vec<f64>> {
    let refused = |problem: String| Err(BadScenario::new("--ratios", problem));
    if ratios.is_empty() || ratios.len() > RATIOS {
        return refused(format!("give 1 to {RATIOS} ratios, not {}", ratios.len()));
    }
    if let Some(bad) = ratios.iter().find(|ratio| !(RATIO.0..=RATIO.1).contains(*ratio)) {
        return refused(format!("{bad} is not within {} to {}", RATIO.0, RATIO.1));
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    Ok(sorted)
}

impl Cell {
    fn of(condition: &str, label: &str, ratio: Option<f64>) -> Cell {
        Cell { condition: condition.into(), label: label.into(), ratio, remedy: None, varied: None }
    }
}

/// An [`Arranged`] under construction.
struct Making {
    scenario: Scenario,
    cells: Vec<Cell>,
}

impl Making {
    /// Begins with only the undisturbed condition.
    fn of(base: &Scenario, wishes: &Wishes) -> Result<Making> {
        if !base.workload.loads_rcu() {
            let problem = format!(
                "{} frees nothing after grace periods, so there is nothing to plan",
                base.workload.kind()
            );
            return Err(BadScenario::new("workload.kind", problem));
        }
        let mut scenario = base.clone();
        scenario.ground = GroundKind::Sim;
        scenario.run.repeat = wishes.repeat;
        scenario.run.seed = wishes.seed;
        scenario.run.conditions.clear();
        scenario.run.attribute.clear();
        scenario.cases.clear();
        scenario.sweeps.clear();
        scenario.space = None;
        scenario.published = Published::default();
        scenario.conditions = IndexMap::from([(UNDISTURBED.to_string(), Condition::default())]);
        scenario.check_counts()?;
        scenario.under(UNDISTURBED)?;
        scenario.check()?;
        Ok(Making { scenario, cells: Vec::new() })
    }

    /// Adds a condition, and one more with each remedy.
    fn add(
        &mut self,
        name: &str,
        label: &str,
        ratio: Option<f64>,
        condition: Condition,
        wishes: &Wishes,
    ) -> Result {
        self.try_add(Cell::of(name, label, ratio), condition.clone())?;
        let all = || Remedy::ALL.into_iter().filter(|remedy| !remedy.is_for_comparison()).collect();
        let remedies = wishes.remedies.clone().unwrap_or_else(all);
        for remedy in &remedies {
            let cell = Cell {
                remedy: Some(*remedy),
                ..Cell::of(&format!("{name}-{}", remedy_name(*remedy)), label, ratio)
            };
            let added = self.try_add(cell, Condition { remedies: vec![*remedy], ..condition.clone() });
            // If the user did not name remedies, those that cannot be simulated in this scenario are left out.
            if wishes.remedies.is_some() {
                added?;
            }
        }
        Ok(())
    }

    /// Adds a condition, if it can be simulated.
    fn try_add(&mut self, cell: Cell, condition: Condition) -> Result {
        let mut alone = Scenario { conditions: IndexMap::new(), ..self.scenario.clone() };
        alone.conditions.insert(cell.condition.clone(), condition.clone());
        alone.check_counts()?;
        alone.check()?;
        self.scenario.conditions.insert(cell.condition.clone(), condition);
        self.cells.push(cell);
        Ok(())
    }

    /// Adds variants of this condition, each with one varied input.
    fn vary(&mut self, of: &str) -> Result {
        let whole = |value: u64| Setting::Integer((value as i64).saturating_mul(TIMES));
        let speed = Setting::Number(self.scenario.guest.speed * TIMES as f64);
        let mut inputs = vec![
            ("speed", "a guest twice as fast", "guest.speed", speed),
            ("slices", "slices of 12 ms on the host", "host.slice_us", Setting::Integer(LONG_SLICE_US)),
        ];
        if let Workload::Memory(memory) = &self.scenario.workload {
            let (size, burst) = (whole(memory.object_bytes), whole(memory.burst.into()));
            inputs.insert(0, ("bytes", "objects twice as large", "workload.object_bytes", size));
            inputs.insert(1, ("burst", "twice as many frees at a time", "workload.burst", burst));
        }
        let whole_condition = self.scenario.conditions[of].clone();
        for (name, what, key, value) in inputs {
            let set = IndexMap::from([(key.to_string(), value)]);
            let undisturbed = format!("{UNDISTURBED}-{name}");
            let varied = Some(Varied { of: of.into(), undisturbed: undisturbed.clone(), what: what.into() });
            let cell = Cell { varied, ..Cell::of(&format!("{of}-{name}"), what, None) };
            // An input that is already at the end of its range is not varied.
            if self.try_add(cell, Condition { set: set.clone(), ..whole_condition.clone() }).is_ok() {
                self.scenario.conditions.insert(undisturbed, Condition { set, ..Condition::default() });
            }
        }
        Ok(())
    }

    fn done(self) -> Result<Arranged> {
        self.scenario.check_counts()?;
        self.scenario.check()?;
        Ok(Arranged { scenario: self.scenario, cells: self.cells })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::overrides;

    fn base(more: &str) -> Scenario {
        let text =
            format!("name = 's'\ntitle = 't'\n{more}\n[conditions.a]\n[conditions.b]\nhogs = 1\nquota = []");
        overrides::read(&text, None, &[]).unwrap()
    }

    fn wishes(ratios: &[f64]) -> Wishes {
        Wishes { ratios: ratios.into(), remedies: None, varied: true, repeat: 10, seed: 7 }
    }

    #[test]
    fn every_ratio_comes_alone_and_with_each_remedy_and_one_with_other_inputs() {
        let arranged = ratios(&base("workload = { kind = 'memory' }"), &wishes(&[2.0, 1.0, 4.0])).unwrap();
        let names: Vec<&str> = arranged.scenario.conditions.keys().map(String::as_str).collect();
        assert_eq!(&names[..2], [UNDISTURBED, "ratio-2"]);
        assert!(names.contains(&"ratio-4-boost") && names.contains(&"ratio-2-bytes"), "{names:?}");
        assert!(!names.contains(&"ratio-4-bytes") && !names.contains(&"a"), "{names:?}");
        assert!(!names.contains(&"ratio-2-oracle") && !names.contains(&"ratio-2-boost-unaimed"), "{names:?}");
        assert_eq!(arranged.cells[0], Cell::of(UNDISTURBED, "1", Some(1.0)));
        assert_eq!(arranged.scenario.conditions["ratio-4"].overcommit, 4.0);
        assert_eq!((arranged.scenario.run.repeat, arranged.scenario.run.seed), (10, 7));
        // Every cell describes a condition.
        let has = |name: &String| arranged.scenario.conditions.contains_key(name);
        assert!(arranged.cells.iter().all(|cell| has(&cell.condition)));
        assert!(
            arranged
                .cells
                .iter()
                .filter_map(|cell| cell.varied.as_ref())
                .all(|varied| has(&varied.undisturbed))
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let memory = base("workload = { kind = 'memory' }");
        let refusal = |ratios: &[f64]| super::ratios(&memory, &wishes(ratios)).unwrap_err().to_string();
        assert_eq!(refusal(&[0.5]), "--ratios: 0.5 is not within 1 to 16");
        assert_eq!(refusal(&[f64::NAN]), "--ratios: NaN is not within 1 to 16");
        assert_eq!(refusal(&[]), "--ratios: give 1 to 16 ratios, not 0");
        let small = base("workload = { kind = 'memory' }\nguest.vcpus = 4\nhost.pcpus = 2");
        assert_eq!(
            super::ratios(&small, &wishes(&[2.0])).unwrap_err().to_string(),
            "host.pcpus: 2 pCPUs are fewer than the guest's 4 vCPUs, so the guest alone overcommits them; plan with --set \
             host.pcpus=4 or --set guest.vcpus=2"
        );
        let xen = base("workload = { kind = 'memory' }\nhost.scheduler = 'credit'");
        let boost = Wishes { remedies: Some(vec![Remedy::Boost]), ..wishes(&[2.0]) };
        assert!(
            super::ratios(&xen, &boost)
                .unwrap_err()
                .to_string()
                .contains("only under Linux's schedulers are there remedies")
        );
        // Not asked for, those of the host are left out; and so are slices, which Xen's schedulers do not read.
        let arranged = super::ratios(&xen, &wishes(&[2.0])).unwrap();
        assert!(
            arranged.cells.iter().all(
                |cell| cell.remedy.is_none_or(Remedy::is_of_guest) && !cell.condition.ends_with("slices")
            )
        );
        let wakeup = base("workload = { kind = 'wakeup' }");
        assert!(
            super::ratios(&wakeup, &wishes(&[2.0]))
                .unwrap_err()
                .to_string()
                .starts_with("workload.kind: wakeup frees nothing")
        );
    }

    #[test]
    fn measured_conditions_are_taken_as_they_were() {
        let measured = Study::new(base("workload = { kind = 'memory' }"), Vec::new(), None);
        let base = measured.scenario.of_case(None).unwrap();
        let arranged = as_measured(&base, &measured, None, &wishes(&[])).unwrap();
        let names: Vec<&str> = arranged.scenario.conditions.keys().map(String::as_str).collect();
        assert_eq!(names, [UNDISTURBED, "b"]);
        assert_eq!(arranged.scenario.conditions["b"].hogs, 1);
    }

    #[test]
    fn a_remedy_that_is_for_comparison_is_tried_if_it_is_asked_for() {
        let asked = Wishes { remedies: Some(vec![Remedy::Oracle]), ..wishes(&[2.0]) };
        let arranged = ratios(&base("workload = { kind = 'memory' }"), &asked).unwrap();
        assert!(arranged.scenario.conditions.contains_key("ratio-2-oracle"));
    }

    #[test]
    fn conditions_of_a_case_have_its_quotas_and_none_is_undisturbed() {
        let more = "workload = { kind = 'memory' }\n[cases.kept-off]\nquota = [{ vcpu = 1, percent = 20 }]";
        let measured = Study::new(base(more), Vec::new(), None);
        let base = measured.scenario.of_case(Some("kept-off")).unwrap();
        let arranged = as_measured(&base, &measured, Some("kept-off"), &wishes(&[])).unwrap();
        let quotas: Vec<(&str, usize)> = arranged
            .scenario
            .conditions
            .iter()
            .map(|(name, condition)| (name.as_str(), condition.quota.len()))
            .collect();
        assert_eq!(quotas, [(UNDISTURBED, 0), ("a", 1), ("b", 1)]);
    }
}
