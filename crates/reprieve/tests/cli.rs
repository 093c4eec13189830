//! Golden command lines, in `cmd/`. What is refused there is refused before anything starts: the programs
//! that make an image or start a guest are stand-ins that leave a trace when they are called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// What a run calls.
const CALLED: [&str; 6] = ["qemu-system-x86_64", "apt-get", "apt-cache", "dpkg-deb", "cc", "make"];

/// A machine on which nothing may start.
struct Quiet {
    folder: TempDir,
}

impl Quiet {
    /// With stand-ins for these programs; any other is not installed.
    fn with(programs: &[&str]) -> Quiet {
        let quiet = Quiet { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(quiet.programs()).unwrap();
        for program in programs {
            // Asking for the version starts nothing.
            let script = format!(
                "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 7.2.0' && exit 0\n\
                 echo {program} \"$@\" >>'{}'\nexit 1\n",
                quiet.trace().display()
            );
            let path = quiet.programs().join(program);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        quiet
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("called")
    }

    fn reprieve(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("PATH", self.programs()).env("XDG_CACHE_HOME", self.cache());
        command.output().unwrap()
    }

    /// The exit code and stderr of a command line that must print nothing to stdout.
    fn refusal(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.reprieve(arguments);
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn assert_nothing_was_called(&self) {
        let called = fs::read_to_string(self.trace()).unwrap_or_default();
        assert!(called.is_empty(), "called:\n{called}");
        assert!(!self.cache().join("reprieve/packages").exists());
    }
}

#[test]
fn golden_command_lines() {
    let quiet = Quiet::with(&CALLED);
    let cases = trycmd::TestCases::new();
    cases.env("PATH", quiet.programs().to_str().unwrap());
    cases.env("REPRIEVE_PEERS", "/nonexistent/peers");
    cases.env("XDG_CACHE_HOME", quiet.cache().to_str().unwrap());
    // The width of the help must not be that of the terminal the tests happen to run in.
    cases.env("COLUMNS", "100");
    cases.register_bin("reprieve", Path::new(PROGRAM));
    cases.case("tests/cmd/*.trycmd");
    cases.run();
    quiet.assert_nothing_was_called();
}

/// The stand-ins do leave a trace.
#[test]
fn a_run_that_is_not_refused_calls_for_packages() {
    let quiet = Quiet::with(&CALLED);
    let (code, said) = quiet.refusal(&["run", "rcu-memory", "--on", "vm"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("not known to apt; run: apt-get update"), "{said}");
    assert!(fs::read_to_string(quiet.trace()).unwrap().starts_with("apt-cache"));
}

#[test]
fn what_the_machine_lacks_is_named_with_the_way_to_get_it() {
    let (code, said) = Quiet::with(&[]).refusal(&["run", "rcu-memory", "--on", "vm"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("qemu-system-x86_64 is missing: install it with: apt-get install"), "{said}");

    let (code, said) = Quiet::with(&CALLED[..1]).refusal(&["run", "rcu-memory", "--on", "vm"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("apt-cache is not installed; install it with: apt-get install apt"), "{said}");

    for (programs, lacks) in
        [(&[][..], "qemu-system-x86_64 is missing"), (&CALLED[..1], "apt-cache is not installed")]
    {
        let (code, said) = Quiet::with(programs).refusal(&["run", "xen-wakeup", "--on", "xen"]);
        assert_eq!(code, Some(69), "{said}");
        assert!(said.contains(lacks), "{said}");
    }

    let output = Quiet::with(&[]).reprieve(&["doctor"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8(output.stdout).unwrap().contains("MISSING  QEMU"));

    let mut homeless = Command::new(PROGRAM);
    homeless.args(["run", "rcu-memory", "--on", "vm"]).env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let output = homeless.output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8(output.stderr).unwrap().contains("neither XDG_CACHE_HOME nor HOME is set"));
}

#[test]
fn what_is_no_kernel_is_refused() {
    let quiet = Quiet::with(&CALLED);
    let file = quiet.folder.path().join("kernel");
    let refused = |problem: &str| {
        let kernel = format!("guest.kernel={}", file.display());
        let (code, said) = quiet.refusal(&["run", "rcu-memory", "--on", "vm", "--set", &kernel]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("{}: {problem}", file.display())), "{said}");
    };
    refused("No such file or directory (os error 2); hand in an x86-64 bzImage");
    fs::write(&file, "a text").unwrap();
    refused("neither a bzImage nor an ELF file; hand in an x86-64 bzImage");
    // An ELF header alone: 64-bit, little endian, no sections; and a version.
    let mut elf = vec![0; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    elf[52] = 64;
    elf[58] = 64;
    elf.extend_from_slice(b"Linux version 6.1.0 (gcc)");
    fs::write(&file, elf).unwrap();
    refused("the kernel has no BTF; choose a kernel built with CONFIG_DEBUG_INFO_BTF=y");
    // Neither a folder nor a FIFO, whose opening would wait for ever.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refused("not a file; hand in");
    fs::remove_dir(&file).unwrap();
    let fifo = file.as_os_str().as_encoded_bytes();
    rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused("not a file; hand in");
    quiet.assert_nothing_was_called();
}

#[test]
fn outputs_are_made_sure_of_and_nothing_lies_about() {
    // Without QEMU: what is wrong with an output is said before anything is looked for.
    let quiet = Quiet::with(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (code, said) = quiet.refusal(&["run", "rcu-memory", "--json", &file("missing/record.json")]);
    assert_eq!(code, Some(2), "{said}");
    let expected =
        format!("reprieve: cannot write {}: No such file or directory", file("missing/record.json"));
    assert!(said.starts_with(&expected), "{said}");
    let (code, said) = quiet.refusal(&["run", "rcu-memory", "--html", folder.path().to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("directory"), "{said}");
    // A run that fails leaves an old result alone, and a promised one unmade.
    fs::write(file("old.json"), "old").unwrap();
    let outputs = ["--json", &file("old.json"), "--html", &file("page.html"), "--trace", "/dev/null"];
    let (code, _) = quiet.refusal(&[&["run", "rcu-memory", "--on", "vm"], &outputs[..]].concat());
    assert_eq!(code, Some(69));
    let there: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there, ["old.json"]);
    assert_eq!(fs::read_to_string(file("old.json")).unwrap(), "old");
}

/// What the documentation was made from can be read and shown, whatever has been added to scenarios since.
#[test]
fn the_recorded_runs_can_be_shown() {
    let quiet = Quiet::with(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let files = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut records = [files(&folder), files(&folder.join("again"))].concat();
    records.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    assert!(records.len() > 20, "{records:?}");
    let show = |record: &PathBuf| {
        let short = quiet.reprieve(&["report", record.to_str().unwrap()]);
        assert!(short.status.success(), "{}: {short:?}", record.display());
        let output = quiet.reprieve(&["report", "--full", record.to_str().unwrap()]);
        assert!(output.status.success(), "{}: {output:?}", record.display());
        let text = String::from_utf8(output.stdout).unwrap();
        let compares = [" against ", "\nSide by side", "\ncase "].iter().any(|table| text.contains(table));
        assert!(text.contains("\nGround ") && compares, "{text}");
    };
    // On two threads: each record takes seconds.
    let (some, others) = records.split_at(records.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| some.iter().for_each(show));
        others.iter().for_each(show);
    });
}

#[test]
fn two_experiments_of_one_name_are_not_compared_unless_forced() {
    let quiet = Quiet::with(&[]);
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let record = |name: &str| records.join(name).to_str().unwrap().to_string();
    let (real, simulated) = (record("rcu-memory.json"), record("sim-memory.json"));
    let expected = "reprieve: conditions of one name are two experiments (--force compares them all the same):\n    \
                    overcommitted: vCPU 1 at most 20 % of a pCPU per 100 ms | 1.5 busy vCPUs per pCPU\n";
    assert_eq!(quiet.refusal(&["compare", &real, &simulated]), (Some(2), expected.into()));
    let forced = quiet.reprieve(&["compare", "--force", &real, &simulated]);
    assert!(String::from_utf8_lossy(&forced.stdout).contains("rcu-memory: "), "{forced:?}");
}

#[test]
fn endless_input_is_refused() {
    let quiet = Quiet::with(&CALLED);
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("endless.toml");
    std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
    let device = device.to_str().unwrap();
    for arguments in [&["run", device][..], &["compare", device, device]] {
        let expected = format!("reprieve: {device}: neither a file nor a pipe\n");
        assert_eq!(quiet.refusal(arguments), (Some(2), expected));
    }
    // Large, though not on the disk.
    let large = folder.path().join("large.toml");
    fs::File::create(&large).unwrap().set_len(1 << 30).unwrap();
    let large = large.to_str().unwrap();
    let expected = format!("reprieve: {large}: more than 1 MiB are too many for a scenario\n");
    assert_eq!(quiet.refusal(&["run", large]), (Some(2), expected));
    let expected = format!("reprieve: {large}: more than 256 MiB are too many for a record\n");
    assert_eq!(quiet.refusal(&["compare", large, large]), (Some(2), expected));
}

#[test]
fn completions_and_the_manual_page() {
    let quiet = Quiet::with(&[]);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = quiet.reprieve(&["completions", shell]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("reprieve") && text.contains("dry-run"), "{shell}");
    }
    let output = quiet.reprieve(&["man"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains(".TH reprieve 1"), "{text}");
}

#[test]
fn a_full_disk_is_a_failure_and_a_reader_who_leaves_is_none() {
    let quiet = Quiet::with(&[]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let status = |stdout: std::process::Stdio| {
        let mut command = Command::new(PROGRAM);
        command.arg("list").env("PATH", quiet.programs()).stdout(stdout).stderr(std::process::Stdio::null());
        command.status().unwrap().code()
    };
    assert_eq!(status(full.into()), Some(1));
    assert_eq!(status(closed.into()), Some(0));
}
