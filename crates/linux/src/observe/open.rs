//! Which parts of which tier are open to this user on this kernel, why the others are not, and what would open them.

use std::path::Path;

use reprieve_policy::sample::Tier;

use super::deep::NO_EBPF;
use super::grace;
use super::privileged::KMSG;
use super::symbols::Symbols;
use crate::proc::ProcRoot;

/// Something that the collector sees by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its tier.
    pub tier: Tier,
    /// What it shows.
    pub what: &'static str,
    /// Why it is closed, and what would open it; `None` if it is open.
    pub closed: Option<String>,
}

/// All parts, the lowest tier first. The highest tier is not armed for it: that attaches probes to the running kernel.
pub fn parts(root: &ProcRoot) -> Vec<Part> {
    let proc = |name: &str| root.path().join(name);
    let mut parts = vec![
        part(Tier::T0, "vCPUs off (timer beats), clocks, steal, memory", None),
        part(Tier::T0, "grace periods (membarrier)", grace::refusal().map(str::to_string)),
        part(Tier::T0, "pressure (PSI)", closed(&proc("pressure/cpu"), PSI)),
        part(Tier::T0, "run delay of vCPUs (schedstat)", closed(&proc("schedstat"), SCHEDSTATS)),
        part(Tier::T1, "slabs that grow", closed(&proc("slabinfo"), "run as root")),
        part(Tier::T1, "stalls in the kernel's log", log_closed(Path::new(KMSG))),
    ];
    let seen = Symbols::read(root).err().map(|error| error.to_string());
    let tasks = match NO_EBPF {
        Some(refusal) => Some(refusal.to_string()),
        None => seen.clone().map(|_| "as above".into()),
    };
    parts.push(part(
        Tier::T2,
        "grace periods exactly, and who frees (--tier T2 attaches probes to the running kernel)",
        seen,
    ));
    parts.push(part(Tier::T2, "tasks in the way (eBPF)", tasks));
    parts
}

const PSI: &str = "boot with psi=1, on a kernel with CONFIG_PSI";
const SCHEDSTATS: &str = "use a kernel with CONFIG_SCHEDSTATS, and boot it with schedstats=enable";

fn part(tier: Tier, what: &'static str, closed: Option<String>) -> Part {
    Part { tier, what, closed }
}

/// Why a file cannot be read.
fn closed(path: &Path, way_out: &str) -> Option<String> {
    let error = std::fs::read(path).err()?;
    Some(format!("{}: {error}; {way_out}", path.display()))
}

fn log_closed(path: &Path) -> Option<String> {
    let error = super::kernel_messages::KernelMessages::open(path).err()?;
    Some(format!("{}: {error}; run as root, or sysctl kernel.dmesg_restrict=0", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    #[test]
    fn what_is_closed_says_what_opens_it() {
        let proc = FakeProc::new();
        proc.put("pressure/cpu", "some total=1\n").put("slabinfo", "");
        let parts = parts(&proc.root);
        let of = |what: &str| parts.iter().find(|part| part.what.contains(what)).unwrap();
        assert_eq!((&of("PSI").closed, &of("slabs").closed), (&None, &None));
        assert!(of("schedstat").closed.as_ref().unwrap().contains("CONFIG_SCHEDSTATS"));
        // Without the kernel's symbols nothing can be armed.
        let deep = of("who frees");
        assert!(deep.tier == Tier::T2 && deep.closed.as_ref().unwrap().contains("kallsyms"), "{deep:?}");
        assert!(parts.is_sorted_by_key(|part| part.tier));
    }
}
