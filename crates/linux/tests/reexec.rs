//! Tests that need more than one process: warden, hogs, signals. This program plays all roles itself.
//!
//! It does without the standard harness, since it must be able to start itself in another role.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::boost::Group;
use reprieve_linux::cgroup::{Cgroups, Quota, unique_name};
use reprieve_linux::hogs::{self, Hog};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::threads;
use reprieve_linux::warden::{self, Guarded, Warden};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

/// Far longer than cleaning up takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["role-warden"] => warden::run(std::io::stdin(), &ProcRoot::default()),
        ["role-main", directory] => play_main(Path::new(directory)),
        ["role-lender", directory] => play_lender(Path::new(directory)),
        ["role-hog"] => hogs::spin(),
        ["role-hog-owner"] => play_hog_owner(),
        ["role-signals"] => play_signals(),
        _ => run_tests(&args),
    }
}

/// Takes a name filter and `--list`, like the standard harness.
fn run_tests(args: &[String]) {
    let tests: [(&str, fn()); 6] = [
        ("a_killed_main_leaves_nothing", a_killed_main_leaves_nothing),
        ("a_quota_is_put_back_after_a_killed_main", a_quota_is_put_back_after_a_killed_main),
        ("a_main_that_ends_leaves_nothing", a_main_that_ends_leaves_nothing),
        ("a_hog_burns_and_ends_with_its_guard", a_hog_burns_and_ends_with_its_guard),
        ("a_hog_ends_with_a_killed_owner", a_hog_ends_with_a_killed_owner),
        ("the_second_interrupt_ends_the_process", the_second_interrupt_ends_the_process),
    ];
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    for (name, test) in tests.iter().filter(|(name, _)| filter.is_none_or(|f| name.contains(f.as_str()))) {
        if args.iter().any(|arg| arg == "--list") {
            println!("{name}: test");
        } else {
            test();
            println!("test {name} ... ok");
        }
    }
}

// Roles.

/// Starts a warden and a child, registers everything, and reports; then waits for its standard input.
#[allow(clippy::zombie_processes)] // The test is that nobody waits for the child.
fn play_main(directory: &Path) {
    let root = ProcRoot::default();
    let warden = Warden::spawn(&std::env::current_exe().unwrap(), &["role-warden"]).unwrap();
    let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id() as i32;
    std::fs::write(directory.join("file"), "x").unwrap();
    warden.guard(Guarded::process(&root, pid).unwrap()).unwrap();
    warden.guard(Guarded::Dir(directory.to_path_buf())).unwrap();
    // If quotas are permitted, the child is in one group, and this process in another.
    let tree = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?)).ok();
    let mut cgroup = String::from("-");
    let _tree = tree.map(|mut tree| {
        warden.guard(Guarded::Cgroup(tree.directory.clone())).unwrap();
        tree.adopt_process(pid).unwrap();
        let group = tree.quota_group("g", Quota::new(50_000, 100_000).unwrap()).unwrap();
        tree.assign(pid, group).unwrap();
        cgroup = tree.directory.display().to_string();
        tree
    });
    println!("{} {pid} {cgroup}", warden.pid());
    let _ = std::io::stdin().read(&mut [0]);
    // Ends normally, without killing the child.
}

/// Has a warden guard a group's quota, lends, and reports; then waits for its standard input.
fn play_lender(directory: &Path) {
    let warden = Warden::spawn(&std::env::current_exe().unwrap(), &["role-warden"]).unwrap();
    let mut group = Group::to_lend(directory).unwrap();
    warden.guard(group.guarded()).unwrap();
    group.write(1_000_000).unwrap();
    println!("lent");
    let _ = std::io::stdin().read(&mut [0]);
}

fn play_hog_owner() {
    let hog = spawn_hog(None);
    println!("{}", hog.pid());
    let _ = std::io::stdin().read(&mut [0]);
}

fn play_signals() {
    let interrupt = Interrupt::install().unwrap();
    println!("ready");
    poll(&mut [PollFd::from_borrowed_fd(interrupt.as_fd(), PollFlags::IN)], None).ok();
    // The first poll may have been interrupted by the handler that makes the second one return.
    poll(&mut [PollFd::new(&interrupt, PollFlags::IN)], None).ok();
    println!("{} {:?}", interrupt.is_raised(), interrupt.signal());
    let _ = std::io::stdin().read(&mut [0]);
}

// Tests.

struct Stage {
    main: Child,
    output: BufReader<ChildStdout>,
}

impl Stage {
    fn start(args: &[&str]) -> Stage {
        let mut main = Command::new(std::env::current_exe().unwrap())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(main.stdout.take().unwrap());
        Stage { main, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.main), signal).unwrap();
    }
}

fn a_quota_is_put_back_after_a_killed_main() {
    let root = ProcRoot::default();
    let made = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?));
    let mut tree = match made {
        Ok(tree) => tree,
        Err(error) => return println!("skipped: {error}"),
    };
    tree.quota_group("vcpu1", Quota::new(20_000, 100_000).unwrap()).unwrap();
    let directory = tree.directory.join("vcpu1");
    let quota_ns = || Group::open(&directory).unwrap().quota_ns();
    let mut stage = Stage::start(&["role-lender", directory.to_str().unwrap()]);
    assert_eq!(stage.line(), "lent");
    assert_eq!(quota_ns(), 1_000_000);
    stage.signal(Signal::KILL);
    let start = Instant::now();
    while quota_ns() != 20_000_000 {
        assert!(start.elapsed() < PATIENCE, "the quota was not put back");
        std::thread::sleep(Duration::from_millis(5));
    }
    tree.close().unwrap();
}

/// A running role. It does not outlive its test, however that ends.
impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.main.kill();
        let _ = self.main.wait();
    }
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} took too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has exited, though its new parent may not have reaped it yet.
fn has_exited(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

fn spawn_hog(cpu: Option<usize>) -> Hog {
    Hog::spawn(&std::env::current_exe().unwrap(), &["role-hog"], cpu).unwrap()
}

/// Runs role-main until everything is registered, ends it, and checks that everything is gone.
fn check_nothing_is_left(end: impl Fn(&mut Stage)) {
    let outer = tempfile::tempdir().unwrap();
    let directory = outer.path().join("reprieve-guarded");
    std::fs::create_dir(&directory).unwrap();
    let mut stage = Stage::start(&["role-main", directory.to_str().unwrap()]);
    let line = stage.line();
    let fields: Vec<&str> = line.split(' ').collect();
    let (warden, child): (i32, i32) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
    let cgroup = PathBuf::from(fields[2]);
    assert!(!has_exited(child) && !has_exited(warden) && directory.join("file").exists());
    assert!(fields[2] == "-" || cgroup.exists());
    // A signal from the terminal ends the main process but not its warden.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(Pid::from_raw(warden).unwrap(), signal).unwrap();
    }
    end(&mut stage);
    eventually("killing the child", || has_exited(child));
    eventually("removing the directory", || !directory.exists());
    eventually("removing the cgroup", || !cgroup.exists());
    eventually("the warden's end", || has_exited(warden));
}

fn a_killed_main_leaves_nothing() {
    check_nothing_is_left(|stage| stage.signal(Signal::KILL));
}

fn a_main_that_ends_leaves_nothing() {
    check_nothing_is_left(|stage| {
        drop(stage.main.stdin.take());
        assert!(stage.main.wait().unwrap().success());
    });
}

fn a_hog_burns_and_ends_with_its_guard() {
    let root = ProcRoot::default();
    let cpu = *threads::affinity(threads::own_tid()).unwrap().last().unwrap();
    let hog = spawn_hog(Some(cpu));
    let pid = hog.pid();
    assert_eq!(threads::affinity(pid).unwrap(), [cpu]);
    assert_eq!(threads::nice(pid).unwrap(), 0);
    eventually("burning 20 ms", || root.process_cpu_ns(pid).unwrap() > 20_000_000);
    drop(hog);
    // It is also reaped: its PID is free.
    assert!(root.start_time_ticks(pid).unwrap_err().is_gone());
}

fn a_hog_ends_with_a_killed_owner() {
    let mut stage = Stage::start(&["role-hog-owner"]);
    let hog: i32 = stage.line().parse().unwrap();
    assert!(!has_exited(hog));
    stage.signal(Signal::KILL);
    eventually("the hog's end", || has_exited(hog));
}

fn the_second_interrupt_ends_the_process() {
    let mut stage = Stage::start(&["role-signals"]);
    assert_eq!(stage.line(), "ready");
    stage.signal(Signal::INT);
    assert_eq!(stage.line(), "true Some(2)");
    stage.signal(Signal::INT);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(stage.main.wait().unwrap().signal(), Some(2));
}
