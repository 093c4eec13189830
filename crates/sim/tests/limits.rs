//! Bad scenarios end in an error that names the key, and runs that take too much end cleanly with what they have.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_sim::SimError;
use reprieve_sim::ground::{self, Tapes};
use reprieve_sim::guest::env::Env;
use reprieve_sim::guest::ids::Mode;
use reprieve_sim::guest::task::{Op, Program};
use reprieve_study::scenario::BadScenario;
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Observation, metric};
use support::{Silence, read, run_on, run_one};

const SMALL: &str = "
    run = { repeat = 1, warmup_ms = 100, window_ms = 500 }
    workload = { kind = 'memory' }
    [conditions.c]
";
const POSTMARK: &str = "
    run = { repeat = 1 }
    workload = { kind = 'postmark', files = 4_000, transactions = 4_000 }
    [conditions.c]
";

const MOST_VCPUS: &str = "{ at_ms = 0, for_ms = 1, vcpus = 1_024 }";

/// Threads that read at random places of large files.
fn reader(block: &str, threads: u32, step: &str) -> String {
    format!(
        "
        run = {{ repeat = 1, warmup_ms = 0, window_ms = 500 }}
        [workload]
        kind = 'io'
        application = 'reader'
        block = {{ {block} }}
        [workload.applications.reader]
        tasks = [{{ threads = {threads}, file_mib = 2_048, steps = [{{ do = 'read', access = 'random', {step} }}] }}]
        [conditions.c]
        "
    )
}

fn rivals(rivals: u32) -> String {
    reader("page_kib = 1_024, request_kib = 1_024", 1, "kib = 1_024")
        .replace("kind = 'io'", &format!("kind = 'io'\nrivals = {rivals}"))
}

/// The error of a scenario that is refused, when it is read or when it is run.
fn refused(text: &str) -> BadScenario {
    let scenario = match read(text) {
        Ok(scenario) => scenario,
        Err(bad) => return bad,
    };
    let finished = ground::run(scenario, &Tapes::new(), 1, &|| false, &mut Silence);
    assert!(finished.observations.is_empty());
    match finished.error {
        Some(SimError::Bad(bad)) => bad,
        other => panic!("{other:?} for {text}"),
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_its_key() {
    let memory = |set: &str| format!("{set}\n{SMALL}");
    let condition = |set: &str| format!("{SMALL}\n{set}");
    let cases = [
        ("guest.vcpus", memory("guest.vcpus = 0")),
        ("guest.vcpus", memory("guest.vcpus = 65")),
        ("guest.hz", memory("guest.hz = 0")),
        ("guest.speed", memory("guest.speed = nan")),
        ("guest.speed", memory("guest.speed = 0.02")),
        ("guest.memory_mib", memory("guest.memory_mib = 64")),
        // 64 GiB take 256 MiB to simulate.
        ("guest.memory_mib", memory("guest.memory_mib = 65536\nlimits.memory_mib = 255")),
        // A TiB would fit the limit, but not the model.
        ("guest.memory_mib", memory("guest.memory_mib = 1048576\nlimits.memory_mib = 65536")),
        ("host.pcpus", memory("host.pcpus = 1025")),
        ("host.noise_ns", memory("host.noise_per_s = 1000\nhost.noise_ns = 1_000_000")),
        ("limits.events", memory("limits.events = 0")),
        ("observe.sample_hz", memory("observe.sample_hz = 0")),
        ("workload.files", POSTMARK.replace("4_000", "400_000")),
        ("workload.transactions", POSTMARK.replace("transactions = 4_000", "transactions = 0")),
        ("conditions.c.overcommit", condition("overcommit = 16.5")),
        ("conditions.c.overcommit", condition("overcommit = 0.5")),
        ("conditions.c.overcommit", condition("overcommit = nan")),
        ("conditions.c.quota.0.percent", condition("quota = [{ vcpu = 0, percent = 100.5 }]")),
        ("conditions.c.quota.0.percent", condition("quota = [{ vcpu = 0, percent = 0 }]")),
        ("conditions.c.quota", condition("quota = [{ vcpu = 2, percent = 50 }]")),
        ("conditions.c.pcpus", condition("pcpus = [2]")),
        ("conditions.c.pauses", condition("pauses = [{ vcpu = 2, at_ms = 0, for_ms = 1 }]")),
        ("conditions.c.pauses", condition("pauses = [{ vcpu = 0, at_ms = 499, for_ms = 2 }]")),
        ("conditions.c.spikes.0.vcpus", condition("spikes = [{ at_ms = 0, for_ms = 1, vcpus = 0 }]")),
        // 33 times 1,024 threads.
        ("conditions.c", condition(&format!("spikes = [{}]", [MOST_VCPUS; 33].join(",")))),
        ("conditions.c", format!("host.pcpus = 1024\n{}", condition("hogs = 64"))),
        // More than the page cache holds.
        ("workload.applications.reader.tasks", reader("cache_mib = 64", 1, "kib = 65_540")),
        // More pages than an event may look at.
        ("workload.applications.reader.tasks", reader("cache_mib = 8_192", 1, "kib = 1_048_580")),
        // Each of 17 guests takes memory of this process.
        ("guest.memory_mib", format!("guest.memory_mib = 8192\nlimits.memory_mib = 64\n{}", rivals(16))),
    ];
    for (key, text) in cases {
        let bad = refused(&text);
        assert_eq!(bad.key, key, "{bad} for {text}");
    }
}

/// The run ended early by the limit of that key, and says nothing impossible.
fn ended_by(key: &str, run: &Observation) {
    let [note] = &run.provenance.notes[..] else { panic!("{:?}", run.provenance.notes) };
    assert!(note.contains(key), "{note}");
    for (id, value) in &run.metrics {
        assert!(value.is_finite(), "{id} is {value}");
    }
    assert!(run.timelines.values().all(|timeline| timeline.values.iter().all(|value| value.is_finite())));
}

#[test]
fn a_run_of_too_many_events_ends_with_what_it_has() {
    // Within the warm-up, and within the window.
    let mut windows = Vec::new();
    for events in [1_000, 5_000, 10_000, 20_000] {
        let run = run_one(&format!("limits.events = {events}\n{SMALL}"));
        ended_by("limits.events", &run);
        assert_eq!(run.provenance.events, events);
        windows.push(run.provenance.window_ns);
    }
    assert_eq!(windows[0], 0, "it ended in the warm-up");
    assert!(windows.is_sorted() && (1..SECOND_NS / 2).contains(&windows[3]), "{windows:?}");
    let whole = run_one(POSTMARK).provenance.events;
    // While it fills, and while it works.
    for events in [1_000, whole / 2, whole - 1] {
        ended_by("limits.events", &run_one(&format!("limits.events = {events}\n{POSTMARK}")));
    }
}

#[test]
fn a_run_of_too_much_simulated_time_ends_then() {
    for (limit_ms, window_ms) in [(1, 0), (99, 0), (100, 0), (101, 1), (350, 250), (599, 499)] {
        let run = run_one(&format!("limits.simulated_ms = {limit_ms}\n{SMALL}"));
        ended_by("limits.simulated_ms", &run);
        assert_eq!(run.provenance.window_ns, window_ms * MILLISECOND_NS, "limits.simulated_ms = {limit_ms}");
    }
    let run = run_one(&format!("limits.simulated_ms = 600\n{SMALL}"));
    assert_eq!((run.provenance.window_ns, run.provenance.notes.len()), (SECOND_NS / 2, 0), "just enough");
    // While Postmark fills, and while it works.
    for limit_ms in [1, 200, 900] {
        let run = run_one(&format!("limits.simulated_ms = {limit_ms}\n{POSTMARK}"));
        ended_by("limits.simulated_ms", &run);
        assert_eq!(metric_or_0(&run, metric::THROUGHPUT) > 0.0, limit_ms == 900);
    }
}

fn metric_or_0(run: &Observation, id: &str) -> f64 {
    run.metrics.get(id).copied().unwrap_or(0.0)
}

/// Few events, each of which looks at many pages: they count as many.
#[test]
fn the_work_of_large_events_counts_as_that_of_many() {
    let limited = |threads: u32| {
        let text = reader("cache_mib = 64, read_ahead_kib = 0", threads, "kib = 65_536");
        run_one(&format!("limits.events = 100_000\nobserve.sample_hz = 100\n{text}"))
    };
    // Together they want sixteen times what the cache holds.
    let run = limited(16);
    ended_by("limits.events", &run);
    assert!(run.provenance.events < 20_000, "{} events", run.provenance.events);
}

/// Does something for ever that takes no time.
struct Idler;

impl Program for Idler {
    fn next(&mut self, _: &mut Env<'_>) -> Op {
        Op::Run { ns: 0, mode: Mode::User }
    }
}

#[test]
fn a_task_that_takes_no_time_does_not_keep_it_from_passing() {
    let mut world = support::world_of(1, 250, |guest| {
        guest.add_program(Box::new(Idler), Some(0));
    });
    assert!(!world.run_until(u64::MAX, 10_000), "what it does counts");
    assert!(world.now_ns > 0 && world.events < 1_000, "{} ns, {} events", world.now_ns, world.events);
    world.check().unwrap();
}

/// What is recorded is memory, too.
#[test]
fn a_run_that_records_too_much_ends_with_what_it_has() {
    let text = SMALL.replace("window_ms = 500", "window_ms = 3_600_000");
    let run = run_one(&format!("observe.sample_hz = 20_000\nlimits.memory_mib = 64\n{text}"));
    ended_by("limits.memory_mib", &run);
    // 64 bytes for each look, and four times that in all.
    assert!((100_000..=(64 << 20) / 256).contains(&run.provenance.samples), "{}", run.provenance.samples);
}

/// Work that would take days ends by the limit that holds when none is given.
#[test]
fn work_without_an_end_has_one() {
    let endless =
        POSTMARK.replace("files = 4_000, transactions = 4_000", "files = 2, transactions = 100_000_000");
    // Hardly any CPU time: few events in all that time.
    let run = run_one(&format!("observe.sample_hz = 10\nguest.hz = 100\nguest.speed = 0.02\n{endless}"));
    ended_by("limits.simulated_ms", &run);
    assert!(run.provenance.window_ns > 500 * SECOND_NS);
}

#[test]
fn files_that_do_not_fit_at_run_time_end_cleanly() {
    // The check trusts the mean size; files of half a MiB and more meet a guest that has not got that much.
    let run = run_one(
        "
        run = { repeat = 1 }
        guest = { memory_mib = 128 }
        workload = { kind = 'postmark', files = 180, transactions = 2_000, size_min_bytes = 1, size_max_bytes = 1_048_576 }
        [conditions.c]
        ",
    );
    assert!(metric_or_0(&run, metric::THROUGHPUT) > 0.0);
    assert!(run.provenance.notes.is_empty());
}

/// The user is asked every million events or 256 looks, and a run that he stops gives no observation.
#[test]
fn an_interrupt_ends_it_soon() {
    let long = "
        run = { repeat = 4, warmup_ms = 600_000, window_ms = 3_600_000 }
        limits.simulated_ms = 0
        workload = { kind = 'memory' }
        [conditions.c]
    ";
    for jobs in [1, 3] {
        for questions in [0, 5] {
            let asked = AtomicU64::new(0);
            let interrupted = || asked.fetch_add(1, Ordering::Relaxed) >= questions;
            let finished = ground::run(read(long).unwrap(), &Tapes::new(), jobs, &interrupted, &mut Silence);
            assert!(matches!(finished.error, Some(SimError::Interrupted)), "{:?}", finished.error);
            assert!(finished.observations.is_empty());
        }
    }
    let finished = run_on(2, SMALL);
    assert!(finished.error.is_none() && finished.observations.len() == 1);
}
