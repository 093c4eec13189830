//! What asks for too much is refused, and what asks for much is expanded in proportion.

use std::sync::Arc;

use super::*;
use crate::scenario::overrides::{self, DESERIALIZED};

const HEAD: &str = "name = 't'\ntitle = 't'\nrun.repeat = 2\nworkload = { kind = 'memory' }\n";

fn read(text: &str) -> Result<Scenario, String> {
    overrides::read(&format!("{HEAD}{text}"), None, &[]).map_err(|error| error.to_string())
}

fn conditions(count: usize) -> String {
    (0..count).map(|number| format!("[conditions.c{number}]\n")).collect()
}

/// A list of so many of these.
fn list(count: usize, of: &str) -> String {
    format!("[{}]", vec![of; count].join(","))
}

/// A run's scenario holds its own condition and no other, whatever the scenario has, and repetitions share it.
#[test]
fn a_plan_takes_memory_in_proportion_to_its_runs() {
    let sweep = "[sweeps.s]\nkey = 'conditions.c0.neighbours'\nvalues = [1, 2]\nconditions = ['c0', 'c1']\n";
    let scenario = read(&format!("{}{sweep}", conditions(500))).unwrap();
    let plan = scenario.plan().unwrap();
    assert_eq!((plan.len() as u64, scenario.points()), (scenario.runs(), 504));
    for run in &plan {
        let held: Vec<&str> = run.scenario.conditions.keys().map(String::as_str).collect();
        match (&run.sweep, run.condition.as_str()) {
            (Some(_), "c1") => assert_eq!(held, ["c1", "c0"], "and the one that the sweep sets"),
            (_, own) => assert_eq!(held, [own]),
        }
        assert!(run.scenario.sweeps.is_empty() && run.scenario.cases.is_empty());
        let shares = |other: &&crate::scenario::PlannedRun| Arc::ptr_eq(&other.scenario, &run.scenario);
        assert_eq!(plan.iter().filter(shares).count(), 2, "both repetitions");
    }
    let of = |name: &str, value: f64| {
        let is = |run: &&crate::scenario::PlannedRun| {
            run.condition == name && run.sweep.as_ref().is_some_and(|point| point.value == value)
        };
        plan.iter().find(is).unwrap().scenario.conditions["c0"].neighbours
    };
    assert_eq!((of("c0", 2.0), of("c1", 1.0)), (2, 1));
}

/// Text becomes a scenario once; what a condition sets makes one more, however many keys it has; values of sweeps one each.
#[test]
fn a_scenario_is_parsed_once() {
    let parsed = |text: &str, assignments: &[&str]| {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        let before = DESERIALIZED.get();
        overrides::read(&format!("{HEAD}{text}"), None, &assignments).unwrap();
        DESERIALIZED.get() - before
    };
    assert_eq!(parsed(&conditions(1), &[]), 1);
    assert_eq!(parsed(&conditions(400), &[]), 1);
    assert_eq!(parsed(&conditions(400), &["run.seed=2", "guest.vcpus=3", "host.hz=100"]), 2);
    let set = "set = { guest.vcpus = 3, guest.hz = 100, workload.burst = 2 }\n";
    assert_eq!(parsed(&format!("{}{set}", conditions(400)), &[]), 2);
}

#[test]
fn what_asks_for_too_much_is_refused_with_key_value_and_limit() {
    let refused = |text: &str| read(text).unwrap_err();
    let with = |text: &str| refused(&format!("[conditions.c]\n{text}"));
    assert_eq!(refused(&conditions(1_025)), "conditions: 1025 conditions are more than 1024");
    assert_eq!(
        with(&format!("pcpus = {}", list(1_025, "0"))),
        "conditions.c.pcpus: 1025 pCPUs are more than 1024"
    );
    let spike = "{ at_ms = 0, for_ms = 1, vcpus = 1 }";
    assert_eq!(
        with(&format!("spikes = {}", list(1_025, spike))),
        "conditions.c.spikes: 1025 spikes are more than 1024"
    );
    let pause = "{ vcpu = 0, at_ms = 0, for_ms = 1 }";
    assert_eq!(
        with(&format!("pauses = {}", list(4_097, pause))),
        "conditions.c.pauses: 4097 pauses are more than 4096"
    );
    let causes = list(6, "'cpu-share'");
    assert_eq!(with(&format!("without = {causes}")), "conditions.c.without: 6 causes are more than 5");
    let keys: String = (0..65).map(|number| format!("'guest.k{number}' = 1,")).collect();
    assert_eq!(with(&format!("set = {{ {keys} }}")), "conditions.c.set: 65 keys are more than 64");
    assert_eq!(
        with(&format!("label = '{}'", "x".repeat(4_097))),
        "conditions.c.label: a text of 4097 bytes is longer than 4096"
    );
    assert_eq!(
        refused(&format!("[conditions.{}]", "x".repeat(129))),
        "conditions: a name of 129 bytes is longer than 128"
    );
    let cases: String = (0..257).map(|number| format!("[cases.k{number}]\n")).collect();
    assert_eq!(with(&cases), "cases: 257 cases are more than 256");
    let attribute = format!("run.attribute={}", list(65, "'c'"));
    let error = overrides::read(&format!("{HEAD}[conditions.c]"), None, &[attribute]).unwrap_err();
    assert_eq!(error.to_string(), "run.attribute: 65 names are more than 64");
    let statements = list(1_025, "'s'");
    assert_eq!(
        with(&format!("[published]\nstatements = {statements}")),
        "published.statements: 1025 statements are more than 1024"
    );
    let sweep = |number: usize, values: usize| {
        format!("[sweeps.s{number}]\nkey = 'workload.burst'\nvalues = {}\n", list(values, "1"))
    };
    assert!(with(&sweep(0, 65)).starts_with("sweeps.s0.values: 65 values are more than 64"));
    let sweeps: String = (0..65).map(|number| sweep(number, 1)).collect();
    assert_eq!(with(&sweeps), "sweeps: 65 sweeps are more than 64");
}

/// The products are known before anything is expanded: nothing was parsed again.
#[test]
fn products_are_refused_before_they_are_expanded() {
    let refused = |text: &str| {
        let before = DESERIALIZED.get();
        let error = read(text).unwrap_err();
        assert_eq!(DESERIALIZED.get() - before, 1, "{error}");
        error
    };
    let sweeps: String = (0..10)
        .map(|number| format!("[sweeps.s{number}]\nkey = 'workload.burst'\nvalues = {}\n", list(60, "1")))
        .collect();
    assert_eq!(
        refused(&format!("{}{sweeps}", conditions(10))),
        "sweeps: conditions by cases and by values of sweeps are 6010 scenarios, more than 4096; make several \
         scenarios of it"
    );
    let cases: String =
        (0..100).map(|number| format!("[cases.k{number}]\nset = {{ guest.vcpus = 3 }}\n")).collect();
    assert!(refused(&format!("{}{cases}", conditions(60))).starts_with("conditions: conditions by cases"));
    let repeated = conditions(200);
    let text = format!("{HEAD}{repeated}").replace("repeat = 2", "repeat = 1000");
    let error = overrides::read(&text, None, &[]).unwrap_err().to_string();
    assert_eq!(error, "run.repeat: 200000 runs are more than 100000; lower it");
    // A large condition in many scenarios.
    let pauses = list(4_000, "{ vcpu = 0, at_ms = 0, for_ms = 1 }");
    let error = refused(&format!("{}pauses = {pauses}", conditions(1_000)));
    assert!(
        error.starts_with("conditions: 1000 scenarios of ") && error.contains("more than 33554432"),
        "{error}"
    );
}

#[test]
fn a_file_is_of_bounded_size() {
    let text = format!("[conditions.c]\n#{}", "x".repeat(limits::FILE_BYTES as usize));
    assert!(read(&text).unwrap_err().ends_with("bytes are more than 1048576 for a file"));
}
