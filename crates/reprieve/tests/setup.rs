//! `scripts/setup` on machines that lack something: it ends at once with the reason and the way out, or installs. apt-get and
//! what it depends on are stand-ins; `sleep` is one too, so that two minutes of waiting take no time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What the script itself uses.
const TOOLS: [&str; 11] =
    ["cat", "env", "grep", "mkdir", "mktemp", "mv", "rm", "sed", "sort", "timeout", "tr"];

const HELD: &str =
    "echo 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 17 (dpkg)' >&2; exit 100";

const SIZES: &str = "echo '0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.'; \
    echo 'Need to get 9444 kB of archives.'; echo 'After this operation, 45.4 MB will be used.'; exit";

/// A machine that has these programs and no others.
struct Machine(TempDir);

impl Machine {
    /// What apt-get does is said by lines of a shell's `case`, by its arguments.
    fn new(apt_get: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        fs::create_dir(machine.programs()).unwrap();
        for tool in TOOLS {
            let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let real = real.iter().find(|path| path.exists()).unwrap();
            symlink(real, machine.programs().join(tool)).unwrap();
        }
        machine.program("cargo", "");
        machine.program("cc", "");
        machine.program("id", "echo 0");
        machine.program("sleep", "");
        machine.program("apt-get", &format!("case \" $* \" in\n{apt_get}\nesac"));
        machine
    }

    fn programs(&self) -> PathBuf {
        self.0.path().join("programs")
    }

    /// A stand-in, which leaves a trace when it is called.
    fn program(&self, name: &str, body: &str) {
        let path = self.programs().join(name);
        let trace = self.0.path().join("called");
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >>'{}'\n{body}\n", trace.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// How often a line of the trace has this in it.
    fn calls(&self, what: &str) -> usize {
        let trace = fs::read_to_string(self.0.path().join("called")).unwrap_or_default();
        trace.lines().filter(|line| line.contains(what)).count()
    }

    /// The exit code and stderr of the script; stdout stays empty.
    fn set_up(&self, parts: &[&str]) -> (Option<i32>, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
        let mut command = Command::new(script);
        command.args(parts).env("PATH", self.programs());
        command.env("REPRIEVE_PROMETHEUS", self.0.path().join("prometheus"));
        let output = command.output().unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn what_is_missing_is_named_with_its_size_before_it_is_installed() {
    let machine = Machine::new(&format!("*' --print-uris '*) {SIZES};;"));
    let (code, said) = machine.set_up(&["--dev", "--ebpf"]);
    assert_eq!(code, Some(0), "{said}");
    let expected = ["missing: clang ", "shellcheck", "2 newly installed", "Need to get 9444 kB", "45.4 MB"];
    let at = expected.map(|text| said.find(text).unwrap_or_else(|| panic!("{text}: {said}")));
    assert!(at.is_sorted(), "{said}");
    assert_eq!(
        (machine.calls(" update"), machine.calls(" install "), machine.calls(" --print-uris")),
        (1, 2, 1)
    );

    // Once it is there, nothing is called.
    let machine = Machine::new("");
    machine.program("shellcheck", "");
    assert_eq!(machine.set_up(&["--dev"]), (Some(0), String::new()));
    assert_eq!(machine.calls("apt-get"), 0);
}

#[test]
fn a_failed_installation_ends_it_with_the_reason_and_the_way_out() {
    let apt_get = "*' --print-uris '*) ;;\n*' install '*) echo 'E: dpkg was interrupted' >&2; exit 100;;";
    let (code, said) = Machine::new(apt_get).set_up(&["--peers"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("\nE: dpkg was interrupted\nsetup: installing failed"), "{said}");
    let by_hand = "    apt-get update && apt-get install -y --no-install-recommends libdpdk-dev liburcu-dev";
    assert!(said.contains(by_hand), "{said}");
}

#[test]
fn another_program_that_uses_apt_is_waited_for_and_then_named() {
    for (command, waits) in
        [("update", "*' update '*)"), ("install", "*' --print-uris '*) ;;\n*' install '*)")]
    {
        let machine = Machine::new(&format!("{waits} {HELD};;"));
        let (code, said) = machine.set_up(&["--dev"]);
        assert_eq!(code, Some(69), "{command}: {said}");
        assert!(said.contains("held by process 17 (dpkg); waiting for at most 120 s\n"), "{said}");
        assert!(said.ends_with("another program uses apt; run this again when it has ended\n"), "{said}");
        assert_eq!(machine.calls("sleep 5"), 24, "{command}");
    }

    // It ends while it is waited for.
    let machine =
        Machine::new(&format!("*' update '*) [ -e \"$0.again\" ] || {{ : >\"$0.again\"; {HELD}; }};;"));
    let (code, said) = machine.set_up(&["--dev"]);
    assert_eq!((code, machine.calls("sleep"), machine.calls(" install ")), (Some(0), 1, 2), "{said}");
}

#[test]
fn a_mirror_that_fails_is_named_and_installing_is_not_begun_without_the_packages() {
    let fails = "echo 'E: Failed to fetch http://mirror/x' >&2; exit 100;;";
    let machine = Machine::new(&format!("*' update '*) {fails}\n*' --download-only '*) {fails}"));
    let (code, said) = machine.set_up(&["--dev"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("http://mirror/x\nsetup: downloading failed"), "{said}");
    assert_eq!(machine.calls(" install "), 2, "the sizes, and the download");

    // It was one that is not needed.
    let machine = Machine::new(&format!("*' update '*) {fails}"));
    let (code, said) = machine.set_up(&["--dev"]);
    assert_eq!((code, machine.calls(" install ")), (Some(0), 3), "{said}");
}

#[test]
fn without_the_means_to_install_it_says_what_to_run() {
    let machine = Machine::new("");
    machine.program("id", "echo 1000");
    let (code, said) = machine.set_up(&["--dev"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("run, as root:\nsetup:     apt-get update && apt-get install -y"), "{said}");
    assert_eq!(machine.calls("apt-get"), 0);

    let machine = Machine::new("");
    fs::remove_file(machine.programs().join("apt-get")).unwrap();
    let (code, said) = machine.set_up(&[]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("no apt-get; please install by hand: apt "), "{said}");

    assert_eq!(Machine::new("").set_up(&["--everything"]).0, Some(2));
}

#[test]
fn prometheus_is_unpacked_once_and_not_installed() {
    let machine = Machine::new("*' download prometheus '*) : >prometheus_1_amd64.deb;;");
    machine.program("apt-cache", "echo '  Candidate: 1'");
    machine.program(
        "dpkg-deb",
        "mkdir -p \"$3/usr/bin\"; : >\"$3/usr/bin/promtool\"; /bin/chmod +x \"$3/usr/bin/promtool\"",
    );
    let (code, said) = machine.set_up(&["--prometheus"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(machine.0.path().join("prometheus/usr/bin/promtool").is_file(), "{said}");
    assert_eq!(machine.set_up(&["--prometheus"]), (Some(0), String::new()));
    assert_eq!((machine.calls(" download "), machine.calls(" install ")), (1, 0));
}

#[test]
fn a_prometheus_that_cannot_be_fetched_leaves_nothing() {
    let machine = Machine::new("*' download '*) echo 'E: Failed to fetch' >&2; exit 100;;");
    machine.program("apt-cache", "echo '  Candidate: 1'");
    machine.program("dpkg-deb", "");
    let (code, said) = machine.set_up(&["--prometheus"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("E: Failed to fetch\nsetup: fetching prometheus failed"), "{said}");
    let files = fs::read_dir(machine.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!files.map(|name| name.into_string().unwrap()).any(|name| name.starts_with("prometheus")));
}
