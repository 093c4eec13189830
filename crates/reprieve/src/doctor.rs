//! `reprieve doctor`: what this machine has, what is missing and how to get it.

mod tiers;

use std::fmt::Display;

use reprieve_linux::proc::{self, ProcRoot};
use reprieve_linux::switches::SwitchRecorder;
use reprieve_linux::threads::{self, FifoGuard};
use reprieve_study::{shown, units};
use reprieve_threads::peer::Peers;
use reprieve_vm::image::{self, Cache};
use reprieve_vm::{ground, qemu, xen};

use crate::failure::Failure;
use crate::{grounds, output};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    state: State,
    says: String,
}

enum State {
    /// There.
    Good,
    /// Not there; runs do without, and say so.
    Less,
    /// Not there, and no real guest runs without.
    Missing,
}

/// The series of the second kernel that results are recorded with.
const NEWER: &str = "6.12";

/// Runs the verb.
pub fn doctor() -> Result<(), Failure> {
    let findings = look();
    let mut text = conclusion(&findings);
    for finding in &findings {
        let mark = match finding.state {
            State::Good => "ok",
            State::Less => "less",
            State::Missing => "MISSING",
        };
        text.push_str(&format!("{mark:<8} {:<22} {}\n", finding.what, shown::line(&finding.says)));
    }
    output::print(&text)?;
    let missing = findings.iter().filter(|finding| matches!(finding.state, State::Missing)).count();
    match missing {
        0 => Ok(()),
        _ => Err(Failure::Missing(format!(
            "the laboratory's real guests (--on vm, --on xen) need what is MISSING above: {missing} of {}",
            findings.len()
        ))),
    }
}

/// The answer in a line or two: what runs here, and what could be better.
fn conclusion(findings: &[Finding]) -> String {
    let of = |state: fn(&State) -> bool| -> Vec<&str> {
        findings.iter().filter(|finding| state(&finding.state)).map(|finding| finding.what).collect()
    };
    let (missing, less) =
        (of(|state| matches!(state, State::Missing)), of(|state| matches!(state, State::Less)));
    let runs = match &missing[..] {
        [] => "Everything runs on this machine, real guests too.".to_string(),
        _ => format!(
            "explain, watch, export and record --hindsight work on this machine. The laboratory's real guests (--on vm, --on xen) \
             do not: {} missing.",
            missing.join(", ")
        ),
    };
    let could = match &less[..] {
        [] => String::new(),
        _ => format!(" Less than possible: {}.", less.join(", ")),
    };
    format!("{runs}{could}\n\n")
}

fn look() -> Vec<Finding> {
    let root = ProcRoot::default();
    let mut findings = tiers::look(&root);
    findings.extend([simulator(), peers(), machine(&root), emulator(), kvm()]);
    findings.extend(image::REQUIREMENTS.iter().map(program));
    findings.push(cache());
    let without = "without: name one with guest.kernel";
    findings.push(optional("guest kernel", guest_kernel(None), without));
    let newer = format!("without: no guest with guest.kernel = \"{NEWER}\"");
    findings.push(optional("newer guest kernel", guest_kernel(Some(NEWER)), &newer));
    findings.push(optional("Xen", xen(), "without: nothing runs on real Xen (--on xen)"));
    findings.push(optional("CPU quotas", quota(), "without: overcommitted pins vCPUs to one pCPU"));
    let switches = SwitchRecorder::open(&[threads::own_tid()], 1).map(|_| "perf switch records".to_string());
    findings.push(optional("scheduling intervals", switches, "without: from schedstat, coarser"));
    let fifo = FifoGuard::raise(1).map(|_| "the sampler may run on time".to_string());
    findings.push(optional(
        "real-time priority",
        fifo,
        "without: beats, and looks into guests, come late under load",
    ));
    findings
}

fn simulator() -> Finding {
    let says = "built in; --on sim needs nothing of this machine, --on threads the peers, --on vm and --on xen all else below";
    Finding { what: "simulator", state: State::Good, says: says.into() }
}

fn peers() -> Finding {
    let found = grounds::peers().and_then(|directory| Ok(Peers::open(&directory)?));
    let found =
        found.map(|peers| format!("{} programs in {}", peers.names().len(), peers.directory.display()));
    optional("peers", found, "without: nothing runs on real threads (--on threads)")
}

fn machine(root: &ProcRoot) -> Finding {
    let cpus = proc::allowed_cpus().map_or(0, |cpus| cpus.len());
    let memory = root.available_memory_bytes().unwrap_or(0);
    let state = if cpus >= 2 { State::Good } else { State::Less };
    let hint = if cpus >= 2 {
        ""
    } else {
        "; a guest with 2 vCPUs has no undisturbed baseline on fewer than 2 pCPUs"
    };
    Finding {
        what: "machine",
        state,
        says: format!("{cpus} pCPUs, {} available{hint}", units::size(memory as f64)),
    }
}

fn emulator() -> Finding {
    match qemu::version() {
        Ok(version) => Finding { what: "QEMU", state: State::Good, says: version },
        Err(error) => Finding { what: "QEMU", state: State::Missing, says: error.to_string() },
    }
}

fn kvm() -> Finding {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    let (state, says) = match opened {
        Ok(_) => (State::Good, "/dev/kvm opens; whether guests boot under it, a run finds out".to_string()),
        Err(error) => (State::Less, format!("/dev/kvm: {error}; without: guests are emulated")),
    };
    Finding { what: "KVM", state, says }
}

fn program(requirement: &image::Requirement) -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|dir| dir.join(requirement.program)).find(|file| file.is_file());
    let (state, says) = match found {
        Some(file) => (State::Good, file.display().to_string()),
        None => (State::Missing, format!("install it with: apt-get install {}", requirement.package)),
    };
    Finding { what: requirement.program, state, says }
}

fn cache() -> Finding {
    let found = Cache::default_dir(|name| std::env::var_os(name)).and_then(Cache::new);
    let (state, says) = match found {
        Ok(cache) => (State::Good, cache.root().display().to_string()),
        Err(error) => (State::Missing, error.to_string()),
    };
    Finding { what: "cache", state, says }
}

fn guest_kernel(series: Option<&str>) -> Result<String, Failure> {
    let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
    Ok(image::kernel_available(&cache, series)?)
}

/// Its packages: in the cache, or known to apt.
fn xen() -> Result<String, Failure> {
    let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
    Ok(xen::image::available(&cache)?)
}

fn quota() -> Result<String, Failure> {
    let cgroups = ground::try_quota(&grounds::host()?)?;
    Ok(format!("cgroup {:?} at {}", cgroups.version, cgroups.base.display()))
}

fn optional<E: Display>(what: &'static str, found: Result<String, E>, without: &str) -> Finding {
    match found {
        Ok(says) => Finding { what, state: State::Good, says },
        Err(error) => Finding { what, state: State::Less, says: format!("{error}; {without}") },
    }
}
