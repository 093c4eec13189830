//! Whatever scenario passes the checks can be simulated: no panic, no run beyond its limits, no event without an end, and
//! memory within a bound. Scenarios are drawn from all keys that a file can have, ends of ranges included.

#[path = "../support/mod.rs"]
mod support;

mod bases;
mod draw;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use draw::Draw;
use reprieve_sim::SimError;
use reprieve_sim::ground::{self, Tapes};
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Scenario, Span, Tape};
use support::Silence;

/// Cases of the test that always runs.
const CASES: u64 = 150;
/// Cases of the other one, if `REPRIEVE_GENERATED_CASES` says nothing else.
const MANY_CASES: u64 = 10_000;
/// A run is stopped after so long. Its limits end it much earlier: what is stopped is counted, and shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// It is asked between events, of which none takes long.
const STOPS: Duration = Duration::from_secs(8);
/// A run that does not even stop then never will.
const HANGS: Duration = Duration::from_secs(60);
/// Memory of this process. The limit of a run is 256 MiB; what is loaded and what the allocator keeps comes on top.
const MEMORY_MIB: u64 = 1_024;

/// What became of the cases.
#[derive(Debug, Default)]
struct Counts {
    generated: u64,
    accepted: u64,
    refused_when_built: u64,
    ended: u64,
    cut: u64,
    stopped: u64,
    longest: Duration,
}

/// Which case runs, and since when, for who watches: its number plus one, and seconds since the start.
static RUNNING: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[test]
fn what_passes_the_checks_can_be_simulated() {
    let counts = simulate(0..CASES);
    assert!(counts.accepted * 2 > counts.generated && counts.cut > 0 && counts.ended > 0, "{counts:?}");
}

/// The same at length: `cargo test -p reprieve-sim --release --test generated -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_scenarios() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("REPRIEVE_GENERATED_FIRST").unwrap_or(0);
    let cases = number("REPRIEVE_GENERATED_CASES").unwrap_or(MANY_CASES);
    let counts = simulate(first..first + cases);
    println!("{counts:#?}\npeak memory: {} MiB", peak_mib());
}

fn simulate(cases: std::ops::Range<u64>) -> Counts {
    let start = Instant::now();
    std::thread::spawn(move || watch(start));
    let (mut counts, mut failures) = (Counts::default(), Vec::new());
    for number in cases {
        counts.generated += 1;
        let (scenario, text) = Draw::new(number).scenario();
        let Some(scenario) = scenario else { continue };
        counts.accepted += 1;
        RUNNING[1].store(start.elapsed().as_secs(), Ordering::SeqCst);
        RUNNING[0].store(number + 1, Ordering::SeqCst);
        let before_mib = peak_mib();
        let began = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| one(scenario, &mut counts)));
        RUNNING[0].store(0, Ordering::SeqCst);
        let took = began.elapsed();
        counts.longest = counts.longest.max(took);
        let problem = match ended {
            Err(_) => Some("panicked".to_string()),
            Ok(Err(problem)) => Some(problem),
            Ok(Ok(())) if took > STOPS => Some("took long to stop".into()),
            Ok(Ok(())) if peak_mib() > MEMORY_MIB.max(before_mib) => Some(format!("took {} MiB", peak_mib())),
            Ok(Ok(())) => None,
        };
        if let Some(problem) = problem {
            println!("case {number}, {took:?}: {problem}\n{text}");
            failures.push(number);
        }
    }
    assert!(failures.is_empty(), "cases {failures:?} of {counts:?}");
    counts
}

/// What `replay = 'tape'` replays: two vCPUs, off in turn.
fn tapes() -> Tapes {
    let off = |phase: u64| (0..200).map(move |at| Span::new(at * 10 + phase, at * 10 + phase + 3));
    let ms = |span: Span| Span::new(span.start_ns * MILLISECOND_NS, span.end_ns * MILLISECOND_NS);
    let both = [0, 5].map(|phase| off(phase).map(ms).collect::<Vec<Span>>());
    Tapes::from([("tape".to_string(), Arc::new(Tape::new(Span::new(0, 2 * SECOND_NS), &both)))])
}

/// Runs one scenario.
fn one(scenario: Scenario, counts: &mut Counts) -> Result<(), String> {
    let limits = scenario.limits.clone();
    let began = Instant::now();
    let late = || began.elapsed() > PATIENCE;
    let finished = ground::run(scenario, &tapes(), 1, &late, &mut Silence);
    match finished.error {
        None => {}
        Some(SimError::Bad(_)) => {
            counts.refused_when_built += 1;
            return Ok(());
        }
        Some(SimError::Interrupted) => {
            counts.stopped += 1;
            return Ok(());
        }
        Some(broken) => return Err(broken.to_string()),
    }
    let mut was_cut = false;
    for run in &finished.observations {
        was_cut |= !run.provenance.notes.is_empty();
        if run.provenance.events > limits.events {
            return Err(format!("{} events", run.provenance.events));
        }
        if limits.simulated_ms > 0 && run.provenance.window_ns > limits.simulated_ms * MILLISECOND_NS {
            return Err(format!("a window of {} ns", run.provenance.window_ns));
        }
        if let Some((id, value)) = run.metrics.iter().find(|(_, value)| !value.is_finite()) {
            return Err(format!("{id} is {value}"));
        }
    }
    let count = if was_cut { &mut counts.cut } else { &mut counts.ended };
    *count += 1;
    Ok(())
}

/// Ends the process when a run hangs: nothing else would.
fn watch(start: Instant) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let since = Duration::from_secs(RUNNING[1].load(Ordering::SeqCst));
        let number = RUNNING[0].load(Ordering::SeqCst);
        if number > 0 && start.elapsed().saturating_sub(since) > HANGS {
            // Not through what the harness captures, which ends with the process.
            let (case, text) = (number - 1, Draw::new(number - 1).scenario().1);
            _ = writeln!(std::io::stderr(), "case {case} hangs\n{text}");
            std::process::exit(1);
        }
    }
}

/// The most memory that this process has had.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_024
}
