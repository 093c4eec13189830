//! Text from scenarios, records and the command line reaches the terminal, but does not command it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a terminal obeys: it clears the screen, sets the title, forges a line, reorders a name, and hides a part of it.
const EVIL: &str = r"e\u001b[2J\u001b]0;x\u0007\nwarning: forged\u009b1m\u202egnp\u200b";
/// The same as it should be shown within a line.
const SHOWN: &str = r"e\x1b[2J\x1b]0;x\x07\nwarning: forged\x9b1m\u{202e}gnp\u{200b}";

const SCENARIO: &str = r#"
name = "EVIL"
title = "EVIL"
[run]
repeat = 2
window_ms = 500
warmup_ms = 0
[guest]
vcpus = 2
[workload]
kind = "memory"
[published]
source = "EVIL"
statements = ["EVIL"]
[conditions.baseline]
label = "EVIL"
[conditions."EVIL"]
label = "EVIL"
overcommit = 2.0
"#;

fn reprieve(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    command.args(arguments).args(files).stdin(Stdio::null()).output().unwrap()
}

/// All that was said and printed; a panic if any of it commands a terminal or begins a line of its own.
fn tame(output: &Output) -> String {
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
    let commands = |letter: char| letter.is_control() && letter != '\n';
    assert!(!text.contains(commands) && !text.contains(['\u{202e}', '\u{200b}']), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("warning: forged")), "{text}");
    text
}

#[test]
fn a_scenario_s_names_are_shown_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let (file, record) = (folder.path().join("evil.toml"), folder.path().join("record.json"));
    std::fs::write(&file, SCENARIO.replace("EVIL", EVIL)).unwrap();
    let planned = reprieve(&["run", "--dry-run"], &[&file]);
    assert_eq!(planned.status.code(), Some(0), "{planned:?}");
    assert!(tame(&planned).contains(&format!("  {SHOWN}: {SHOWN}")), "{planned:?}");
    let ran = reprieve(&["run", "--json"], &[&record, &file]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(tame(&ran).contains(&format!("{SHOWN}: run 1 of 4, ")), "{ran:?}");
    // The record is exact.
    assert!(std::fs::read_to_string(&record).unwrap().contains('\u{202e}'));
    for output in [reprieve(&["report"], &[&record]), reprieve(&["compare"], &[&record, &record])] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(tame(&output).contains(r"\x1b[2J"), "{output:?}");
    }
}

#[test]
fn what_is_wrong_with_a_file_or_an_argument_is_said_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "e\x1b[2J\nwarning: forged\u{9b}1m\u{202e}";
    let (file, key) = (folder.path().join("evil.toml"), format!("\"{EVIL}\" = 1\n"));
    let refused = |arguments: &[&str], files: &[&Path]| {
        let output = reprieve(arguments, files);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(tame(&output).contains(r"\x1b[2J"), "{output:?}");
    };
    for text in [key + SCENARIO, format!("{evil}\nwarning: forged"), SCENARIO.replace("memory", EVIL)] {
        std::fs::write(&file, text).unwrap();
        let output = reprieve(&["run", "--dry-run"], &[&file]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        tame(&output);
    }
    refused(&["run", &format!("{evil}.toml")], &[]);
    // Quoted by Rust's rules.
    assert!(tame(&reprieve(&["run", evil], &[])).contains(r"\u{1b}[2J"));
    refused(&["report"], &[&folder.path().join(evil)]);
    let said = tame(&reprieve(&["run", "rcu-memory", "--json"], &[&folder.path().join(evil).join("x")]));
    assert!(said.contains(r"\x1b[2J"), "{said}");
}
