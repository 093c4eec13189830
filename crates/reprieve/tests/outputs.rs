//! Results survive an output that fails, and nothing panics because nobody listens.

use std::fs::File;
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
