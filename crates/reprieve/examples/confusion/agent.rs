//! In the guest: obeys the host, in the words of the lab's runner where there are such (guest/README.md).
//!
//! | the host says | the guest answers |
//! |---|---|
//! | `start load KIND ...` | `started`, once the load works |
//! | `start clear` | `started`, once all loads have ended |
//! | `start step NS` | `started`, once the clock of the day is stepped |
//! | `start look S TIER` | `started`; and later a frame `verdict BYTES` with JSON |

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::threads;
use rustix::mount::{MountFlags, mount};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use serde_json::{Value, json};

use crate::loads::{self, MEMORY_GROUP, MODULE};

/// How programs of the host are started in a guest.
const LOADER: [&str; 3] = ["/programs/lib/ld.so", "--library-path", "/programs/lib"];
const BUSYBOX: &str = "/bin/busybox";
/// Where the host has put what is needed besides.
pub const FOLDER: &str = "confusion";
/// What explain saw last.
const SEEN: &str = "/tmp/seen";
/// Swap for the memory group, KiB. It takes memory only as it fills.
const SWAP_KIB: u64 = 192 * 1024;
const SECOND_NS: i128 = 1_000_000_000;

type Port = Arc<Mutex<File>>;
type Done = Result<(), String>;

/// Obeys until the host closes the port.
pub fn run(port: &str) -> Done {
    let read = OpenOptions::new().read(true).write(true).open(port).map_err(said)?;
    let port: Port = Arc::new(Mutex::new(read.try_clone().map_err(said)?));
    let mut lines = BufReader::new(read).lines();
    if let Err(problem) = prepare() {
        say(&port, &format!("error {problem}"))?;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    say(&port, &format!("hello 1 vcpus={} release={release}", allowed_cpus().map_err(said)?.len()))?;
    say(&port, "ready")?;
    let mut children = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let done = match words.as_slice() {
            ["start", "load", rest @ ..] => start_load(rest).map(|child| children.push(child)),
            ["start", "clear"] => clear(&mut children),
            ["start", "step", by_ns] => by_ns.parse().map_err(said).and_then(step),
            ["start", "look", seconds, tier] => {
                say(&port, "started")?;
                let (port, seconds, tier) = (port.clone(), seconds.to_string(), tier.to_string());
                std::thread::spawn(move || send(&port, &look(&seconds, &tier)));
                continue;
            }
            ["poweroff"] => break,
            _ => Err("not understood".into()),
        };
        match done {
            Ok(()) => say(&port, "started")?,
            Err(problem) => say(&port, &format!("error {}", problem.replace('\n', " ")))?,
        }
    }
    let _ = Command::new(BUSYBOX).args(["poweroff", "-f"]).status();
    Ok(())
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn say(port: &Port, line: &str) -> Done {
    let mut port = port.lock().unwrap_or_else(PoisonError::into_inner);
    port.write_all(format!("{line}\n").as_bytes()).map_err(said)
}

fn send(port: &Port, value: &Value) {
    let text = value.to_string();
    let mut port = port.lock().unwrap_or_else(PoisonError::into_inner);
    // If the host has gone, the guest goes, too.
    let _ = port.write_all(format!("verdict {}\n{text}", text.len()).as_bytes());
}

/// The module, a memory group, and swap that its task can use.
fn prepare() -> Done {
    busybox(&["insmod", "/lib/reprieve_lab.ko"])?;
    fs::create_dir_all("/tmp/cgroup").map_err(said)?;
    mount("cgroup2", "/tmp/cgroup", "cgroup2", MountFlags::empty(), None).map_err(said)?;
    fs::write("/tmp/cgroup/cgroup.subtree_control", "+memory").map_err(said)?;
    fs::create_dir(MEMORY_GROUP).map_err(said)?;
    let brd = format!("/{FOLDER}/brd.ko");
    if Path::new(&format!("{brd}.xz")).exists() {
        busybox(&["sh", "-c", &format!("{BUSYBOX} xzcat {brd}.xz >{brd}")])?;
    }
    busybox(&["insmod", &brd, "rd_nr=1", &format!("rd_size={SWAP_KIB}")])?;
    busybox(&["mkswap", "/dev/ram0"])?;
    busybox(&["swapon", "/dev/ram0"])
}

fn busybox(words: &[&str]) -> Done {
    let done = Command::new(BUSYBOX).args(words).output().map_err(said)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim())),
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(LOADER[0]);
    command.args(&LOADER[1..]).arg(format!("/programs/bin/{name}")).stdin(Stdio::null());
    command
}

fn start_load(words: &[&str]) -> Result<Child, String> {
    let mut command = program("confusion");
    let mut child = command
        .arg("load")
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(said)?;
    let mut line = String::new();
    let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if matches!(read, Some(Ok(_))) && line.trim() == "ready" {
        return Ok(child);
    }
    let _ = child.kill();
    let mut why = String::new();
    let _ = child.stderr.take().map(|stderr| stderr.take(200).read_to_string(&mut why));
    let _ = child.wait();
    Err(format!("the load {} did not start: {}", words.join(" "), why.trim()))
}

fn clear(children: &mut Vec<Child>) -> Done {
    for mut child in children.drain(..) {
        child.kill().map_err(said)?;
        child.wait().map_err(said)?;
    }
    // A load may have bound it.
    let kthread = loads::kthread(&ProcRoot::default()).ok_or("there is no RCU kthread")?;
    threads::set_affinity(kthread, &allowed_cpus().map_err(said)?).map_err(said)
}

/// Steps the clock of the day.
fn step(by_ns: i64) -> Done {
    let now = clock_gettime(ClockId::Realtime);
    let new_ns = i128::from(now.tv_sec) * SECOND_NS + i128::from(now.tv_nsec) + i128::from(by_ns);
    let seconds = i64::try_from(new_ns.div_euclid(SECOND_NS)).map_err(said)?;
    let new = Timespec { tv_sec: seconds, tv_nsec: new_ns.rem_euclid(SECOND_NS) as _ };
    clock_settime(ClockId::Realtime, new).map_err(said)
}

/// Lets explain look, and counts meanwhile.
fn look(seconds: &str, tier: &str) -> Value {
    let before = counted();
    let words = ["explain", "--json", "--save", SEEN, "--for", seconds, "--tier", tier];
    let explained = program("reprieve").args(words).output();
    let after = counted();
    let grown = |name: &str| Some(after[name].as_u64()?.saturating_sub(before[name].as_u64()?));
    let counters = ["cpu_wait", "memory_wait", "kthread_wait", "held"];
    let counted: serde_json::Map<String, Value> =
        counters.iter().filter_map(|name| Some((name.to_string(), grown(name)?.into()))).collect();
    let (explain, problem) = match explained {
        Ok(output) => {
            let problem: String = String::from_utf8_lossy(&output.stderr).chars().take(400).collect();
            (serde_json::from_slice::<Value>(&output.stdout).ok(), problem)
        }
        Err(error) => (None, error.to_string()),
    };
    let seen = fs::read_to_string(SEEN).unwrap_or_default();
    json!({ "explain": explain, "problem": problem, "counted": counted, "seen": seen })
}

fn counted() -> Value {
    let root = ProcRoot::default();
    let kthread = loads::kthread(&root).and_then(|pid| root.schedstat(pid, pid).ok());
    let held =
        fs::read_to_string(format!("{MODULE}/held")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    json!({
        "cpu_wait": root.pressure_ns("cpu").ok(),
        "memory_wait": root.pressure_ns("memory").ok(),
        "kthread_wait": kthread.map(|kthread| kthread.delay_ns),
        "held": held,
    })
}
