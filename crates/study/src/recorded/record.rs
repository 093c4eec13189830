//! A record of runs: `--json` writes it, `compare` reads it, and the documentation's tables are made from it.

use serde::{Deserialize, Serialize};

use crate::compare::attribution::{self, Attribution};
use crate::compare::comparison::Comparison;
use crate::compare::recovery::Recovery;
use crate::observe::observation::{Observation, Standing};
use crate::scenario::{GroundKind, Scenario};
use crate::statistics;

/// Version of the record's shape. It changes when a reader of the old shape would misread the new one.
pub const SCHEMA_VERSION: u32 = 1;

/// Points kept of each timeline in a record.
const TIMELINE_POINTS: usize = 300;

/// One invocation's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] at the time of writing.
    pub schema_version: u32,
    /// Program and version that wrote it.
    pub program: String,
    /// The command that makes it again.
    pub command: String,
    /// One for each scenario that was run.
    pub studies: Vec<Study>,
}

/// One scenario's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// The scenario with all overrides applied.
    pub scenario: Scenario,
    /// All runs in the order in which they were done, those that were done again included.
    pub observations: Vec<Observation>,
    /// Each condition against the baseline. Written for other programs; computed from the observations when a record
    /// is read.
    #[serde(skip_deserializing)]
    pub comparisons: Vec<Comparison>,
    /// The findings, in sentences. Written for other programs; computed from the observations when a record is shown.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub headline: Vec<String>,
    /// Why the study ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

impl Study {
    /// Compares the observations of a scenario's runs.
    pub fn new(scenario: Scenario, observations: Vec<Observation>, ended_early: Option<String>) -> Study {
        let comparisons = Comparison::all(&scenario, &observations);
        Study { scenario, observations, comparisons, headline: Vec::new(), ended_early }
    }

    /// The runs of one case, as a study of their own that can be compared.
    pub fn in_case(&self, case: &str) -> Study {
        let of_case = self.observations.iter().filter(|run| run.case.as_deref() == Some(case));
        let runs = of_case.map(|run| Observation { case: None, ..run.clone() }).collect();
        let of_scenario = self.scenario.cases.get(case).cloned().unwrap_or_default();
        let workload = of_scenario.workload.unwrap_or_else(|| self.scenario.workload.clone());
        let mut scenario = Scenario { cases: Default::default(), workload, ..self.scenario.clone() };
        let quota = &of_scenario.quota;
        scenario.conditions.values_mut().for_each(|condition| condition.quota.extend_from_slice(quota));
        Study::new(scenario, runs, None)
    }

    /// The runs of one case that count, or of a study without cases; those of sweeps are left out.
    pub fn runs_in<'a>(&'a self, case: Option<&str>) -> Vec<&'a Observation> {
        self.observations.iter().filter(|run| run.is_of_case(case, &run.condition)).collect()
    }

    /// Each case with its runs as a study of their own.
    pub fn of_cases(&self) -> Vec<(String, Study)> {
        self.scenario.cases.keys().map(|case| (case.clone(), self.in_case(case))).collect()
    }

    /// Whether runs with different values of a key all gave the same result, repetition by repetition: then the key
    /// has no effect. Only simulated runs can tell. Each group has the runs of one value, in the order of their
    /// repetitions.
    pub fn are_one_result(groups: &[Vec<&Observation>]) -> bool {
        let hashes = |group: &Vec<&Observation>| -> Vec<String> {
            let mut keyed: Vec<_> = group
                .iter()
                .map(|run| (&run.condition, run.repetition, &run.provenance.result_hash))
                .collect();
            keyed.sort_unstable();
            keyed.into_iter().map(|(.., hash)| hash.clone()).collect()
        };
        let all: Vec<Vec<String>> = groups.iter().map(hashes).collect();
        let known = all.iter().all(|hashes| !hashes.is_empty() && hashes.iter().all(|hash| !hash.is_empty()));
        known && all.len() > 1 && all.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whether it ran on the simulator.
    pub fn is_simulated(&self) -> bool {
        self.observations
            .first()
            .map_or(self.scenario.ground == GroundKind::Sim, |run| run.provenance.is_simulated())
    }

    /// One hash over the hashes of all simulated runs, in their order; `None` when there are none.
    pub fn result_hash(&self) -> Option<String> {
        let hashes = self.observations.iter().map(|run| run.provenance.result_hash.as_str());
        let all: Vec<&str> = hashes.filter(|hash| !hash.is_empty()).collect();
        (!all.is_empty()).then(|| format!("{:016x}", statistics::fnv1a(&all.join(" "))))
    }

    /// Whether that condition only serves to attribute the loss under another one, which has runs too.
    pub fn is_part(&self, condition: &str) -> bool {
        attribution::whole_of(&self.scenario, condition)
            .is_some_and(|whole| self.runs_of(whole).next().is_some())
    }

    /// The throughput that conditions cost, by cause.
    pub fn attributions(&self) -> Vec<Attribution> {
        Attribution::all(&self.scenario, &self.observations)
    }

    /// How much of the harm each remedy takes away, if the scenario compares remedies with an oracle.
    pub fn recovery(&self) -> Option<Recovery> {
        Recovery::of(&self.scenario, &self.observations)
    }

    /// Number of runs of that standing.
    pub fn count(&self, standing: Standing) -> usize {
        self.observations.iter().filter(|observation| observation.standing == standing).count()
    }

    /// The values of a metric in the runs of a condition that count.
    pub(crate) fn values_of(&self, metric: &str, condition: &str) -> Vec<f64> {
        self.runs_of(condition).filter_map(|run| run.value(metric)).collect()
    }

    /// The runs of a condition that count, without those of sweeps.
    pub fn runs_of<'a>(&'a self, condition: &'a str) -> impl Iterator<Item = &'a Observation> {
        self.observations.iter().filter(move |observation| observation.is_of(condition))
    }
}

/// A record that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// Not JSON, or not of the shape.
    #[error("not a record of this program: {0}")]
    Shape(String),
    /// Another version of the shape.
    #[error(
        "schema_version is {0}, this program reads {SCHEMA_VERSION}; make the record again with its command"
    )]
    Version(u32),
}

impl Record {
    /// A small copy for a file: only the first run of each condition that counts keeps its timelines, with fewer
    /// points and all spikes. Scalars and distributions stay as they are.
    pub fn compact(&self) -> Record {
        let mut record = self.clone();
        for study in &mut record.studies {
            let mut seen: Vec<String> = Vec::new();
            for observation in &mut study.observations {
                if !observation.is_of(&observation.condition) || seen.contains(&observation.condition) {
                    observation.timelines.clear();
                    continue;
                }
                seen.push(observation.condition.clone());
                for timeline in observation.timelines.values_mut() {
                    *timeline = timeline.downsampled(TIMELINE_POINTS);
                }
            }
        }
        record
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every type of a record has a JSON form") + "\n"
    }

    /// From JSON; the version is checked before anything else of the shape.
    pub fn from_json(text: &str) -> Result<Record, BadRecord> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let shape = |error: serde_json::Error| BadRecord::Shape(error.to_string());
        let Version { schema_version } = serde_json::from_str(text).map_err(shape)?;
        if schema_version != SCHEMA_VERSION {
            return Err(BadRecord::Version(schema_version));
        }
        let mut record: Record = serde_json::from_str(text).map_err(shape)?;
        for study in &mut record.studies {
            study.comparisons = Comparison::all(&study.scenario, &study.observations);
        }
        Ok(record)
    }
}
