//! A writer and the daemon, for tests of `reprieve migrate --apply` on this machine.

use std::ffi::OsStr;
use std::fs::File;
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

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
pub const PATIENCE: Duration = Duration::from_secs(300);
const WRITER_FOLDER: &str = "REPRIEVE_TEST_WRITER_FOLDER";
const WRITER_COMM: &str = "REPRIEVE_TEST_WRITER_COMM";
const WRITTEN_BYTES: usize = 256 << 10;

/// What a role of a test does that is a writer: writes the same place of a file on a device.
pub struct Role {
    file: File,
    buffer: Vec<u8>,
    pub folder: PathBuf,
}

impl Role {
    /// The role that this process was started for, if it was; says which of its threads writes: this one.
    pub fn begin() -> Option<Role> {
        let (folder, comm) =
            (PathBuf::from(std::env::var_os(WRITER_FOLDER)?), std::env::var_os(WRITER_COMM)?);
        let open = |flags: OFlags| {
            let mut options = std::fs::OpenOptions::new();
            options.create(true).truncate(false).write(true).custom_flags(flags.bits() as i32);
            options.open(folder.join("file"))
        };
        // Not every file system does without its cache.
        let file = open(OFlags::DSYNC | OFlags::DIRECT).or_else(|_| open(OFlags::DSYNC)).unwrap();
        std::fs::write("/proc/thread-self/comm", comm.as_encoded_bytes()).unwrap();
        let role = Role { file, buffer: vec![1; WRITTEN_BYTES + 4096], folder };
        role.say("tid", &threads::own_tid().to_string());
        Some(role)
    }

    /// Writes once.
    pub fn write(&self) {
        let aligned = &self.buffer[self.buffer.as_ptr().align_offset(4096)..][..WRITTEN_BYTES];
        self.file.write_all_at(aligned, 0).unwrap();
    }

    /// Leaves a word for the test.
    pub fn say(&self, name: &str, text: &str) {
        let new = self.folder.join(format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder.join(name)).unwrap();
    }
}

/// A task that waits for a disk most of the time, with a name of its own; killed when dropped.
pub struct Writer {
    child: Child,
    tid: i32,
    /// By which no other task is touched, not even another test's writer; at most 15 bytes.
    pub comm: String,
    folder: TempDir,
}

impl Writer {
    /// In this role.
    pub fn start(role: &str) -> Writer {
        Writer::start_as(&[], role, &[])
    }

    /// In this role, with more in its environment, by way of another program.
    pub fn start_as(by: &[&str], role: &str, environment: &[(&str, &str)]) -> Writer {
        // Not in /tmp, which may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let comm = format!("w{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        std::os::unix::fs::chown(folder.path(), owner(by), None).unwrap();
        let mut child = command(by, std::env::current_exe().unwrap())
            .args(["--exact", role, "--ignored"])
            .env(WRITER_FOLDER, folder.path())
            .envs(environment.iter().copied())
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
        Writer { child, tid, comm, folder }
    }

    pub fn tid(&self) -> i32 {
        self.tid
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it leaves a word of that name.
    pub fn wait_for(&mut self, name: &str) -> String {
        let since = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(self.folder.path().join(name)) {
                return text;
            }
            assert!(self.child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE, "no {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves a word for it.
    pub fn tell(&self, name: &str) {
        std::fs::write(self.folder.path().join(name), "").unwrap();
    }
}

/// A program, started by way of another one.
pub fn command(by: &[&str], program: impl AsRef<OsStr>) -> Command {
    let Some((first, rest)) = by.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// To be another user, who may do nothing that others may not.
pub const AS_NOBODY: [&str; 5] =
    ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];

fn owner(by: &[&str]) -> Option<u32> {
    (by == AS_NOBODY).then_some(65_534)
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The daemon, carrying out what it decides for the writer alone. It is stopped for 25 of every 60 ms, all of it, which is to
/// it as if its vCPUs were descheduled: so it moves tasks, whatever this machine is and does.
pub struct Daemon {
    pub child: Child,
    pub state: PathBuf,
    pub metrics: PathBuf,
    pulses: Option<(Arc<AtomicBool>, std::thread::JoinHandle<()>)>,
}

impl Daemon {
    pub fn start(folder: &Path, writer: &Writer) -> Daemon {
        Daemon::start_as(&[], &[], folder, writer)
    }

    /// By way of another program, and with more arguments.
    pub fn start_as(by: &[&str], more: &[&str], folder: &Path, writer: &Writer) -> Daemon {
        std::os::unix::fs::chown(folder, owner(by), None).unwrap();
        let (state, metrics) = (folder.join("state"), folder.join("metrics"));
        let _ = std::fs::remove_file(&metrics);
        let child = command(by, PROGRAM)
            .args(["migrate", "--apply", "--no-guard", "--policy", "pull", "--json"])
            .args(more)
            .arg("--only")
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

    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Daemon) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "the daemon has ended");
            assert!(since.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Affinities changed so far.
    pub fn moves(&self) -> u64 {
        self.metric("moves_total{outcome=\"done\"}")
    }

    /// One of its metrics; 0 if it is not there yet.
    pub fn metric(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(&self.metrics).unwrap_or_default();
        let value =
            |line: &str| line.strip_prefix("reprieve_migrate_")?.strip_prefix(name)?.trim().parse().ok();
        text.lines().find_map(value).unwrap_or(0)
    }

    /// Waits until the writer's mask is saved, and it has been moved.
    pub fn wait_for_moves(&mut self, writer: &Writer) {
        let saved = format!(" {} {} ", writer.pid(), writer.tid());
        self.wait_until("the writer is not found", |daemon| {
            std::fs::read_to_string(&daemon.state).is_ok_and(|text| text.contains(&saved))
        });
        self.wait_until("nothing is moved", |daemon| daemon.moves() > 0);
    }

    /// Stops it for good in a moment in which the writer is bound.
    pub fn stop_while_bound(&mut self, tid: i32) {
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

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills its warden, and then itself: nobody is left who gives masks back.
    pub fn kill_with_warden(&mut self) {
        let (root, pid) = (reprieve_linux::proc::ProcRoot::default(), self.child.id() as i32);
        let wardens = root.children(pid, pid);
        assert_eq!(wardens.len(), 1, "its warden is its only child");
        kill_process(Pid::from_raw(wardens[0]).unwrap(), Signal::KILL).unwrap();
        self.signal(Signal::KILL);
        assert_eq!(self.wait().0, None);
    }

    /// No more pulses; the last signal is this.
    pub fn end_pulses(&mut self, last: Signal) {
        if let Some((stop, pulses)) = self.pulses.take() {
            stop.store(true, Ordering::Relaxed);
            pulses.join().unwrap();
        }
        self.signal(last);
    }

    /// Ends it by a signal: its exit code, and what it said last in JSON.
    pub fn end(&mut self, signal: Signal) -> (Option<i32>, serde_json::Value) {
        self.end_pulses(Signal::CONT);
        self.signal(signal);
        self.wait()
    }

    pub fn wait(&mut self) -> (Option<i32>, serde_json::Value) {
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
pub fn is_able() -> bool {
    let root = reprieve_linux::proc::ProcRoot::default();
    let able = reprieve_linux::migrate::may_move_all(&root);
    let cpus = threads::affinity(threads::own_tid()).unwrap().len();
    if !able || cpus < 2 {
        eprintln!("skipped: may move others' tasks: {able}, CPUs: {cpus}");
    }
    able && cpus >= 2
}
