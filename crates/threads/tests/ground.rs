//! Tests of a scenario's plan, with stub programs in place of the peers'.

mod support;

use std::path::Path;

use reprieve_linux::signals::Interrupt;
use reprieve_study::delete_free::Options;
use reprieve_study::ground::{Finished, Ground, Progress};
use reprieve_study::observation::Standing;
use reprieve_study::scenario::Scenario;
use reprieve_study::{Observation, metric, overrides};
use reprieve_threads::ground::check_machine;
use reprieve_threads::{Host, ThreadsError, ThreadsGround};
use support::peers;

/// Ignores all progress.
struct Quiet;

impl Progress for Quiet {
    fn preparing(&mut self, _: &str) {}
    fn running(&mut self, _: usize, _: usize, _: &str, _: &str) {}
    fn ended(&mut self, _: usize, _: usize, _: &Observation) {}
    fn warning(&mut self, _: &str) {}
}

fn host(peers: &Path) -> Host {
    Host::new(Interrupt::manual().unwrap(), peers.into()).unwrap()
}

/// Conditions named after their schemes, on existing CPUs.
fn scenario(schemes: &[&str], more: &[&str]) -> Scenario {
    scenario_with(schemes, more, "")
}

/// The same scenario with more text at the end of the file.
fn scenario_with(schemes: &[&str], more: &[&str], end: &str) -> Scenario {
    let cpu = host(peers()).cpus[0];
    let mut text = format!(
        "name = 't'\ntitle = 't'\nground = 'threads'\n\
         run = {{ repeat = 2, window_ms = 1500, warmup_ms = 300, foreign_cpu_limit_percent = 100, seed = 5 }}\n\
         workload = {{ kind = 'delete-free', scheme = 'one', reader_cpus = [{cpu}], writer_cpus = [{cpu}, {cpu}] }}\n"
    );
    for scheme in schemes {
        text += &format!("[conditions.{scheme}]\nset = {{ 'workload.scheme' = '{scheme}' }}\n");
    }
    text += end;
    let more: Vec<String> = more.iter().map(|text| text.to_string()).collect();
    overrides::read(&text, None, &more).unwrap()
}

fn run(scenario: Scenario) -> Finished<ThreadsError> {
    ThreadsGround(host(peers())).run(scenario, &mut Quiet)
}

#[test]
fn every_run_of_the_plan_becomes_an_observation() {
    let finished = run(scenario(&["one", "helped", "frees-nothing"], &[]));
    assert!(finished.error.is_none(), "{:?}", finished.error);
    let plan = finished.scenario.plan().unwrap();
    assert_eq!(finished.observations.len(), 6);
    for (planned, observation) in plan.iter().zip(&finished.observations) {
        assert_eq!(
            (&observation.condition, observation.repetition, observation.standing),
            (&planned.condition, planned.repetition, Standing::Accepted)
        );
        let value = |id: &str| observation.metrics.get(id).copied();
        // The stub prefixes the seed, which differs in each repetition, with a digit 4.
        let longest = 40.0 + 5.0 + f64::from(planned.repetition);
        let frees = planned.condition != "frees-nothing";
        let delays = [metric::DELAY_P50, metric::DELAY_MEAN, metric::DELAY_P99, metric::DELAY_MAX].map(value);
        assert_eq!(delays, [2000.0, 2500.5, 3000.0, longest].map(|ns| frees.then_some(ns)));
        assert_eq!(value(metric::DELIVERED), Some(4999.5));
        assert_eq!((value(metric::WRITER_COST), value(metric::LOOKUP_COST)), (Some(600.5), Some(80.25)));
        assert_eq!(value(metric::BACKGROUND_COST), (planned.condition == "helped").then_some(70.5));
        assert_eq!(value(metric::THROUGHPUT), Some(2000.0));
        assert_eq!(
            (value(metric::GARBAGE_PEAK), value(metric::GARBAGE_PEAK_BYTES)),
            (Some(7.0), Some(448.0))
        );
        let provenance = &observation.provenance;
        assert_eq!((provenance.ground.as_str(), provenance.seed), ("threads", 5));
        assert_eq!((provenance.window_ns, provenance.host_pcpus), (1_500_000_000, host(peers()).cpus.len()));
        assert!((0.0..=100.0).contains(&provenance.foreign_cpu_percent));
        let mut notes = vec![format!("lib-{} 1.2", planned.condition)];
        notes.extend((!frees).then(|| "nothing was freed within the run".to_string()));
        notes.push(format!("a note of {}", planned.condition));
        assert_eq!(provenance.notes, notes);
    }
}

#[test]
fn a_sweep_s_value_reaches_the_program() {
    let swept = scenario_with(&["one"], &[], "[sweeps.readers]\nkey = 'workload.readers'\nvalues = [3, 4]\n");
    let plan = swept.plan().unwrap();
    let finished = run(swept);
    assert!(finished.error.is_none(), "{:?}", finished.error);
    // Programs echo their options, and an answer to other options is refused.
    let asked: Vec<u64> =
        plan.iter().map(|planned| Options::of(&planned.scenario, 0).unwrap().1.readers).collect();
    assert!(asked.contains(&3) && asked.contains(&4) && asked.contains(&8));
}

#[test]
fn a_failing_program_ends_the_plan_and_what_had_finished_is_kept() {
    for (scheme, problem) in [
        ("errs", "errs: its readers met freed memory 3 times"),
        ("fails", "fails: its own check of the freed memory failed: reader 3 met a freed node"),
        ("nonsense", "nonsense: printed no answer"),
        ("deaf", "deaf: was asked for Options { entries: 4194304, readers: 8,"),
    ] {
        let finished = run(scenario(&["one", scheme], &["run.repeat=20"]));
        let error = finished.error.unwrap().to_string();
        assert!(error.starts_with(problem), "{error}");
        assert!(finished.observations.iter().all(|observation| observation.condition == "one"));
        let before = finished.scenario.plan().unwrap().iter().position(|planned| planned.condition == scheme);
        assert_eq!(Some(finished.observations.len()), before);
    }
}

#[test]
fn what_cannot_be_run_here_is_refused_before_the_first_run() {
    let refused = |scenario: &Scenario, peers: &Path| check_machine(scenario, &host(peers)).unwrap_err();
    let allowed = host(peers()).cpus;
    for key in ["reader_cpus", "writer_cpus"] {
        let elsewhere = scenario(&["one", "two"], &[&format!("workload.{key}=[{},1023]", allowed[0])]);
        let error = refused(&elsewhere, peers());
        assert!(matches!(error, ThreadsError::Scenario(_)));
        let expected = format!("workload.{key}: under ");
        let said = error.to_string();
        assert!(said.starts_with(&expected) && said.contains("may not use CPU 1023; it may use "), "{said}");
    }
    let unknown = refused(&scenario(&["one", "hepled"], &[]), peers());
    assert!(
        matches!(unknown, ThreadsError::Missing { .. })
            && unknown.to_string().contains("did you mean helped?")
    );
    let nowhere = refused(&scenario(&["one"], &[]), Path::new("/nonexistent"));
    assert!(matches!(nowhere, ThreadsError::Missing { .. }) && nowhere.to_string().contains("make peers"));
    let liar = run(scenario(&["one", "liar"], &[])).error.unwrap();
    assert_eq!(liar.to_string(), "liar: says that its scheme is \"other\"");
}
