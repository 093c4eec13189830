//! What is handed in may be a pipe; nothing waits for ever for its other end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, mknodat};
use tempfile::TempDir;

/// Far beyond what is needed by a command that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// A writer that says nothing for so long is told of.
const SILENCE: Duration = Duration::from_secs(4);
const SCENARIO: &str =
    "name = 'own'\ntitle = 'from a pipe'\n[workload]\nkind = 'memory'\n[conditions.baseline]\n";

fn start(arguments: &[&str], file: &Path, stdin: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    command.args(arguments).arg(file).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Its output, of which there is little; a panic if it hangs.
fn end(mut child: Child) -> Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fifo(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
    (folder, path)
}

#[test]
fn a_fifo_without_its_other_end_is_refused() {
    let (_folder, path) = fifo("fifo.toml");
    for arguments in [&["run"][..], &["report"], &["run", "rcu-memory", "--json"]] {
        let output = end(start(arguments, &path, Stdio::null()));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains("; start its "), "{output:?}");
    }
}

#[test]
fn a_fifo_that_somebody_writes_is_read() {
    let (_folder, path) = fifo("fifo.toml");
    let theirs = path.clone();
    // Waits for its reader, and writes when it has one.
    let writer = std::thread::spawn(move || std::fs::write(theirs, SCENARIO).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let output = end(start(&["run", "--dry-run"], &path, Stdio::null()));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("own: from a pipe\n"), "{output:?}");
    writer.join().unwrap();
}

/// As a shell's `<(...)` is: a pipe by the number of its descriptor.
#[test]
fn a_silent_writer_is_waited_for_and_told_of() {
    for silence in [Duration::ZERO, SILENCE] {
        let mut child = start(&["run", "--dry-run"], Path::new("/dev/fd/0"), Stdio::piped());
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&SCENARIO.as_bytes()[..20]).unwrap();
        std::thread::sleep(silence);
        stdin.write_all(&SCENARIO.as_bytes()[20..]).unwrap();
        drop(stdin);
        let output = end(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("own: from a pipe\n"), "{output:?}");
        let told = said(&output).matches("/dev/fd/0: waiting for its writer").count();
        assert_eq!(told, usize::from(!silence.is_zero()), "{output:?}");
    }
    // One that has said nothing at all, and has gone.
    let mut child = start(&["report"], Path::new("/dev/fd/0"), Stdio::piped());
    drop(child.stdin.take());
    let output = end(child);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_fifo_that_somebody_reads_is_written() {
    let (_folder, path) = fifo("fifo");
    let theirs = path.clone();
    let reader = std::thread::spawn(move || std::fs::read(theirs).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let short = ["run", "rcu-conformance", "--set=run.conditions=[\"baseline\"]", "--set=run.window_ms=500"];
    let output = end(start(&[&short[..], &["--repeat=1", "--json"]].concat(), &path, Stdio::null()));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(reader.join().unwrap().ends_with(b"}\n"));
}
