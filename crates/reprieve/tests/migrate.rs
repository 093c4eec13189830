//! The daemon on this machine: whatever way it ends, masks are as their users have set them.

use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reprieve_linux::threads;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
const PATIENCE: Duration = Duration::from_secs(300);
const WRITER_FOLDER: &str = "REPRIEVE_TEST_WRITER_FOLDER";
const WRITER_COMM: &str = "REPRIEVE_TEST_WRITER_COMM";
const WRITTEN_BYTES: usize = 256 << 10;

/// Not a test: writes the same place of a file on a device again and again, until it is killed.
#[test]
#[ignore = "started by the tests that need it"]
fn role_writes_until_killed() {
    let (Some(folder), Some(comm)) = (std::env::var_os(WRITER_FOLDER), std::env::var_os(WRITER_COMM)) else {
        return;
    };
    let open = |flags: OFlags| {
        let mut options = std::fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).custom_flags(flags.bits() as i32);
        options.open(Path::new(&folder).join("file"))
    };
    // Not every file system does without its cache.
    let file = open(OFlags::DSYNC | OFlags::DIRECT).or_else(|_| open(OFlags::DSYNC)).unwrap();
    let buffer = vec![1; WRITTEN_BYTES + 4096];
    let aligned = &buffer[buffer.as_ptr().align_offset(4096)..][..WRITTEN_BYTES];
    std::fs::write("/proc/thread-self/comm", comm.as_encoded_bytes()).unwrap();
    std::fs::write(Path::new(&folder).join("tid.new"), threads::own_tid().to_string()).unwrap();
    std::fs::rename(Path::new(&folder).join("tid.new"), Path::new(&folder).join("tid")).unwrap();
    loop {
        file.write_all_at(aligned, 0).unwrap();
    }
}

/// A task that waits for a disk most of the time, with a name of its own; killed when dropped.
struct Writer {
    child: Child,
    tid: i32,
    /// By which no other task is touched, not even another test's writer; at most 15 bytes.
    comm: String,
    _folder: TempDir,
}

impl Writer {
    fn start() -> Writer {
        // Not in /tmp, which may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let comm = format!("w{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role_writes_until_killed", "--ignored"])
            .env(WRITER_FOLDER, folder.path())
            .env(WRITER_COMM, &comm)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        let tid = loop {
            if let Ok(tid) = std::fs::read_to_string(folder.path().join("tid")) {
                break tid.parse().unwrap();
            }
            assert!(child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE, "it does not write");
            std::thread::sleep(Duration::from_millis(5));
        };
        Writer { child, tid, comm, _folder: folder }
    }

    fn tid(&self) -> i32 {
        self.tid
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The daemon, carrying out what it decides for the writer alone. It is stopped for 25 of every 60 ms, all of it, which is to
/// it as if its vCPUs were descheduled: so it moves tasks, whatever this machine is and does.
struct Daemon {
    child: Child,
    state: PathBuf,
    metrics: PathBuf,
    pulses: Option<(Arc<AtomicBool>, std::thread::JoinHandle<()>)>,
}

impl Daemon {
    fn start(folder: &Path, writer: &Writer) -> Daemon {
        let (state, metrics) = (folder.join("state"), folder.join("metrics"));
        let _ = std::fs::remove_file(&metrics);
        let child = Command::new(PROGRAM)
            .args(["migrate", "--apply", "--no-guard", "--policy", "pull", "--json", "--only"])
            .arg(format!("comm={}", writer.comm))
            .arg("--state")
            .arg(&state)
            .arg("--metrics")
            .arg(&metrics)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (pid, stop) = (Pid::from_child(&child), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let pulses = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // Only before its parent has waited for it can the number be another's.
                for (signal, ms) in [(Signal::STOP, 25), (Signal::CONT, 35)] {
                    let _ = kill_process(pid, signal);
                    std::thread::sleep(Duration::from_millis(ms));
                }
            }
        });
        Daemon { child, state, metrics, pulses: Some((stop, pulses)) }
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Daemon) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "the daemon has ended");
            assert!(since.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Affinities changed so far.
    fn moves(&self) -> u64 {
        let text = std::fs::read_to_string(&self.metrics).unwrap_or_default();
        let done = text
            .lines()
            .find_map(|line| line.strip_prefix("reprieve_migrate_moves_total{outcome=\"done\"} "));
        done.map_or(0, |moves| moves.parse().unwrap())
    }

    /// Waits until the writer's mask is saved, and it has been moved.
    fn wait_for_moves(&mut self, writer: &Writer) {
        let saved = format!(" {} {} ", writer.pid(), writer.tid());
        self.wait_until("the writer is not found", |daemon| {
            std::fs::read_to_string(&daemon.state).is_ok_and(|text| text.contains(&saved))
        });
        self.wait_until("nothing is moved", |daemon| daemon.moves() > 0);
    }

    /// Stops it for good in a moment in which the writer is bound.
    fn stop_while_bound(&mut self, tid: i32) {
        let since = Instant::now();
        loop {
            self.end_pulses(Signal::STOP);
            // Stopped is not when the signal is sent, but when all threads have come to it.
            let state = |daemon: &Daemon| daemon.states().chars().all(|state| state == 'T');
            self.wait_until("it does not stop", state);
            if threads::affinity_set(tid).unwrap().len() == 1 {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "the writer is never bound");
            self.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(7));
            self.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(25));
            self.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// The states of its threads.
    fn states(&self) -> String {
        let root = reprieve_linux::proc::ProcRoot::default();
        let pid = self.child.id() as i32;
        let tids = root.thread_ids(pid).unwrap();
        let state = |tid| reprieve_linux::proc::TaskStatReader::open(&root, pid, tid).ok()?.read().ok();
        tids.into_iter().filter_map(|tid| Some(state(tid)?.state)).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// No more pulses; the last signal is this.
    fn end_pulses(&mut self, last: Signal) {
        if let Some((stop, pulses)) = self.pulses.take() {
            stop.store(true, Ordering::Relaxed);
            pulses.join().unwrap();
        }
        self.signal(last);
    }

    /// Ends it by a signal: its exit code, and what it said last in JSON.
    fn end(&mut self, signal: Signal) -> (Option<i32>, serde_json::Value) {
        self.end_pulses(Signal::CONT);
        self.signal(signal);
        self.wait()
    }

    fn wait(&mut self) -> (Option<i32>, serde_json::Value) {
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let last = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        (self.child.wait().unwrap().code(), last)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some((stop, pulses)) = self.pulses.take() {
            stop.store(true, Ordering::Relaxed);
            let _ = pulses.join();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CAP_SYS_NICE and two CPUs; without, the daemon must refuse.
fn is_able() -> bool {
    let root = reprieve_linux::proc::ProcRoot::default();
    let able = reprieve_linux::migrate::may_move_all(&root);
    let cpus = threads::affinity(threads::own_tid()).unwrap().len();
    if !able || cpus < 2 {
        eprintln!("skipped: may move others' tasks: {able}, CPUs: {cpus}");
    }
    able && cpus >= 2
}

#[test]
fn ended_politely_it_gives_masks_back_and_leaves_no_state() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start());
    let mask = threads::affinity_set(writer.tid()).unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(folder.path(), &writer);
        daemon.wait_for_moves(&writer);
        let (code, last) = daemon.end(signal);
        assert_eq!((code, &last["event"]), (Some(0), &"ended".into()));
        assert!(last["moves"].as_u64().unwrap() > 0, "{last}");
        assert!(!daemon.state.exists());
        assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask);
    }
    let metrics = std::fs::read_to_string(folder.path().join("metrics")).unwrap();
    assert!(metrics.contains("reprieve_migrate_tasks 1"), "{metrics}");
}

#[test]
fn a_second_signal_does_not_keep_it_from_giving_masks_back() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start());
    let mask = threads::affinity_set(writer.tid()).unwrap();
    let mut daemon = Daemon::start(folder.path(), &writer);
    daemon.wait_for_moves(&writer);
    daemon.stop_while_bound(writer.tid());
    // Both wait for it when it goes on.
    [Signal::INT, Signal::TERM, Signal::CONT].into_iter().for_each(|signal| daemon.signal(signal));
    assert_eq!(daemon.wait().0, Some(0));
    assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask);
}

#[test]
fn killed_while_a_task_is_bound_it_leaves_a_state_from_which_masks_are_given_back() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start());
    let mask = threads::affinity_set(writer.tid()).unwrap();
    for by_command in [true, false] {
        let mut daemon = Daemon::start(folder.path(), &writer);
        daemon.wait_for_moves(&writer);
        let restore = || {
            Command::new(PROGRAM)
                .args(["migrate", "--restore", "--state"])
                .arg(folder.path().join("state"))
                .output()
        };
        assert_eq!(restore().unwrap().status.code(), Some(2), "not while a daemon is at it");
        daemon.stop_while_bound(writer.tid());
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.wait().0, None);
        assert_eq!(threads::affinity_set(writer.tid()).unwrap().len(), 1, "it is left bound");
        if by_command {
            let restored = restore().unwrap();
            assert!(restored.status.success(), "{restored:?}");
        } else {
            let mut next = Daemon::start(folder.path(), &writer);
            next.end_pulses(Signal::CONT);
            next.wait_until("the next start gives nothing back", |_| {
                threads::affinity_set(writer.tid()).unwrap() == mask
            });
            assert_eq!(next.end(Signal::TERM).0, Some(0));
        }
        assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask, "by command: {by_command}");
        assert!(!daemon.state.exists());
    }
}

#[test]
fn without_permission_it_says_so_with_its_exit_code() {
    // Where nobody can become another user, there is nothing to see.
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        PROGRAM,
        "migrate",
        "--apply",
    ]);
    let Ok(output) = command.args(["--limit-s", "1", "--state", "/nonexistent/state"]).output() else {
        eprintln!("skipped: no setpriv");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv:") {
        eprintln!("skipped: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("CAP_SYS_NICE"), "{said}");
}

#[test]
fn advice_changes_nothing_and_a_record_of_it_replays() {
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start());
    let record = folder.path().join("record");
    let mask = threads::affinity_set(writer.tid()).unwrap();
    let output = Command::new(PROGRAM)
        .args(["migrate", "--json", "--limit-s", "3", "--record"])
        .arg(&record)
        .output()
        .unwrap();
    if output.status.code() == Some(69) && mask.len() < 2 {
        eprintln!("skipped: one CPU");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["event"].is_string() && value["applied"] != serde_json::Value::Bool(true), "{line}");
    }
    assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask);
    let replayed = Command::new(PROGRAM).args(["migrate", "--dry-run"]).arg(&record).output().unwrap();
    assert!(replayed.status.success(), "{replayed:?}");
}
