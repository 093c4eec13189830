//! `reprieve sweep submit` on a real Slurm: controller, two nodes and munge of this machine's own, on loopback, started and stopped here. A
//! node's daemon is killed with its job and comes back, and tasks are cancelled: the table is that of one process, to the byte.
//! REPRIEVE_TEST_POINTS says how many points the space has; REPRIEVE_TEST_REQUIRE_SLURM, that it must not be skipped;
//! REPRIEVE_TEST_TABLES, where a line with the tables' hashes is added (see scripts/engines).

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(900);
const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cluster.toml");

/// A cluster of two nodes on this machine. Its daemons are children of this process, and end with it.
struct Cluster {
    folder: TempDir,
    munge: Child,
    controller: Child,
    nodes: [Child; 2],
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::Builder::new().prefix("slurm").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // The socket must be reached by others.
        for (name, mode) in [
            ("", 0o755),
            ("state", 0o755),
            ("log", 0o755),
            ("spool.n1", 0o755),
            ("spool.n2", 0o755),
            ("munge", 0o711),
        ] {
            fs::create_dir_all(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let random: Vec<u8> = (0..1024).map(|_| rand::random()).collect();
        fs::write(at("munge/key"), random).unwrap();
        fs::set_permissions(at("munge/key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("slurm.conf"), configuration(folder.path())).unwrap();
        let option = |name: &str, file: &str| format!("--{name}={}", at(file).display());
        let munge = daemon(
            Command::new("munged").args(["--foreground", "--force"]).args([
                option("key-file", "munge/key"),
                option("socket", "munge/s"),
                option("pid-file", "munge/pid"),
                option("log-file", "munge/log"),
                option("seed-file", "munge/seed"),
            ]),
            folder.path(),
        );
        wait_for("munge's socket", || at("munge/s").exists());
        let controller = daemon(Command::new("slurmctld").args(["-D", "-i"]), folder.path());
        let nodes = ["n1", "n2"].map(|name| node(name, folder.path()));
        let cluster = Cluster { folder, munge, controller, nodes };
        wait_for("two idle nodes", || cluster.ask("sinfo", &["-h", "-o", "%D %t"]).trim() == "2 idle");
        cluster
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Kills a node's daemon, and all that it started, and starts it again.
    fn kill_node(&mut self, number: usize) {
        let name = ["n1", "n2"][number];
        let daemon = Pid::from_child(&self.nodes[number]).as_raw_pid();
        for pid in started_for(name, daemon) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        self.nodes[number].wait().unwrap();
        self.nodes[number] = node(name, self.folder.path());
    }

    fn waiting(&self) -> usize {
        self.ask("squeue", &["-h", "-r"]).lines().count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command("scontrol").arg("shutdown").output();
        let until = Instant::now() + Duration::from_secs(10);
        for child in self.nodes.iter_mut().chain([&mut self.controller]) {
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.munge.kill();
        let _ = self.munge.wait();
    }
}

fn node(name: &str, folder: &Path) -> Child {
    daemon(Command::new("slurmd").args(["-D", "-N", name]), folder)
}

fn daemon(command: &mut Command, folder: &Path) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log/daemons")).unwrap();
    command.env("SLURM_CONF", folder.join("slurm.conf"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    child::die_with_parent(command);
    command.spawn().unwrap()
}

/// The daemon, its step daemons, and their descendants.
fn started_for(node: &str, daemon: i32) -> Vec<i32> {
    let mut found = vec![daemon];
    let all: Vec<(i32, i32, String)> =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| process(&entry.path())).collect();
    found.extend(
        all.iter()
            .filter(|(.., line)| line.starts_with("slurmstepd") && line.contains(node))
            .map(|(pid, ..)| *pid),
    );
    loop {
        let more: Vec<i32> = all
            .iter()
            .filter(|(pid, parent, _)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, ..)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Number, parent and command line.
fn process(folder: &Path) -> Option<(i32, i32, String)> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let line = String::from_utf8_lossy(&fs::read(folder.join("cmdline")).ok()?).replace('\0', " ");
    Some((pid, parent, line))
}

/// As in the project's facts about Slurm 22.05 without systemd.
fn configuration(folder: &Path) -> String {
    let ports: Vec<u16> = {
        let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    };
    let at = folder.display();
    format!(
        "ClusterName=t\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={at}/munge/s,cred_expire=5\nMpiDefault=none\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\nReturnToService=2\nSlurmctldTimeout=10\nSlurmdTimeout=5\nKillWait=2\n\
         SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0\n\
         StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool.%n\nSlurmctldLogFile={at}/log/slurmctld\n\
         SlurmdLogFile={at}/log/slurmd.%n\nSlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/slurmd.%n.pid\n\
         NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={} CPUs=2 RealMemory=1000\n\
         NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={} CPUs=2 RealMemory=1000\n\
         PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        ports[0], ports[1], ports[2]
    )
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_able() -> bool {
    let has = |name: &str| {
        Command::new("which").arg(name).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let is_able = rustix::process::geteuid().is_root()
        && ["munged", "slurmctld", "slurmd", "sbatch"].into_iter().all(has);
    assert!(
        is_able || std::env::var_os("REPRIEVE_TEST_REQUIRE_SLURM").is_none(),
        "Slurm is missing, or this is not root"
    );
    is_able
}

fn planned(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    let mut command = Command::new(PROGRAM);
    command.args(["sweep", "plan", SCENARIO, "-o"]).arg(&folder);
    if let Ok(points) = std::env::var("REPRIEVE_TEST_POINTS") {
        command.args(["--set", &format!("space.points={points}")]);
    }
    let planned = command.output().unwrap();
    assert!(planned.status.success(), "{}", stderr(&planned));
    folder
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn tables(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    (fs::read(folder.join("table.csv")).unwrap(), fs::read(folder.join("table.parquet")).unwrap())
}

/// Adds a line to the file of REPRIEVE_TEST_TABLES, as python/tests/test_engines.py does.
fn note(folder: &Path, runs: u64, took: Duration) {
    let Some(file) = std::env::var_os("REPRIEVE_TEST_TABLES") else { return };
    let hash =
        |bytes: Vec<u8>| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (csv, parquet) = tables(folder);
    let line = serde_json::json!({
        "engine": "Slurm, a node killed, three tasks cancelled and submitted again",
        "runs": runs, "seconds": took.as_secs(), "csv_sha256": hash(csv), "parquet_sha256": hash(parquet),
    });
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{line}").unwrap();
}

fn done(folder: &Path) -> (u64, u64) {
    let output = Command::new(PROGRAM).args(["sweep", "status", "--json"]).arg(folder).output().unwrap();
    let status: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (status["done"].as_u64().unwrap(), status["runs"].as_u64().unwrap())
}

#[test]
fn an_array_whose_node_is_killed_and_whose_tasks_are_cancelled_gives_the_same_table() {
    if !is_able() {
        return eprintln!("skipped: it needs Slurm, and root");
    }
    let parent = tempfile::tempdir().unwrap();
    let folder = planned(parent.path(), "sweep");
    let mut cluster = Cluster::start();
    let began = Instant::now();
    let submit = |cluster: &Cluster| {
        let mut command = cluster.command(PROGRAM);
        let output = command
            .args(["sweep", "submit", "--engine", "slurm", "--tasks", "8"])
            .arg(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.split_whitespace().nth(3).unwrap().to_string()
    };
    let job = submit(&cluster);
    let (before, all) = done(&folder);
    wait_for("some runs", || done(&folder).0 > before + 4);
    cluster.ask("scancel", &[&format!("{job}_[6-8]")]);
    cluster.kill_node(0);
    wait_for("the end of all tasks", || cluster.waiting() == 0);
    eprintln!("after the kill and the cancelled tasks: {:?} are done", done(&folder));
    assert!(done(&folder).0 < all, "nothing was lost, so nothing was shown");
    assert!(!folder.join("table.csv").exists(), "no table has holes");
    submit(&cluster);
    wait_for("the end of all tasks", || cluster.waiting() == 0);
    assert_eq!(done(&folder), (all, all));
    let took = began.elapsed();
    let expected = planned(parent.path(), "expected");
    for verb in ["run", "merge"] {
        let output = Command::new(PROGRAM).args(["sweep", verb, "--quiet"]).arg(&expected).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    if !folder.join("table.csv").exists() {
        panic!("the job that merges made no table: {}", cluster.ask("squeue", &[]));
    }
    assert!(tables(&folder) == tables(&expected), "the tables differ");
    note(&folder, all, took);
}
