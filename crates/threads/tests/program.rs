//! Tests of one program: its output becomes a result, or an error with its last line, and no process remains.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reprieve_linux::signals::Interrupt;
use reprieve_study::delete_free;
use reprieve_threads::error::ThreadsError;
use reprieve_threads::peer::{Peers, directory};
use reprieve_threads::program::{self, Said};
use support::{is_alive, peers};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(name: &str, arguments: &[String]) -> Result<Said, ThreadsError> {
    program::run(&peers().join(name), arguments, PATIENCE, &Interrupt::manual().unwrap(), |_| ())
}

fn error(name: &str) -> String {
    run(name, &[]).unwrap_err().to_string()
}

#[test]
fn a_failure_is_told_with_the_last_words() {
    assert_eq!(error("fails"), "fails: its own check of the freed memory failed: reader 3 met a freed node");
    assert_eq!(error("refuses"), "refuses: ended with exit status: 2: refuses: --entries does not take that");
    assert_eq!(error("dies"), "dies: ended with signal: 9 (SIGKILL)");
    assert!(error("no-such-program").contains("No such file"));
    let missing = run("lacks", &[]).unwrap_err();
    assert!(matches!(missing, ThreadsError::Missing { .. }));
    assert_eq!(missing.to_string(), "something that lacks needs is missing: this kernel has no membarrier");
}

#[test]
fn what_is_no_answer_is_said() {
    let parsed =
        |name: &str| run(name, &[]).unwrap().read(delete_free::parse::<Vec<u64>>).unwrap_err().to_string();
    assert_eq!(parsed("mute"), "mute: printed nothing");
    assert!(parsed("nonsense").starts_with("nonsense: printed no answer (expected value at line 1"));
}

#[test]
fn a_program_that_writes_too_much_is_refused_room() {
    assert_eq!(error("floods"), "floods: ended with exit status: 3: cannot write any more");
}

#[test]
fn its_cpu_time_is_readable_after_it_has_ended() {
    let (mut stat, one) = (String::new(), peers().join("one"));
    let read = |pid: i32| stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    program::run(&one, &[], PATIENCE, &Interrupt::manual().unwrap(), read).unwrap();
    assert!(stat.contains(") Z "), "{stat}");
}

/// A file for the PIDs of a program and its child.
fn pids(name: &str) -> (PathBuf, Vec<String>) {
    let file = peers().with_extension(name);
    let _ = std::fs::remove_file(&file);
    let arguments = vec!["--pids".to_string(), file.display().to_string()];
    (file, arguments)
}

fn assert_gone(file: &PathBuf) {
    let ids = std::fs::read_to_string(file).unwrap();
    assert_eq!(ids.split_whitespace().count(), 2);
    let since = Instant::now();
    // The child was killed too; init reaps it.
    while let Some(id) = ids.split_whitespace().find(|id| is_alive(id)) {
        assert!(since.elapsed() < PATIENCE, "process {id} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_that_hangs_is_killed_with_all_it_started() {
    let (file, arguments) = pids("hung");
    let (limit, interrupt) = (Duration::from_secs(3), Interrupt::manual().unwrap());
    let ended = program::run(&peers().join("hangs"), &arguments, limit, &interrupt, |_| unreachable!());
    assert_eq!(ended.unwrap_err().to_string(), "hangs: did not end within 3 s and was killed");
    assert_gone(&file);
}

#[test]
fn an_interrupt_ends_it_at_once() {
    let (file, arguments) = pids("interrupted");
    let interrupt = Interrupt::manual().unwrap();
    let raised = interrupt.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            raised.raise();
        });
        let ended =
            program::run(&peers().join("hangs"), &arguments, PATIENCE, &interrupt, |_| unreachable!());
        assert!(matches!(ended, Err(ThreadsError::Interrupted)));
    });
    assert_gone(&file);
}

#[test]
fn the_programs_are_where_they_are_said_to_be_or_beside_the_command() {
    let exe = PathBuf::from("/t/release/reprieve");
    assert_eq!(directory(Some("/p".into()), &exe), PathBuf::from("/p"));
    assert_eq!(directory(Some("".into()), &exe), PathBuf::from("/t/peers"));
    assert_eq!(directory(None, &exe), PathBuf::from("/t/peers"));
    let missing = Peers::open(&peers().join("nowhere")).unwrap_err();
    assert!(matches!(missing, ThreadsError::Missing { .. }));
    assert!(missing.to_string().ends_with("is missing: build the peers' programs with: make peers"));
}

#[test]
fn each_says_who_it_is_and_a_slip_gets_the_nearest() {
    let (peers, interrupt) = (Peers::open(peers()).unwrap(), Interrupt::manual().unwrap());
    let describe = |scheme: &str| peers.describe(scheme, &interrupt).map_err(|error| error.to_string());
    let identity = describe("two").unwrap();
    assert_eq!((identity.library.as_str(), identity.version.as_str()), ("lib-two", "1.2"));
    assert_eq!(describe("liar").unwrap_err(), "liar: says that its scheme is \"other\"");
    assert_eq!(describe("mute").unwrap_err(), "mute: printed nothing");
    let slip = describe("hepled").unwrap_err();
    assert!(
        slip.starts_with("the program of the scheme hepled in ") && slip.contains("did you mean helped? or")
    );
}
