//! A writer that is killed at any moment loses nothing that was written, and leaves a ring that the next one goes on with.
//! REPRIEVE_TEST_KILLS says at how many moments.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_hindsight::{Ring, read};
use support::{LIMITS, Numbers, header, rounds, sample, seconds};

/// Where the writer writes, and the first second.
const FOLDER: &str = "REPRIEVE_TEST_RING";
const FIRST: &str = "REPRIEVE_TEST_FIRST";
/// Far beyond what a start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes as fast as it can until it is killed, and says after each sample that it is written. Does nothing in a usual run.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut second: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut ring = Ring::open(Path::new(&folder), header(), LIMITS).unwrap();
    loop {
        ring.push(&sample(second, 300)).unwrap();
        // In one write.
        eprintln!("written {second}");
        second += 1;
    }
}

/// Runs the writer for so long after its first sample; the last second that it has said to be written.
fn killed_after(folder: &Path, first: u64, time: Duration) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(FOLDER, folder).env(FIRST, first.to_string());
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut writer = command.stdout(Stdio::null()).stderr(said.reopen().unwrap()).spawn().unwrap();
    let since = Instant::now();
    while said.as_file().metadata().unwrap().len() == 0 {
        assert!(since.elapsed() < PATIENCE, "no sample is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(time);
    writer.kill().unwrap();
    writer.wait().unwrap();
    let said = std::fs::read_to_string(said.path()).unwrap();
    let whole = said.rsplit_once('\n').expect("a line, in one write").0;
    whole.lines().last().and_then(|line| line.strip_prefix("written ")).expect(&said).parse().unwrap()
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (mut numbers, mut next, mut torn) = (Numbers(2), 0, 0);
    for round in 0..rounds("REPRIEVE_TEST_KILLS", 8) {
        let last = killed_after(folder.path(), next, Duration::from_micros(numbers.below(60_000)));
        let record = read(folder.path()).unwrap();
        let found = seconds(&record);
        let newest = *found.last().unwrap();
        // The kill may come after a sample is written and before that is said.
        assert!(newest == last || newest == last + 1, "round {round}: {newest} and {last}");
        assert_eq!(record.damaged, 0, "round {round}");
        assert_eq!(found, (found[0]..=newest).collect::<Vec<u64>>(), "round {round}");
        (next, torn) = (newest + 1, record.torn);
    }
    eprintln!("{next} samples were written; {torn} torn lines are in the ring at the end");
}
