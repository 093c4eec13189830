//! What was recorded of one run is what happens to another that replays it.

mod support;

use std::sync::Arc;

use reprieve_sim::ground::{self, Tapes};
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Observation, Span, Tape, metric};
use support::{Silence, read};

const TEXT: &str = "
    [run]
    repeat = 1
    warmup_ms = 200
    window_ms = 1000
    [guest]
    memory_mib = 256
    [host]
    pcpus = 2
    [workload]
    kind = 'memory'
";

fn run(more: &str, tapes: &Tapes) -> Result<Observation, String> {
    let scenario = read(&format!("{TEXT}{more}")).unwrap_or_else(|error| panic!("{error}"));
    let mut finished = ground::run(scenario, tapes, 1, &|| false, &mut Silence);
    match finished.error {
        Some(error) => Err(error.to_string()),
        None => Ok(finished.observations.remove(0)),
    }
}

fn off(tape: &Tape) -> Vec<Vec<Span>> {
    (0..tape.vcpus()).map(|vcpu| tape.off(vcpu).collect()).collect()
}

const REPLAY: &str = "[conditions.c]\nreplay = 'recorded'";

/// vCPU 1 is throttled, hogs take turns with both: of what happened to them nothing is left out and nothing comes on top.
#[test]
fn a_replay_takes_the_same_times_away() {
    let disturbed = "[conditions.c]\nhogs = 1\nquota = [{ vcpu = 1, percent = 30, period_ms = 50 }]";
    let recorded = run(disturbed, &Tapes::new()).unwrap();
    let tape = recorded.tape.clone().unwrap();
    assert!(off(&tape).iter().all(|spans| spans.len() > 10), "{:?}", off(&tape));
    let tapes = Tapes::from([("recorded".to_string(), Arc::new(tape.clone()))]);
    let replayed = run(REPLAY, &tapes).unwrap();
    assert_eq!(off(replayed.tape.as_ref().unwrap()), off(&tape));
    assert_eq!(replayed.replayed.unwrap().source, tape.source);
    let gp = |run: &Observation| run.metrics[metric::GP_MEAN];
    let undisturbed = run("[conditions.c]", &Tapes::new()).unwrap();
    assert!(gp(&recorded) > 2.0 * gp(&undisturbed));
}

#[test]
fn what_does_not_fit_the_recording_is_refused() {
    let window = Span::new(0, SECOND_NS);
    let tapes = |vcpus: usize, window| {
        Tapes::from([("recorded".to_string(), Arc::new(Tape::new(window, &vec![Vec::new(); vcpus])))])
    };
    // Who watches a guest looks for the last time a little before the end.
    for length_ns in [SECOND_NS, 990 * MILLISECOND_NS] {
        assert!(run(REPLAY, &tapes(2, Span::new(0, length_ns))).is_ok());
    }
    let refused = |tapes: Tapes| run(REPLAY, &tapes).unwrap_err();
    assert_eq!(
        refused(tapes(3, window)),
        "conditions.c.replay: the recording is of 3 vCPUs, and guest.vcpus is 2"
    );
    let short = refused(tapes(2, Span::new(0, 989_999_999)));
    assert_eq!(
        short,
        "conditions.c.replay: the recording has 990 ms, and run.window_ms is 1000; set that to at most 999"
    );
    assert_eq!(refused(Tapes::new()), "conditions.c.replay: recorded was not read");
    let both = read(&format!("{TEXT}[conditions.c]\nreplay = 'recorded'\nhogs = 1")).unwrap_err().to_string();
    assert!(both.starts_with("conditions.c.replay: a recording holds all that the host did"), "{both}");
}
