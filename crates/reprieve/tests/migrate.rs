//! The daemon on this machine: whatever way it ends, masks are as their users have set them.

#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod daemon;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use daemon::{AS_NOBODY, Daemon, PATIENCE, PROGRAM, Role, Writer, command, is_able};
use reprieve_linux::threads;
use rustix::process::Signal;

/// Not a test: writes until it is killed.
#[test]
#[ignore = "started by the tests that need it"]
fn role_writes_until_killed() {
    let Some(role) = Role::begin() else { return };
    loop {
        role.write();
    }
}

#[test]
fn ended_politely_it_gives_masks_back_and_leaves_no_state() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
    let mask = threads::affinity_set(writer.tid()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT, Signal::USR1, Signal::ALARM] {
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

/// Any signal that may end it, at any moment; `REPRIEVE_TEST_MOMENTS` says at how many.
#[test]
#[ignore = "ten minutes: make signals"]
fn at_moments_by_chance_masks_are_given_back() {
    if !is_able() {
        return;
    }
    let moments = std::env::var("REPRIEVE_TEST_MOMENTS").map_or(200, |text| text.parse().unwrap());
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
    let mask = threads::affinity_set(writer.tid()).unwrap();
    let ends_at_once = ["KILL", "SEGV", "ABRT", "BUS", "ILL", "FPE", "TRAP", "SYS"];
    let ends_politely = [
        "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU", "XFSZ",
        "STKFLT", "34", "64",
    ];
    let (mut bound, mut random) = (0, 0x9E37_79B9_7F4A_7C15_u64);
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    for moment in 0..moments {
        let mut daemon = Daemon::start(folder.path(), &writer);
        std::thread::sleep(Duration::from_millis(below(3000)));
        let at_once = below(3) == 0;
        let names: &[&str] = if at_once { &ends_at_once } else { &ends_politely };
        let name = names[below(names.len() as u64) as usize];
        let kill = || Command::new("kill").args([format!("-{name}"), daemon.child.id().to_string()]).status();
        assert!(kill().unwrap().success(), "{moment}: {name}");
        daemon.end_pulses(Signal::CONT);
        // Rust's runtime looks at the first of these two itself, for a stack that has overflown, and lets the next do its work.
        if matches!(name, "SEGV" | "BUS") {
            std::thread::sleep(Duration::from_millis(50));
            daemon.signal(if name == "BUS" { Signal::BUS } else { Signal::SEGV });
        }
        let (code, _) = daemon.wait();
        let is_bound = threads::affinity_set(writer.tid()).unwrap() != mask;
        bound += usize::from(is_bound);
        // Until it listens to signals it has moved nothing.
        let politely = code.is_none_or(|code| code == 0) && !is_bound && !daemon.state.exists();
        assert!(at_once || politely, "{moment}: {name}, {code:?}");
        wait_until_nothing_is_left(&daemon, &format!("{moment}: {name}"));
        if moment % 20 == 19 {
            eprintln!("{} of {moments} moments", moment + 1);
        }
        assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask, "{moment}: {name}");
        assert!(!daemon.state.exists(), "{moment}: {name}");
    }
    eprintln!("{moments} moments; the writer was left bound, and given back, in {bound}");
}

#[test]
fn a_second_signal_does_not_keep_it_from_giving_masks_back() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
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
fn killed_while_a_task_is_bound_its_warden_gives_the_mask_back() {
    if !is_able() {
        return;
    }
    // Also if it was started by way of the dynamic loader, as in a guest: the loader is its executable then.
    let loader = Path::new(LOADER).exists().then_some(&[LOADER][..]);
    for by in [Some(&[][..]), loader].into_iter().flatten() {
        let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
        let mask = threads::affinity_set(writer.tid()).unwrap();
        let mut daemon = Daemon::start_as(by, &[], folder.path(), &writer);
        daemon.wait_for_moves(&writer);
        daemon.stop_while_bound(writer.tid());
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.wait().0, None);
        wait_until_nothing_is_left(&daemon, "after SIGKILL");
        assert_eq!(threads::affinity_set(writer.tid()).unwrap(), mask);
    }
}

/// Of x86-64's C library.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The state file goes when all masks in it have been given back.
fn wait_until_nothing_is_left(daemon: &Daemon, what: &str) {
    let since = Instant::now();
    while daemon.state.exists() {
        assert!(since.elapsed() < PATIENCE, "{what}: the state file stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn killed_with_its_warden_it_leaves_a_state_from_which_masks_are_given_back() {
    if !is_able() {
        return;
    }
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
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
        daemon.kill_with_warden();
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
    let mut command = command(&AS_NOBODY, PROGRAM);
    command.args(["migrate", "--apply"]);
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
    let (folder, writer) = (tempfile::tempdir().unwrap(), Writer::start("role_writes_until_killed"));
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
