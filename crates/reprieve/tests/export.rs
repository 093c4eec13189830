//! `reprieve export` as Prometheus and others meet it: its text, its limits, its end, and what packaging/ ships for it.
//!
//! Prometheus and promtool come from Debian (`scripts/setup --prometheus`). Tests that need them are skipped without, unless
//! `REPRIEVE_TEST_REQUIRE_PROMETHEUS` forbids that.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed when this is dropped, and when the test is.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        child::die_with_parent(command);
        Process(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The exporter, on a port that the kernel chose.
struct Exporter {
    process: Process,
    address: SocketAddr,
    /// What it said before it served.
    warnings: Vec<String>,
}

impl Exporter {
    fn start() -> Exporter {
        Exporter::start_on("127.0.0.1:0")
    }

    fn start_on(address: &str) -> Exporter {
        let mut command = Command::new(PROGRAM);
        command.args(["export", "--listen", address]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        let mut warnings = Vec::new();
        for line in BufReader::new(process.0.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(link) = line.strip_prefix("serves http://") {
                let address = link.strip_suffix("/metrics").unwrap().parse().unwrap();
                return Exporter { process, address, warnings };
            }
            warnings.push(line);
        }
        panic!("it does not serve: {warnings:?}");
    }

    /// The answer to these bytes, until the exporter closes the connection.
    fn answer(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Head and body of the metrics for a client that accepts this.
    fn metrics(&self, accept: &str) -> (String, String) {
        let answer = self.answer(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        (head.into(), body.into())
    }

    /// The metrics, after a sample was made.
    fn sampled(&self, accept: &str) -> (String, String) {
        let since = Instant::now();
        loop {
            let (head, body) = self.metrics(accept);
            if observed_s(&body) > 0.0 {
                return (head, body);
            }
            assert!(since.elapsed() < PATIENCE, "{body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn observed_s(text: &str) -> f64 {
    let mut values = text.lines().filter_map(|line| line.strip_prefix("reprieve_observed_seconds_total "));
    values.next().unwrap().parse().unwrap()
}

/// A program of Debian's package; `None` with a message where it is missing and may be.
fn prometheus(program: &str) -> Option<PathBuf> {
    let unpacked = repository("target/prometheus/usr/bin").join(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = std::iter::once(unpacked).chain(installed).find(|path| path.is_file());
    if found.is_none() {
        let is_required = std::env::var_os("REPRIEVE_TEST_REQUIRE_PROMETHEUS").is_some();
        assert!(!is_required, "{program} is missing: scripts/setup --prometheus");
        eprintln!("skipped: {program} is missing: scripts/setup --prometheus");
    }
    found
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new(prometheus("promtool")?);
    command.args(arguments).current_dir(repository("packaging/prometheus"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn both_forms_are_served_and_promtool_finds_no_fault() {
    let exporter = Exporter::start();
    assert!(exporter.warnings.is_empty(), "{:?}", exporter.warnings);
    let (head, text) = exporter.sampled("application/openmetrics-text;version=1.0.0,*/*;q=0.1");
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let (head, text) = exporter.sampled("*/*");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(text.contains("\nreprieve_vcpu_beats_total{vcpu=\""), "{text}");
    let Some(checked) = promtool(&["check", "metrics"], &text) else { return };
    assert!(checked.status.success(), "{}\n{text}", String::from_utf8_lossy(&checked.stderr));
    // What it finds, it would say.
    let wrong = promtool(&["check", "metrics"], "# TYPE x_total gauge\nx_total 1\n").unwrap();
    assert!(!wrong.status.success());
}

#[test]
fn only_two_pages_are_served_and_only_to_get() {
    let exporter = Exporter::start();
    let answer = |request: &str| exporter.answer(request);
    let home = answer("GET / HTTP/1.1\r\n\r\n");
    assert!(home.starts_with("HTTP/1.1 200 OK\r\n") && home.contains("<a href=\"/metrics\">"), "{home}");
    assert!(answer("GET /metrics?x=1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(answer("GET /metrics/ HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 Not Found\r\n"));
    let posted = answer("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    assert!(
        posted.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && posted.contains("\r\nAllow: GET\r\n"),
        "{posted}"
    );
    assert!(answer("\u{1}\u{2}\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let large = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(16 << 10));
    assert!(answer(&large).starts_with("HTTP/1.1 431 "));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(100));
    assert!(answer(&many).starts_with("HTTP/1.1 431 "));
    // A client that leaves is forgotten.
    drop(exporter.connect());
    let closing = exporter.connect();
    closing.shutdown(Shutdown::Write).unwrap();
    assert!(answer("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn slow_clients_are_dropped_and_delay_no_sample() {
    let exporter = Exporter::start();
    let before_s = observed_s(&exporter.sampled("*/*").1);
    let mut slow: Vec<TcpStream> = (0..20).map(|_| exporter.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /met").unwrap());
    let (_, text) = exporter.metrics("*/*");
    // It waited for the slow ones before it, two seconds for each four, and sampled meanwhile.
    assert!(observed_s(&text) > before_s + 2.0, "{before_s} {text}");
    for mut stream in slow {
        let mut rest = Vec::new();
        // Closed, by an end or by a reset.
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
}

#[test]
fn a_signal_ends_it_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut exporter = Exporter::start();
        // A client that says nothing does not keep it.
        let _client = exporter.connect();
        kill_process(Pid::from_child(&exporter.process.0), signal).unwrap();
        assert_eq!(exporter.process.0.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

fn refusal(address: &str) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).args(["export", "--listen", address]).output().unwrap();
    assert!(output.stdout.is_empty());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_address_that_cannot_be_had_is_refused_with_a_way_out() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let (code, said) = refusal(&taken);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.starts_with(&format!("reprieve: cannot serve {taken}: Address already in use")), "{said}");
    assert!(said.contains("or choose another port with --listen"), "{said}");
    // An address for documentation, which no machine has.
    let (code, said) = refusal("192.0.2.1:9757");
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("choose an address of this machine"), "{said}");
    assert_eq!(refusal("9757").0, Some(2));
}

#[test]
fn an_address_that_others_reach_is_warned_about() {
    let exporter = Exporter::start_on("0.0.0.0:0");
    assert!(
        exporter.warnings[0].starts_with("reprieve: warning: everybody who reaches 0.0.0.0:"),
        "{:?}",
        exporter.warnings
    );
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    for arguments in [
        &["check", "rules", "reprieve.rules.yml"][..],
        &["test", "rules", "reprieve.rules.test.yml"],
        &["check", "config", "--syntax-only", "scrape.yml"],
    ] {
        let Some(output) = promtool(arguments, "") else { return };
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_prometheus_scrapes_it_and_answers_queries() {
    let Some(program) = prometheus("prometheus") else { return };
    let exporter = Exporter::start();
    let folder = tempfile::tempdir().unwrap();
    // The example, with another address and in a hurry.
    let example = fs::read_to_string(repository("packaging/prometheus/scrape.yml")).unwrap();
    let hurried = example
        .replace("127.0.0.1:9757", &exporter.address.to_string())
        .replace("scrape_interval: 15s", "scrape_interval: 1s\n    scrape_timeout: 1s");
    assert!(hurried.contains(&exporter.address.to_string()) && hurried.contains("scrape_timeout"));
    let config = folder.path().join("prometheus.yml");
    fs::write(&config, format!("global:\n  evaluation_interval: 1s\n{hurried}")).unwrap();
    fs::copy(repository("packaging/prometheus/reprieve.rules.yml"), folder.path().join("reprieve.rules.yml"))
        .unwrap();
    // Free now; if somebody takes it until then, Prometheus ends, and the test says so.
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    command.arg(format!("--web.listen-address={own}"));
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut server = Process::start(command.stdout(Stdio::null()).stderr(log));
    let mut value = |query: &str| {
        let since = Instant::now();
        loop {
            if let Some(value) = asked(own, query) {
                return value;
            }
            let log = || fs::read_to_string(folder.path().join("log")).unwrap();
            assert!(server.0.try_wait().unwrap().is_none(), "{}", log());
            assert!(since.elapsed() < PATIENCE, "{query} has no value: {}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    assert_eq!(value("up{job=\"reprieve\"} == 1"), 1.0);
    assert_eq!(value("count(reprieve_build_info{version!=\"\"})"), 1.0);
    assert_eq!(value("count(reprieve_verdict)"), 10.0);
    assert!(value("sum(reprieve_vcpu_beats_total) > 0") > 0.0);
    assert!((0.0..=1.0).contains(&value("instance:reprieve_off:ratio_rate5m")));
    assert_eq!(value("count(ALERTS{alertstate=\"firing\"}) or vector(0)"), 0.0);
}

/// The first value that a Prometheus answers to a query, if it answers one.
fn asked(server: SocketAddr, query: &str) -> Option<f64> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut stream = TcpStream::connect(server).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Version 1.0, so that the answer is not in chunks.
    write!(stream, "GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn systemd_accepts_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("reprieve-export.service");
    let text = fs::read_to_string(repository("packaging/reprieve-export.service")).unwrap();
    fs::write(&unit, text.replace("/usr/local/bin/reprieve", PROGRAM)).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&unit).output() else {
        eprintln!("skipped: systemd-analyze is missing");
        return;
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
