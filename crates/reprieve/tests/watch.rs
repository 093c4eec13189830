//! `reprieve watch` on a terminal of 80 columns and 24 lines, and for machines.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// Four seconds of two vCPUs, in the format of the first version: two of them are incidents.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hindsight/tests/data/version-1.reprieve");
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, and `watch` on it.
struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// The side of the program: its settings are looked at, and it keeps the terminal open.
    theirs: OwnedFd,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Terminal {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(PROGRAM);
        command
            .arg("watch")
            .args(arguments)
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1");
        command.stdin(end()).stdout(end()).stderr(end()).process_group(0);
        child::die_with_parent(&mut command);
        let child = command.spawn().unwrap();
        let (lines, columns) = (NonZero::new(24).unwrap(), NonZero::new(80).unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let (mut output, shown) = (File::from(ours.try_clone().unwrap()), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal { child, keys: File::from(ours), screen, theirs: theirs.into() }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is so, and gives it.
    fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "{what}:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end: its exit code. The terminal must be as it was.
    fn end(mut self) -> Option<i32> {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "it goes on:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "the terminal is left raw");
        self.wait_for("the usual screen", |_| {
            let screen = self.screen.lock().unwrap();
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        });
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_live(text: &str) -> bool {
    text.contains("live") && text.contains("vCPU 0 off")
}

#[test]
fn this_machine_is_shown_until_q_is_pressed() {
    let mut terminal = Terminal::start(&["--tier", "T0"]);
    let text = terminal.wait_for("this machine", is_live);
    let first = text.lines().next().unwrap();
    assert!(
        first.ends_with('.') || first.contains("Looking") || !first.is_empty(),
        "no verdict on top:\n{text}"
    );
    for row in ["steal", "grace period", "run delay", "memory wait", "q quit"] {
        assert!(text.contains(row), "{row}:\n{text}");
    }
    terminal.press(" ");
    terminal.wait_for("a pause", |text| !is_live(text));
    terminal.press("?");
    terminal.wait_for("help", |text| text.contains("all vCPUs"));
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn the_terminal_is_given_back_at_the_end_and_after_a_signal() {
    assert_eq!(Terminal::start(&["--tier", "T0", "--for", "2s"]).end(), Some(0));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let terminal = Terminal::start(&["--tier", "T0"]);
        terminal.wait_for("this machine", is_live);
        kill_process(Pid::from_child(&terminal.child), signal).unwrap();
        assert_eq!(terminal.end(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_record_is_shown_back_and_forth_in_time_and_without_colour() {
    let mut terminal = Terminal::start(&[RECORD]);
    let last = terminal.wait_for("the record", |text| text.contains("2023-11-14T22:13:2"));
    assert!(!last.lines().next().unwrap().is_empty(), "no verdict on top:\n{last}");
    let time = |text: &str| {
        let at = text.find("2023-11-14T22:13:2").unwrap();
        text[at..at + 20].to_string()
    };
    terminal.press("\x1b[H");
    let first = terminal.wait_for("the beginning", |text| time(text) < time(&last));
    terminal.press("\x1b[C");
    terminal.wait_for("a second later", |text| time(text) > time(&first));
    terminal.press("1");
    terminal.wait_for("one vCPU", |text| text.contains("This second") && !text.contains("vCPU 0 off"));
    let is_coloured = |terminal: &Terminal| {
        let parser = terminal.screen.lock().unwrap();
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let colours = cells.filter_map(|(row, column)| Some(parser.screen().cell(row, column)?.fgcolor()));
        colours.filter(|colour| *colour != vt100::Color::Default).count() > 0
    };
    assert!(!is_coloured(&terminal), "NO_COLOR is set");
    terminal.press("\x03");
    assert_eq!(terminal.end(), Some(0));
}

fn machine(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("watch").args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn machines_get_a_line_a_second() {
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let output = machine(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of_record = lines(&[RECORD, "--ndjson"]);
    assert_eq!(of_record.len(), 4);
    let off =
        |line: &Value| line["vcpus"].as_array().unwrap().iter().filter_map(|v| v["off_ns"].as_u64()).sum();
    let offs: Vec<u64> = of_record.iter().map(off).collect();
    assert!(offs.iter().any(|ns| *ns > 0), "{offs:?}");
    assert_eq!(of_record[0]["watch_version"], 1);
    let live = lines(&["--ndjson", "--for", "2s", "--tier", "T0"]);
    assert_eq!(live.len(), 2);
    assert!(
        live.iter().all(|line| line["tier"] == "T0" && !line["says"].as_str().unwrap().is_empty()),
        "{live:?}"
    );
}

#[test]
fn without_a_terminal_the_way_out_is_named() {
    let output = machine(&[RECORD]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("reprieve watch --ndjson"), "{said}");
    assert_eq!(machine(&["/nowhere", "--ndjson"]).status.code(), Some(2));
}
