//! What the tests that start the real command have in common: a run with an eye on everything it makes.
//!
//! A run is told apart from all others by a variable in its environment, which its warden, its hogs and its
//! QEMU inherit, and by its pid, which begins the names of its cgroups.

// Each test program uses a part.
#![allow(dead_code)]

pub mod vm;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reprieve_linux::cgroup::{Cgroups, unique_name};
use reprieve_linux::proc::ProcRoot;
use reprieve_study::Record;
use reprieve_vm::image::{Cache, ImageOptions, prepare};
use reprieve_vm::qemu;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// What a run made must be gone within this time of its end.
const GONE_LIMIT: Duration = Duration::from_secs(20);
/// Far beyond what any stage takes.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at what a run makes.
const LOOK: Duration = Duration::from_millis(5);
/// Marks the processes of one run.
pub const MARK: &str = "REPRIEVE_TEST_RUN";

/// The right to run guests, one test at a time: two pCPUs do not hold more.
pub struct Guests {
    /// What to set `XDG_CACHE_HOME` to, if not the user's own.
    pub cache_home: Option<TempDir>,
    /// The cache itself.
    pub cache: PathBuf,
    _turn: File,
}

/// Waits for the turn and prepares the image; `None` with a message where the machine lacks what it takes
/// and `REPRIEVE_TEST_REQUIRE_IMAGE` does not forbid that.
pub fn guests() -> Option<Guests> {
    let turn = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests.lock")).unwrap();
    turn.lock().unwrap();
    let (cache_home, cache) = match std::env::var_os("REPRIEVE_TEST_CACHE") {
        Some(named) => {
            let home = tempfile::tempdir().unwrap();
            let cache = Cache::new(PathBuf::from(named)).unwrap();
            std::os::unix::fs::symlink(cache.root(), home.path().join("reprieve")).unwrap();
            (Some(home), cache)
        }
        None => (None, Cache::new(Cache::default_dir(|name| std::env::var_os(name)).unwrap()).unwrap()),
    };
    let ready = qemu::version().and_then(|_| {
        let mut progress = |step: &str| eprintln!("{step}");
        Ok(prepare(&cache, &ImageOptions::default(), &mut progress)?)
    });
    match ready {
        Ok(_) => Some(Guests { cache_home, cache: cache.root().into(), _turn: turn }),
        Err(error) if error.is_missing() && std::env::var_os("REPRIEVE_TEST_REQUIRE_IMAGE").is_none() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether this process may make CPU quotas.
pub fn quotas_are_permitted() -> bool {
    let root = ProcRoot::default();
    let tried = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?)?.close());
    tried.is_ok()
}

/// A process of a run.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    pub command: String,
}

impl Process {
    pub fn is_qemu(&self) -> bool {
        self.command.starts_with("qemu-system")
    }

    pub fn is_hog(&self) -> bool {
        self.command.ends_with(" hog")
    }

    pub fn is_warden(&self) -> bool {
        self.command.ends_with(" warden")
    }

    /// Whether this is a QEMU whose vCPUs are pinned: its guest has booted.
    pub fn is_pinned(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        tasks.flatten().any(|task| {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let one_cpu = |line: &str| {
                line.strip_prefix("Cpus_allowed_list:").is_some_and(|cpus| cpus.trim().parse::<u32>().is_ok())
            };
            read("comm").starts_with("CPU 0/") && read("status").lines().any(one_cpu)
        })
    }
}

/// How a run ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Its exit code; a panic that shows the output if it was killed instead.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}\n{}", self.status, self.stderr))
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// A run of the real command. Dropped, it kills whatever of it is still there.
pub struct Run {
    child: Child,
    mark: String,
    /// Where its outputs go; holds nothing else.
    pub folder: TempDir,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<String>>,
}

impl Run {
    /// Starts `reprieve run --on vm` with these arguments and all three outputs.
    pub fn start(guests: &Guests, arguments: &[&str]) -> Run {
        let mut command = Command::new(PROGRAM);
        if let Some(home) = &guests.cache_home {
            command.env("XDG_CACHE_HOME", home.path());
        }
        Run::start_with(command, arguments)
    }

    /// The same with a command that ends in the program.
    pub fn start_with(mut command: Command, arguments: &[&str]) -> Run {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        // Another user may have to write into it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        command
            .args(["run", "--on", "vm"])
            .args(arguments)
            .arg("--json")
            .arg(folder.path().join("record.json"));
        command.arg("--html").arg(folder.path().join("page.html"));
        command.arg("--trace").arg(folder.path().join("trace.pftrace"));
        command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr: Arc<Mutex<String>> = Arc::default();
        let (mut out, err) = (child.stdout.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
        let kept = Arc::clone(&stderr);
        let readers = vec![
            std::thread::spawn(move || {
                let mut text = String::new();
                out.read_to_string(&mut text).unwrap();
                text
            }),
            std::thread::spawn(move || {
                for line in err.lines().map_while(Result::ok) {
                    kept.lock().unwrap().push_str(&format!("{line}\n"));
                }
                String::new()
            }),
        ];
        Run { child, mark, folder, stderr, readers }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it has written to stderr.
    pub fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Its processes but the first. Where `/proc` shows a process of somebody else's no environment, it is
    /// none of ours.
    pub fn processes(&self) -> Vec<Process> {
        let mut found = processes_marked(&self.mark);
        found.retain(|process| process.pid != self.pid());
        found
    }

    /// Its cgroups.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let Ok(cgroups) = Cgroups::detect(&ProcRoot::default()) else { return Vec::new() };
        let begin = format!("reprieve-{}-", self.pid());
        names_in(&cgroups.base).filter(|(name, _)| name.starts_with(&begin)).map(|(_, path)| path).collect()
    }

    /// Everything of it that must not outlive it.
    pub fn leftovers(&self) -> Vec<String> {
        let processes = self.processes().into_iter().map(|process| format!("{process:?}"));
        let cgroups = self.cgroups().into_iter().map(|path| path.display().to_string());
        let results = ["record.json", "page.html", "trace.pftrace"];
        let files = names_in(self.folder.path()).filter(|(name, _)| !results.contains(&name.as_str()));
        processes.chain(cgroups).chain(files.map(|(name, _)| name)).collect()
    }

    /// Waits until `is_so`; a panic if the run ends before that, or does not get there.
    pub fn wait_until(&mut self, what: &str, is_so: impl Fn(&Run) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the run ended ({ended:?}) before {what}:\n{}", self.said());
            assert!(since.elapsed() < PATIENCE, "{what} took too long:\n{}", self.said());
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the end of the process itself.
    pub fn wait_end(&mut self) -> Ended {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "the run does not end:\n{}", self.said());
            std::thread::sleep(LOOK);
        };
        // Both to their ends, before anybody asks what was said.
        let texts: Vec<String> = self.readers.drain(..).map(|reader| reader.join().unwrap()).collect();
        let stdout = texts.into_iter().next().unwrap_or_default();
        Ended { status, stdout, stderr: self.said() }
    }

    /// After the end: everything it made is gone, or goes within the limit.
    pub fn assert_nothing_is_left(&self, case: &str) {
        let since = Instant::now();
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                return;
            }
            assert!(since.elapsed() < GONE_LIMIT, "{case}: left behind: {left:#?}");
            std::thread::sleep(LOOK);
        }
    }

    /// The record, if it was written.
    pub fn record(&self) -> Option<Record> {
        let text = fs::read_to_string(self.folder.path().join("record.json")).ok()?;
        Some(Record::from_json(&text).unwrap())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in self.processes() {
            let _ = kill_process(Pid::from_raw(process.pid).unwrap(), Signal::KILL);
        }
    }
}

/// Processes whose environment, or that of whoever started them, has this mark.
pub fn processes_marked(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_string();
            found.push(Process { pid, command });
        }
    }
    found
}

fn names_in(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}
