//! Whatever a user sets while the daemon moves tasks is as he has set it, also where it looks like our own doing: children,
//! and threads, of a task that is bound bind themselves, to the same CPU or to another. Here the program itself decides when
//! to bind the task; that all happens that can happen is shown in the linux crate (`migrate_family`).
//!
//! `REPRIEVE_TEST_PINS` says how many there are of each form: 40, or 1,000 for `make wishes`.

#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod daemon;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use daemon::{AS_NOBODY, Daemon, PATIENCE, PROGRAM, Role, Writer, is_able};
use reprieve_linux::threads;
use rustix::process::Signal;

const PINS: &str = "REPRIEVE_TEST_PINS";
const FORM: &str = "REPRIEVE_TEST_FORM";
/// Of so many children one binds itself to nothing, and inherits.
const HEIRS_ONE_IN: usize = 4;
/// Writes between two of them: some milliseconds.
const WRITES: usize = 8;
/// How long heirs have to get their masks back.
const SOON: Duration = Duration::from_secs(10);

/// One at a time: each has the whole machine busy.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pins() -> usize {
    std::env::var(PINS).ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// A child, or a thread, of a writer: what it has bound itself to, if anything.
#[derive(Clone, Copy, Debug)]
struct Kin {
    tid: i32,
    bound_to: Option<usize>,
}

/// Not a test: starts children, or threads, in between, and writes until it is killed.
#[test]
#[ignore = "started by the tests that need it"]
fn role_starts_others() {
    let Some(role) = Role::begin() else { return };
    let cpus = threads::affinity(threads::own_tid()).unwrap();
    while !role.folder.join("begin").exists() {
        role.write();
    }
    let threads = std::env::var(FORM).unwrap() == "threads";
    let mut told = String::new();
    for index in 0..pins() {
        (0..WRITES).for_each(|_| role.write());
        let bound_to = (index % HEIRS_ONE_IN != 0).then(|| cpus[index / HEIRS_ONE_IN % cpus.len()]);
        let tid = if threads { start_thread(bound_to) } else { start_process(bound_to) };
        told += &format!("{tid} {}\n", bound_to.map_or(-1, |cpu| cpu as i32));
    }
    role.say("kin", &told);
    loop {
        role.write();
    }
}

/// It outlives the writer by so long, s, if that is killed.
const LIFE_S: &str = "200";

fn start_process(bound_to: Option<usize>) -> i32 {
    let mut command = match bound_to {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), "sleep"]);
            command
        }
        None => Command::new("sleep"),
    };
    command.arg(LIFE_S).stdout(Stdio::null()).spawn().unwrap().id() as i32
}

fn start_thread(bound_to: Option<usize>) -> i32 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        if let Some(cpu) = bound_to {
            threads::set_affinity(threads::own_tid(), &[cpu]).unwrap();
        }
        tell.send(threads::own_tid()).unwrap();
        loop {
            std::thread::park();
        }
    });
    told.recv().unwrap()
}

/// Not a test: forks as fast as it can, until it is killed.
#[test]
#[ignore = "started by the tests that need it"]
fn role_forks_all_the_time() {
    if std::env::var_os(FORM).is_some() {
        loop {
            let _ = Command::new("true").status();
        }
    }
}

/// Killed when dropped.
struct Storm(Child);

impl Storm {
    fn start() -> Storm {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role_forks_all_the_time", "--ignored"]).env(FORM, "storm");
        Storm(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A writer's children end with the test.
struct Kins(Vec<Kin>, bool);

impl Kins {
    fn of(writer: &mut Writer, form: &str) -> Kins {
        let text = writer.wait_for("kin");
        let kin = |line: &str| {
            let (tid, cpu) = line.split_once(' ').unwrap();
            let cpu: i32 = cpu.parse().unwrap();
            Kin { tid: tid.parse().unwrap(), bound_to: usize::try_from(cpu).ok() }
        };
        Kins(text.lines().map(kin).collect(), form == "processes")
    }

    /// How many that bound themselves are not bound so any more, and how many that have inherited a binding still have it.
    fn wrong(&self, mask: &[usize]) -> (usize, usize) {
        let is_wrong = |kin: &&Kin| {
            let should = kin.bound_to.map_or(mask.to_vec(), |cpu| vec![cpu]);
            threads::affinity(kin.tid).unwrap() != should
        };
        let wrong: Vec<&Kin> = self.0.iter().filter(is_wrong).collect();
        let lost = wrong.iter().filter(|kin| kin.bound_to.is_some()).count();
        (lost, wrong.len() - lost)
    }
}

impl Drop for Kins {
    fn drop(&mut self) {
        if self.1 {
            let pids = self.0.iter().filter_map(|kin| rustix::process::Pid::from_raw(kin.tid));
            pids.for_each(|pid| {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            });
        }
    }
}

fn writer(by: &[&str], form: &str) -> Writer {
    Writer::start_as(by, "role_starts_others", &[(FORM, form), (PINS, &pins().to_string())])
}

fn mask_of(writer: &Writer) -> Vec<usize> {
    threads::affinity(writer.tid()).unwrap()
}

fn restore(state: &Path, more: &[&str]) {
    let mut command = Command::new(PROGRAM);
    let restored = command.args(["migrate", "--restore", "--state"]).arg(state).args(more).output().unwrap();
    assert!(restored.status.success(), "{restored:?}");
}

fn told(form: &str, how: &str, kins: &Kins, lost: usize, bound: usize, daemon: &Daemon) {
    let (all, doubtful) = (kins.0.len(), daemon.metric("doubtful_tasks"));
    let heirs = kins.0.iter().filter(|kin| kin.bound_to.is_none()).count();
    eprintln!(
        "{form}, {how}: of {} pins {lost} lost, of {heirs} heirs {bound} still bound; {} moves, {} masks given back, \
         {doubtful} in doubt, {} overtaken",
        all - heirs,
        daemon.moves(),
        daemon.metric("heirs_total"),
        daemon.metric("overtaken_total"),
    );
}

/// With all of the kernel's records.
fn nothing_is_lost(form: &str, in_a_storm: bool) {
    let _alone = alone();
    if !is_able() {
        return;
    }
    let (folder, mut writer) = (tempfile::tempdir().unwrap(), writer(&[], form));
    let mask = mask_of(&writer);
    let _storm = in_a_storm.then(Storm::start);
    let mut daemon = Daemon::start(folder.path(), &writer);
    daemon.wait_for_moves(&writer);
    writer.tell("begin");
    let kins = Kins::of(&mut writer, form);
    let since = Instant::now();
    while kins.wrong(&mask).1 > daemon.metric("doubtful_tasks") as usize && since.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (lost, bound) = kins.wrong(&mask);
    told(form, if in_a_storm { "in a storm of forks" } else { "quiet" }, &kins, lost, bound, &daemon);
    let doubtful = daemon.metric("doubtful_tasks") as usize;
    assert_eq!(daemon.end(Signal::TERM).0, Some(0));
    assert_eq!(lost, 0);
    // Where records may not be had, or some were lost, heirs are left alone, and that is told.
    assert!(bound <= doubtful, "{bound} heirs are still bound, {doubtful} of them were told");
    let (lost, bound) = kins.wrong(&mask);
    assert!(lost == 0 && bound <= doubtful, "at the end {lost} lost, {bound} bound");
    assert_eq!(mask_of(&writer), mask);
    if doubtful > 0 {
        restore(&daemon.state, &["--in-doubt"]);
    }
    assert_eq!((kins.wrong(&mask).1, daemon.state.exists()), (0, false));
}

#[test]
fn no_pin_of_a_child_is_lost() {
    nothing_is_lost("processes", false);
}

#[test]
fn no_pin_of_a_thread_is_lost() {
    nothing_is_lost("threads", false);
}

#[test]
fn no_pin_of_a_child_is_lost_in_a_storm_of_forks() {
    nothing_is_lost("processes", true);
}

#[test]
fn no_pin_of_a_thread_is_lost_in_a_storm_of_forks() {
    nothing_is_lost("threads", true);
}

/// The daemon is killed with its warden while the writer is bound, which forks on: nobody sees who binds whom.
#[test]
fn no_pin_is_lost_by_giving_back_what_a_killed_daemon_has_left() {
    let _alone = alone();
    if !is_able() {
        return;
    }
    for form in ["processes", "threads"] {
        let (folder, mut writer) = (tempfile::tempdir().unwrap(), writer(&[], form));
        let mask = mask_of(&writer);
        let mut daemon = Daemon::start(folder.path(), &writer);
        daemon.wait_for_moves(&writer);
        daemon.stop_while_bound(writer.tid());
        daemon.kill_with_warden();
        writer.tell("begin");
        let kins = Kins::of(&mut writer, form);
        let inherited = kins.wrong(&mask).1;
        assert!(inherited > 0, "nothing was inherited");
        restore(&daemon.state, &[]);
        let (lost, bound) = kins.wrong(&mask);
        told(form, "after a kill and --restore", &kins, lost, bound, &daemon);
        assert_eq!((lost, bound, mask_of(&writer)), (0, inherited, mask.clone()), "heirs are in doubt");
        restore(&daemon.state, &["--in-doubt"]);
        assert_eq!((kins.wrong(&mask).1, daemon.state.exists()), (0, false), "nothing is left after that");
    }
}

/// Without the right to have the kernel's records: nobody sees who binds whom.
#[test]
fn no_pin_is_lost_without_records() {
    let _alone = alone();
    if !is_able() {
        return;
    }
    for form in ["processes", "threads"] {
        let (folder, mut writer) = (tempfile::tempdir().unwrap(), writer(&AS_NOBODY, form));
        let mask = mask_of(&writer);
        let mut daemon = Daemon::start_as(&AS_NOBODY, &["--only", "user=65534"], folder.path(), &writer);
        daemon.wait_for_moves(&writer);
        writer.tell("begin");
        let kins = Kins::of(&mut writer, form);
        // Until heirs have been searched for, and their parent is let go.
        let since = Instant::now();
        while daemon.metric("doubtful_tasks") == 0 || daemon.metric("tasks ") > 0 {
            assert!(since.elapsed() < PATIENCE, "the writer is never let go");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (lost, bound) = kins.wrong(&mask);
        told(form, "without records", &kins, lost, bound, &daemon);
        assert_eq!((lost, mask_of(&writer)), (0, mask.clone()));
        assert_eq!(daemon.end(Signal::TERM).0, Some(0));
        assert_eq!(kins.wrong(&mask).0, 0);
    }
}
