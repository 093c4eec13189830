//! What identifies a run: a hash of its scenario, its repetition and the version of the simulator. A run is a function of these, so
//! the hash says what it is, and not where in the space it stands: a baseline is one run at all values of an axis that is a key of another
//! condition. Names and labels do not change a result, and are left out.

use std::fmt;
use std::str::FromStr;

use indexmap::IndexMap;
use reprieve_study::Scenario;
use reprieve_study::scenario::{PlannedRun, RunPlan};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Identifies a run: the first 128 bits of a SHA-256. The probability that two of a million different runs have the same one is 1e-27.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Id(u128);

impl Id {
    /// Of a run, by this version of the simulator.
    pub fn of(run: &PlannedRun, simulator: &str) -> Id {
        #[derive(Serialize)]
        struct Identity<'a> {
            simulator: &'a str,
            repetition: u32,
            scenario: Scenario,
        }
        let identity = Identity { simulator, repetition: run.repetition, scenario: nameless(run) };
        let bytes = serde_json::to_vec(&identity).expect("every type of a scenario has a JSON form");
        let hash = Sha256::digest(bytes);
        Id(u128::from_be_bytes(hash[..16].try_into().expect("a hash has 32 bytes")))
    }
}

impl Id {
    /// As a number.
    pub fn number(self) -> u128 {
        self.0
    }
}

/// The scenario of a run without its names.
fn nameless(run: &PlannedRun) -> Scenario {
    let mut scenario = (*run.scenario).clone();
    scenario.name.clear();
    scenario.title.clear();
    scenario.observe.rows.clear();
    // Of the plan of the runs, only this concerns one of them.
    let RunPlan { seed, warmup_ms, window_ms, .. } = scenario.run;
    scenario.run = RunPlan { seed, warmup_ms, window_ms, ..RunPlan::default() };
    let mut condition = scenario.conditions.swap_remove(&run.condition).unwrap_or_default();
    condition.label.clear();
    scenario.conditions = IndexMap::from([(String::new(), condition)]);
    scenario
}

/// 32 hexadecimal digits.
impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Id, String> {
        let is_one = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_one);
        number.map(Id).ok_or_else(|| format!("{text:?} is not the ID of a run, 32 hexadecimal digits"))
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Id, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_study::overrides;
    use reprieve_study::scenario::space::expand::Expander;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'memory' }
        [conditions.a]
        [conditions.b]
        label = 'crowded'
        overcommit = 2.0
        [space.axes.overcommit]
        key = 'conditions.b.overcommit'
        values = [1.5, 3.0]
    ";

    fn id_in(text: &str, condition: &str, repetition: u32, overcommit: f64, simulator: &str) -> Id {
        let scenario = overrides::read(text, None, &[]).unwrap();
        let values = [reprieve_study::scenario::Setting::Number(overcommit)];
        let run = Expander::new(&scenario).unwrap().run(condition, repetition, &values).unwrap();
        Id::of(&run, simulator)
    }

    #[test]
    fn runs_that_are_the_same_have_one_id_and_others_another() {
        let id = |condition, repetition, overcommit| id_in(TEXT, condition, repetition, overcommit, "1");
        let baseline = id("a", 0, 1.5);
        assert_eq!(baseline, id("a", 0, 3.0), "the overcommit of another condition changes nothing");
        let others = [id("b", 0, 1.5), id("b", 0, 3.0), id("a", 1, 1.5), id_in(TEXT, "a", 0, 1.5, "2")];
        assert!(others.iter().all(|other| *other != baseline) && others[0] != others[1]);
        let renamed =
            TEXT.replace("'t'", "'u'").replace("crowded", "full").replace("conditions.a", "conditions.z");
        let renamed = format!("run.repeat = 9\n{renamed}");
        assert_eq!(id_in(&renamed, "z", 0, 1.5, "1"), baseline, "names change nothing");
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = id_in(TEXT, "a", 0, 1.5, "1");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "12", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
    }
}
