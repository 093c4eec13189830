//! Results survive an output that fails, and nothing panics because nobody listens.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// One short run.
const SHORT: [&str; 6] = [
    "run",
    "rcu-conformance",
    "--set=run.conditions=[\"baseline\"]",
    "--set=run.window_ms=500",
    "--set=run.warmup_ms=0",
    "--repeat=1",
];

fn reprieve() -> Command {
    Command::new(env!("CARGO_BIN_EXE_reprieve"))
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_output_that_fails_loses_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let output = reprieve().args(SHORT).args(["--json=/dev/full", "--html"]).arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot write /dev/full"), "{}", said(&output));
    assert!(page.exists() && !output.stdout.is_empty());

    let json = folder.path().join("record.json");
    let mut run = reprieve();
    run.args(SHORT).args(["--html=/dev/full", "--json"]).arg(&json).stdout(full());
    let output = run.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    // The first failure is the last word, and the other one is said too.
    assert!(said(&output).contains("writing the output") && said(&output).ends_with("(os error 28)\n"));
    assert!(said(&output).contains("cannot write /dev/full"), "{}", said(&output));
    assert!(json.exists());
}

#[test]
fn nobody_needs_to_hear_what_is_said() {
    // Failing, so that there is something to say.
    for (arguments, code) in
        [(&SHORT[..], 0), (&["run", "no-such-scenario"], 2), (&["report", "/nonexistent"], 2)]
    {
        let status = reprieve().args(arguments).stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = reprieve().args(arguments).stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

/// What is wrong with an output.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    Closed,
    Full,
    ReaderGone,
}

const BROKEN: [Broken; 3] = [Broken::Closed, Broken::Full, Broken::ReaderGone];

impl Broken {
    /// The program with descriptor 1 or 2 like this.
    fn command(self, descriptor: u8) -> Command {
        if self == Broken::Closed {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$@\" {descriptor}>&-"), "sh", env!("CARGO_BIN_EXE_reprieve")]);
            return shell;
        }
        let stream = match self {
            Broken::Full => full(),
            _ => {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                writer.into()
            }
        };
        let mut command = reprieve();
        match descriptor {
            1 => command.stdout(stream),
            _ => command.stderr(stream),
        };
        command
    }
}

/// A command line for everything that can be asked for, and a folder for its files.
fn everything(folder: &Path) -> Vec<Vec<String>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let record = repository.join("records/sim-clone.json").display().to_string();
    let decisions = repository.join("crates/reprieve/tests/cmd/migrate.in/calm.record").display().to_string();
    let state = folder.join("state").display().to_string();
    let lines: [&[&str]; 22] = [
        &["list"],
        &["run", "rcu-memory", "--dry-run"],
        &SHORT,
        &["run", "no-such-scenario"],
        &["report", &record],
        &["report", "/nonexistent"],
        &["compare", &record, &record],
        &["compare", &record, "/nonexistent"],
        &["doctor"],
        &["migrate", "--dry-run"],
        &["migrate", "--dry-run", "--json"],
        &["migrate", "--dry-run", &decisions],
        &["migrate", "--dry-run", &decisions, "--json"],
        &["migrate", "--restore", "--state", &state],
        &["migrate", "--limit-s", "1", "--json"],
        &["completions", "bash"],
        &["man"],
        &["help"],
        &["run", "--help"],
        &["--version"],
        &[],
        &["no-such-verb"],
    ];
    lines.iter().map(|line| line.iter().map(ToString::to_string).collect()).collect()
}

#[test]
fn no_output_that_fails_is_a_panic_or_another_exit_code_than_the_house_s() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in everything(folder.path()) {
        let whole = reprieve().args(&arguments).output().unwrap();
        let code = whole.status.code();
        assert!(matches!(code, Some(0 | 1 | 2 | 69)), "{arguments:?}: {whole:?}");
        for broken in BROKEN {
            let output = broken.command(1).args(&arguments).stderr(Stdio::piped()).output().unwrap();
            // Only what was meant to be read and cannot be written is a failure. A closed stdout is the null device from
            // the first instruction on.
            let fails = broken == Broken::Full && !whole.stdout.is_empty();
            let expected = if fails { Some(1) } else { code };
            assert_eq!(output.status.code(), expected, "{arguments:?}, stdout {broken:?}: {}", said(&output));
            assert!(
                !fails || said(&output).contains("writing the output"),
                "{arguments:?}: {}",
                said(&output)
            );

            let output = broken.command(2).args(&arguments).stdout(Stdio::piped()).output().unwrap();
            assert_eq!(output.status.code(), code, "{arguments:?}, stderr {broken:?}");
            let is_steady = !["doctor", "migrate"].contains(&arguments.first().map_or("", String::as_str));
            assert!(!is_steady || output.stdout == whole.stdout, "{arguments:?}, stderr {broken:?}");
        }
    }
}

#[test]
fn files_are_written_whatever_becomes_of_the_streams() {
    for (broken, descriptor) in BROKEN.into_iter().flat_map(|broken| [(broken, 1), (broken, 2)]) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        let mut command = broken.command(descriptor);
        command.args(SHORT).arg("--json").arg(path("json")).arg("--html").arg(path("html"));
        command.arg("--trace").arg(path("trace")).stdin(Stdio::null()).output().unwrap();
        for name in ["json", "html", "trace"] {
            assert!(
                path(name).metadata().is_ok_and(|file| file.len() > 0),
                "{name}, {descriptor} {broken:?}"
            );
        }
        let mut report = broken.command(descriptor);
        report.arg("report").arg(path("json")).arg("--html").arg(path("again")).output().unwrap();
        assert!(path("again").exists(), "{descriptor} {broken:?}");
    }
}
