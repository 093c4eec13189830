//! `reprieve profile` and `reprieve plan`: from a recorded run to an estimate, the same each time; bad input is refused before
//! anything is simulated.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use reprieve_study::provision::{Profile, Provision};
use reprieve_study::{Record, metric};
use tempfile::TempDir;

/// Short windows of one ratio.
const SHORT: [&str; 7] = [
    "--ratios=2",
    "--remedies=none",
    "--no-inputs",
    "--repeat=2",
    "--quiet",
    "--set=run.window_ms=500",
    "--set=run.warmup_ms=0",
];

fn reprieve(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reprieve")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A short simulated record, and the profile of its baseline.
fn recorded(folder: &TempDir) -> (PathBuf, PathBuf) {
    let [record, profile] = ["record.json", "profile.json"].map(|name| folder.path().join(name));
    let run = [
        "run",
        "rcu-conformance",
        "--set=run.conditions=[\"baseline\", \"quota-20-100\"]",
        "--set=run.window_ms=500",
    ];
    let output = reprieve(&[&run[..], &["--repeat=2", "--quiet", "--json", text(&record)]].concat());
    assert!(output.status.success(), "{output:?}");
    let output = reprieve(&["profile", "--from", text(&record), "--output", text(&profile)]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    (record, profile)
}

#[test]
fn a_record_gives_a_profile_and_a_profile_the_same_plan_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let (record, profile) = recorded(&folder);
    let read = Profile::from_json(&std::fs::read_to_string(&profile).unwrap()).unwrap();
    assert_eq!((read.guest.vcpus, read.guest.speed, read.deferred_frees[0].bytes), (2, 2.4, 1_024));
    let study = Record::from_json(&std::fs::read_to_string(&record).unwrap()).unwrap().studies.remove(0);
    let rates: Vec<f64> = study.runs_of("baseline").filter_map(|run| run.value(metric::THROUGHPUT)).collect();
    assert!(rates[0].min(rates[1]) <= read.rate().0 && read.rate().0 <= rates[0].max(rates[1]));

    let [one, two] = ["1", "2"].map(|jobs| {
        let [json, page] = ["json", "html"].map(|kind| folder.path().join(format!("{jobs}.{kind}")));
        let outputs = ["--jobs", jobs, "--json", text(&json), "--html", text(&page), "--budget=512MiB"];
        let output = reprieve(&[&["plan", text(&profile)][..], &SHORT, &outputs].concat());
        assert!(output.status.success(), "{output:?}");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("<svg") && page.contains("reprieve plan"), "{page}");
        (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(json).unwrap())
    });
    assert!(one == two, "{}\n{}", one.0, two.0);
    let answer: Provision = serde_json::from_str(&one.1).unwrap();
    assert_eq!(answer.rows.iter().map(|row| row.condition.as_str()).collect::<Vec<_>>(), ["ratio-2"]);
    let fitted =
        "extrapolates: 2 windows are too few to count p99.9, so its bound is fitted; with fewer than 10";
    assert!(answer.flags.iter().any(|flag| flag.starts_with(fitted)), "{:?}", answer.flags);
    let is_unlike_the_check =
        |flag: &String| flag.contains("guests of the check") || flag.contains("ratios above");
    assert!(
        !answer.flags.iter().any(is_unlike_the_check),
        "the guest is that of the check: {:?}",
        answer.flags
    );
    assert!(answer.rows[0].extra[2].upper >= answer.rows[0].extra_largest_bytes);
    assert!(
        one.0.starts_with("With 512 MiB to spare this VM is safe up to 2 busy vCPUs per pCPU"),
        "{}",
        one.0
    );
    let other = reprieve(&[&["plan", text(&profile)][..], &SHORT, &["--seed=2"]].concat());
    assert!(
        !String::from_utf8(other.stdout).unwrap().contains(&answer.result_hash),
        "the seed changes nothing"
    );
}

#[test]
fn a_measured_peak_above_the_bound_fails_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let (path, profile) = recorded(&folder);
    let mut record = Record::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for run in record.studies[0].observations.iter_mut().filter(|run| run.condition == "quota-20-100") {
        // More than the guest has.
        run.metrics.insert(metric::FOOTPRINT_PEAK.into(), 1e12);
    }
    std::fs::write(&path, record.to_json()).unwrap();
    let output = reprieve(&["plan", text(&profile), "--against", text(&path), "--repeat=2", "--quiet"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said(&output).ends_with("reprieve: 1 measured condition(s) do not agree with the plan\n"),
        "{output:?}"
    );
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("p95 is off, and the measured peak is higher"), "{out}");
}

#[test]
fn a_dry_run_says_what_it_would_do_and_how_long() {
    let output =
        reprieve(&["plan", "rcu-conformance", "--dry-run", "--ratios=1,2", "--repeat=10", "--jobs=1"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{out}");
    assert!(
        out.starts_with("plan for scenario rcu-conformance\n  undisturbed\n  ratio-2\n  ratio-2-boost\n"),
        "{out}"
    );
    assert!(out.contains(" runs, 1 at a time: about "), "{out}");
}

#[test]
fn bad_input_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (_, profile) = recorded(&folder);
    let good = std::fs::read_to_string(&profile).unwrap();
    let file = folder.path().join("bad.json");
    let refused = |arguments: &[&str]| {
        let output = reprieve(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        said(&output)
    };
    for (from, to, says) in [
        ("\"profile_version\": 1", "\"profile_version\": 7", "profile_version: is 7, this program reads 1"),
        (
            "\"bytes\": 1024",
            "\"bytes\": 99999999999",
            "deferred_frees[0].bytes: 99999999999 bytes are not within",
        ),
        ("\"kernel_share\": ", "\"kernel_share\": 7", "kernel_share: "),
        ("\"vcpus\": 2", "\"vcpus\": 0", "guest.vcpus: 0 is not within 1 to 64"),
        ("\"vcpus\": 2", "\"vcpus\": 1000000", "guest.vcpus: 1000000 is not within 1 to 64"),
        ("\"memory_mib\": 256", "\"memory_mib\": 0", "guest.memory_mib: 0 is not within"),
        ("\"speed\": 2.4", "\"speed\": NaN", "profile: expected value"),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&file, good.replace(from, to)).unwrap();
        let refusal = refused(&["plan", text(&file)]);
        assert!(refusal.contains(says), "{to}: {refusal}");
    }
    std::fs::write(&file, vec![b' '; 2 << 20]).unwrap();
    assert!(refused(&["plan", text(&file)]).contains("more than 1 MiB are too many for a profile"));
    for (arguments, says) in [
        (&["--ratios=0.5"][..], "--ratios: 0.5 is not within 1 to 16"),
        (&["--ratios=NaN"], "--ratios: NaN is not within 1 to 16"),
        (&["--remedies=prayer"], "--remedies: there is no \"prayer\"; there are boost"),
        (&["--budget=512"], "write it with a unit"),
        (&["--risk=99.9"], "write it as p95 or p99.9"),
        (&["--repeat=1"], "1 is not in 2..=1000"),
        (&["--set=guest.vcpu=4"], "guest.vcpu: there is no such key"),
        (&["--case=x"], "--case: a profile has none"),
        (&["--against=none.json"], "none.json: No such file"),
    ] {
        let refusal = refused(&[&["plan", text(&profile)][..], arguments].concat());
        assert!(refusal.contains(says), "{arguments:?}: {refusal}");
    }
    assert!(refused(&["plan", "rcu-plan"]).contains("cases: choose one with --case: full-1k"));
    assert!(refused(&["plan", "xen-wakeup"]).contains("frees nothing after grace periods"));
    assert!(refused(&["profile", "--from", "none.json"]).contains("none.json: No such file"));
}
