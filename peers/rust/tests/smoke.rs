//! Every binary of both languages, run briefly: it frees what it deletes and meets no freed node; with a planted fault
//! its readers must notice; all describe themselves and report alike. C's binaries are built first; without their
//! packages they are left out, unless REPRIEVE_TEST_REQUIRE_PEERS is set.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

const C: [&str; 15] = [
    "none",
    "liburcu-qsbr",
    "liburcu-memb",
    "liburcu-mb",
    "liburcu-bp",
    "liburcu-qsbr-sync",
    "liburcu-memb-sync",
    "dpdk-inline",
    "dpdk-background",
    "nbr",
    "nbr-batch-1",
    "debra-plus",
    "debra-plus-batch-1",
    "hazard-membarrier",
    "hazard-membarrier-batch-1",
];

const C_LOOKUPS: [&str; 2] = ["lookup-rte-hash", "lookup-rculfhash"];

/// The directory of C's binaries; none where their packages are missing.
static C_BINARIES: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers-c");
    let built = Command::new("make")
        .args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/.."), "c"])
        .arg(format!("OUT={}", directory.display()))
        .status()
        .is_ok_and(|status| status.success());
    if !built {
        assert!(std::env::var_os("REPRIEVE_TEST_REQUIRE_PEERS").is_none(), "C's peers cannot be built");
        eprintln!("C's peers cannot be built here, and are not tested");
    }
    built.then_some(directory)
});

fn with_c(rust: &[&str], c: &[&str]) -> Vec<PathBuf> {
    let c = C_BINARIES.iter().flat_map(|directory| c.iter().map(|name| directory.join(name)));
    rust.iter().map(PathBuf::from).chain(c).collect()
}

fn schemes() -> Vec<PathBuf> {
    let rust = [
        env!("CARGO_BIN_EXE_rust-none"),
        env!("CARGO_BIN_EXE_crossbeam-epoch"),
        env!("CARGO_BIN_EXE_seize"),
        env!("CARGO_BIN_EXE_haphazard"),
        env!("CARGO_BIN_EXE_crossbeam-epoch-default"),
        env!("CARGO_BIN_EXE_seize-default"),
        env!("CARGO_BIN_EXE_haphazard-default"),
        env!("CARGO_BIN_EXE_kovan"),
        env!("CARGO_BIN_EXE_kovan-batch-1"),
        env!("CARGO_BIN_EXE_sdd"),
        env!("CARGO_BIN_EXE_sdd-batch-1"),
        env!("CARGO_BIN_EXE_reprieve-restartable"),
        env!("CARGO_BIN_EXE_reprieve-chain"),
        env!("CARGO_BIN_EXE_reprieve-hazard"),
        env!("CARGO_BIN_EXE_reprieve-locked"),
        env!("CARGO_BIN_EXE_reprieve-entered"),
        env!("CARGO_BIN_EXE_reprieve-quiescent"),
        env!("CARGO_BIN_EXE_reprieve-deadline"),
        env!("CARGO_BIN_EXE_reprieve-reclaimer"),
        env!("CARGO_BIN_EXE_reprieve-fenced"),
        env!("CARGO_BIN_EXE_reprieve-adaptive"),
    ];
    with_c(&rust, &C)
}

fn lookups() -> Vec<PathBuf> {
    let rust = [
        env!("CARGO_BIN_EXE_lookup-std"),
        env!("CARGO_BIN_EXE_lookup-papaya"),
        env!("CARGO_BIN_EXE_lookup-papaya-pinned"),
        env!("CARGO_BIN_EXE_lookup-dashmap"),
        env!("CARGO_BIN_EXE_lookup-scc"),
        env!("CARGO_BIN_EXE_lookup-flurry"),
    ];
    with_c(&rust, &C_LOOKUPS)
}

fn values() -> Vec<PathBuf> {
    let rust = [
        env!("CARGO_BIN_EXE_value-bare"),
        env!("CARGO_BIN_EXE_value-arc-swap"),
        env!("CARGO_BIN_EXE_value-arc-swap-full"),
        env!("CARGO_BIN_EXE_value-arc-swap-cache"),
        env!("CARGO_BIN_EXE_value-left-right"),
        env!("CARGO_BIN_EXE_value-std-rwlock"),
        env!("CARGO_BIN_EXE_value-crossbeam-epoch"),
        env!("CARGO_BIN_EXE_value-haphazard"),
        env!("CARGO_BIN_EXE_value-reprieve"),
        env!("CARGO_BIN_EXE_value-reprieve-load"),
    ];
    rust.iter().map(PathBuf::from).collect()
}

/// The CPUs this process may use, at least one.
fn cpus() -> Vec<String> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let count = nix::sched::CpuSet::count();
    (0..count).filter(|&cpu| allowed.is_set(cpu).unwrap()).map(|cpu| cpu.to_string()).collect()
}

/// The first of them: most tests run everything there, for there may be no other.
fn cpu() -> String {
    cpus().swap_remove(0)
}

fn run(binary: &Path, arguments: &str) -> Output {
    Command::new(binary).args(arguments.split_whitespace()).output().unwrap()
}

fn run_scheme(binary: &Path, arguments: &str) -> (i32, Value) {
    run_scheme_on(binary, &cpu(), &cpu(), arguments)
}

/// The rate fills the largest batch, nbr's 32,768 nodes, within two seconds: a run ends when its deletes are freed.
fn run_scheme_on(binary: &Path, readers: &str, writer: &str, arguments: &str) -> (i32, Value) {
    let all = format!(
        "--reader-cpus {readers} --writer-cpus {writer} --warmup-ms 20 --deletes-per-s 20000 {arguments}"
    );
    run_to_report(binary, &all)
}

/// The exit code, and the line of JSON.
fn run_to_report(binary: &Path, arguments: &str) -> (i32, Value) {
    let output = run(binary, arguments);
    let line = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{}: {error}: {output:?}", binary.display()));
    (output.status.code().unwrap(), line)
}

fn keys(value: &Value, prefix: &str, into: &mut BTreeSet<String>) {
    if let Value::Object(object) = value {
        for (key, value) in object {
            let path = format!("{prefix}/{key}");
            keys(value, &path, into);
            into.insert(path);
        }
    }
}

#[test]
fn every_scheme_frees_all_and_meets_no_freed_node() {
    for binary in schemes() {
        let (code, line) =
            run_scheme(&binary, "--entries 64 --readers 3 --duration-ms 200 --section-ns 500 --stall-ms 5");
        let deletes = &line["deletes"];
        assert_eq!((code, &line["errors"]), (0, &Value::from(0)), "{line}");
        let freed = if line["kind"] == "none" { 0 } else { deletes["delivered"].as_u64().unwrap() };
        assert!(deletes["delivered"].as_u64() > Some(0), "{line}");
        assert_eq!(deletes["freed"].as_u64(), Some(freed), "{line}");
        let by: u64 = line["freed_by"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(by, freed, "{line}");
        let delay = ["p50", "p90", "p99", "max"].map(|name| line["delay_ns"][name].as_u64().unwrap());
        assert!(delay.is_sorted(), "{line}");
    }
}

/// What kind of scheme it is.
fn kind(binary: &Path) -> String {
    let line: Value = serde_json::from_slice(&run(binary, "--describe").stdout).unwrap();
    line["kind"].as_str().unwrap().to_owned()
}

/// Whether the scheme's whole look-up is a restartable section.
fn starts_again(binary: &Path) -> bool {
    kind(binary) == "restartable"
}

#[test]
fn a_free_that_does_not_wait_is_noticed() {
    let cpus = cpus();
    let (first, last) = (&cpus[0], &cpus[cpus.len() - 1]);
    for binary in schemes() {
        // Sections of a few instructions are too short to meet it here; the library's test `traverse` has long ones.
        if kind(&binary) == "restartable, copies" {
            continue;
        }
        // A writer that runs on the readers' only CPU has preempted a restartable section, which starts again and never
        // meets what was freed meanwhile: there the fault is none.
        if first == last && starts_again(&binary) {
            eprintln!("{} needs two CPUs to meet its fault, and is not tested", binary.display());
            continue;
        }
        let (code, line) = run_scheme_on(
            &binary,
            first,
            if starts_again(&binary) { last } else { first },
            "--entries 16 --readers 4 --duration-ms 300 --section-ns 2000 --fault free-at-once",
        );
        assert_eq!(code, 1, "{line}");
        assert!(line["errors"].as_u64() > Some(0), "{line}");
    }
}

#[test]
fn all_report_alike() {
    let shapes: BTreeSet<_> = schemes()
        .iter()
        .map(|binary| {
            let mut line = run_scheme(binary, "--entries 8 --readers 1 --duration-ms 1").1;
            // Not every library says what its writers' membarriers took.
            let fences = line.as_object_mut().unwrap().remove("fences");
            assert_eq!(fences.is_some(), line["library"] == "reprieve-rcu", "{line}");
            let mut shape = BTreeSet::new();
            keys(&line, "", &mut shape);
            shape
        })
        .collect();
    assert_eq!(shapes.len(), 1, "{shapes:#?}");
}

/// A fenced domain calls no membarrier, and only an adaptive one switches.
#[test]
fn what_writers_call_is_told() {
    let fences = |binary: &str| {
        run_scheme(Path::new(binary), "--entries 8 --readers 1 --duration-ms 50").1["fences"].clone()
    };
    let fenced = fences(env!("CARGO_BIN_EXE_reprieve-fenced"));
    assert_eq!((fenced["membarriers"].as_u64(), fenced["switches"].as_u64()), (Some(0), Some(0)), "{fenced}");
    let restartable = fences(env!("CARGO_BIN_EXE_reprieve-restartable"));
    assert!(restartable["membarriers"].as_u64() > Some(0), "{restartable}");
    assert!(restartable["max_ns"].as_u64() >= restartable["p50_ns"].as_u64(), "{restartable}");
    assert_eq!(restartable["switches"].as_u64(), Some(0), "{restartable}");
}

#[test]
fn all_describe_themselves_by_their_name() {
    for binary in schemes().into_iter().chain(lookups()).chain(values()) {
        let line: Value = serde_json::from_slice(&run(&binary, "--describe").stdout).unwrap();
        let fields: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["kind", "library", "scheme", "version"]);
        assert_eq!(line["scheme"].as_str(), binary.file_name().unwrap().to_str());
        assert!(line["version"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{line}");
    }
}

#[test]
fn wrong_usage_and_missing_cpus_have_their_exit_codes() {
    for binary in schemes() {
        for wrong in
            ["--entries 0", "--readers x", "--reader-cpus 1-0", "--no-such-option", "--fault other", "word"]
        {
            assert_eq!(run(&binary, wrong).status.code(), Some(2), "{} {wrong}", binary.display());
        }
        let output = run(&binary, &format!("--entries 8 --reader-cpus 1023 --writer-cpus {}", cpu()));
        assert_eq!(output.status.code(), Some(69), "{}", binary.display());
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn every_map_finds_every_key() {
    let cpu = cpu();
    for binary in lookups() {
        for threads in [1, 2] {
            let arguments =
                format!("--entries 5000 --threads {threads} --cpus {cpu} --warmup-ms 1 --duration-ms 20");
            let (code, line) = run_to_report(&binary, &arguments);
            assert_eq!((code, &line["errors"]), (0, &Value::from(0)), "{line}");
            assert!(line["lookups"].as_u64() > Some(0), "{line}");
        }
    }
}

#[test]
fn every_cell_gives_whole_values_in_their_order() {
    let cpu = cpu();
    for binary in values() {
        let arguments = format!(
            "--readers 3 --reader-cpus {cpu} --writer-cpus {cpu} --replaces-per-s 20000 --warmup-ms 1 --duration-ms 100"
        );
        let (code, line) = run_to_report(&binary, &arguments);
        assert_eq!((code, &line["errors"]), (0, &Value::from(0)), "{line}");
        assert!(line["reads"].as_u64() > Some(0), "{line}");
        assert!(line["replaces"]["delivered"].as_u64() > Some(0), "{line}");
        assert_eq!(run(&binary, "--readers 0").status.code(), Some(2), "{}", binary.display());
    }
}

#[test]
fn rounds_keep_every_line() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rounds.json");
    let cpu = cpu();
    let arguments = format!(
        "--zero value-bare --rounds 2 --json {} value-std-rwlock -- --reader-cpus {cpu} --writer-cpus {cpu} --duration-ms 5",
        file.display()
    );
    let output = run(Path::new(env!("CARGO_BIN_EXE_rounds")), &arguments);
    assert!(output.status.success(), "{output:?}");
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let schemes: Vec<_> = record["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|round| round.as_array().unwrap())
        .map(|line| line["scheme"].as_str().unwrap())
        .collect();
    assert_eq!(schemes, ["value-bare", "value-std-rwlock", "value-bare", "value-std-rwlock"]);
    let unknown = run(Path::new(env!("CARGO_BIN_EXE_rounds")), "--zero value-bare no-such-program");
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
}
