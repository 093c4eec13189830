//! Where scenarios run: what a ground needs is made ready, and each scenario is handed to its ground. The simulator
//! needs nothing: no warden, no cgroup, no cache is made for it, nor for real threads.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::available_parallelism;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Warden;
use reprieve_sim::ground::SimGround;
use reprieve_study::ground::{Finished, Ground, Progress};
use reprieve_study::{GroundKind, Scenario};
use reprieve_threads::{ThreadsGround, peer};
use reprieve_vm::image::Cache;
use reprieve_vm::{HogCommand, Host, VmGround, XenGround};

use crate::failure::Failure;
use crate::tapes;

/// A scenario with the ground that runs it, ready to begin.
pub struct Ready {
    scenario: Scenario,
    ground: Rc<dyn Ground<Error = Failure>>,
}

impl Ready {
    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.scenario.name
    }

    /// Works through the scenario's plan, after a warning about what is probably not meant.
    pub fn run(self, progress: &mut dyn Progress) -> Finished<Failure> {
        self.scenario.doubts().into_iter().for_each(|doubt| progress.warning(&doubt));
        self.ground.run(self.scenario, progress)
    }
}

/// Makes ready what these scenarios need, and refuses those that this machine cannot hold. `jobs` is the number of simulated
/// runs at a time.
pub fn prepare(scenarios: Vec<Scenario>, jobs: Option<u16>) -> Result<Vec<Ready>, Failure> {
    let interrupt = Interrupt::install()?;
    let mut grounds: Vec<(GroundKind, Rc<dyn Ground<Error = Failure>>)> = Vec::new();
    for scenario in &scenarios {
        if !grounds.iter().any(|(kind, _)| *kind == scenario.ground) {
            grounds.push((scenario.ground, ground(scenario.ground, &scenarios, jobs, &interrupt)?));
        }
    }
    let ready = |scenario: Scenario| {
        let ground =
            grounds.iter().find(|(kind, _)| *kind == scenario.ground).map(|(_, ground)| ground.clone());
        let ground = ground.expect("made above, for every scenario");
        ground.check(&scenario)?;
        Ok(Ready { scenario, ground })
    };
    scenarios.into_iter().map(ready).collect()
}

/// How many runs a scenario has, and about how long they take.
pub fn length(scenario: &Scenario) -> String {
    match scenario.ground {
        GroundKind::Sim => SimGround::length(scenario),
        GroundKind::Vm => VmGround::length(scenario),
        GroundKind::Threads => ThreadsGround::length(scenario),
        GroundKind::Xen => XenGround::length(scenario),
    }
}

/// The pCPUs that this process may use.
pub fn pcpus() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The ground of that kind for those of the scenarios that it runs.
fn ground(
    kind: GroundKind,
    scenarios: &[Scenario],
    jobs: Option<u16>,
    interrupt: &Interrupt,
) -> Result<Rc<dyn Ground<Error = Failure>>, Failure> {
    Ok(match kind {
        GroundKind::Sim => {
            let jobs = jobs.map_or_else(pcpus, usize::from);
            let interrupt = interrupt.clone();
            let interrupted = Box::new(move || interrupt.is_raised());
            Rc::new(Failing(SimGround { tapes: tapes::read(scenarios)?, jobs, interrupted }))
        }
        GroundKind::Vm => Rc::new(Failing(VmGround { host: guests(interrupt)?, cache: cache()? })),
        GroundKind::Xen => Rc::new(Failing(XenGround { host: guests(interrupt)?, cache: cache()? })),
        GroundKind::Threads => {
            Rc::new(Failing(ThreadsGround(reprieve_threads::Host::new(interrupt.clone(), peers()?)?)))
        }
    })
}

/// A ground whose errors are failures of this command.
struct Failing<G>(G);

impl<G: Ground> Ground for Failing<G>
where
    Failure: From<G::Error>,
{
    type Error = Failure;

    fn length(scenario: &Scenario) -> String {
        G::length(scenario)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Failure> {
        Ok(self.0.check(scenario)?)
    }

    fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Finished<Failure> {
        let Finished { scenario, observations, error } = self.0.run(scenario, progress);
        Finished { scenario, observations, error: error.map(Failure::from) }
    }
}

/// A host for guests. Whether this run makes any cgroup or not, it removes those of dead runs: the next one that makes some may
/// never come.
fn guests(interrupt: &Interrupt) -> Result<Host, Failure> {
    let host = host_with(interrupt.clone())?;
    reprieve_vm::ground::sweep(&host);
    Ok(host)
}

/// Where images are kept.
fn cache() -> Result<PathBuf, Failure> {
    Ok(Cache::default_dir(|name| std::env::var_os(name))?)
}

/// Where the programs of the peers should be.
pub fn peers() -> Result<PathBuf, Failure> {
    Ok(peer::directory(std::env::var_os(peer::VARIABLE), &exe()?))
}

fn exe() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::Failed(format!("finding this program: {error}")))
}

/// What stands on the command line before this program's own arguments, its path included, if it was started by way of the dynamic
/// loader, as programs of the host's are in a guest: the loader is then the executable, and has to be told again what to run.
fn loader_words(command_line: &[u8], own: usize) -> Vec<String> {
    let words: Vec<String> = command_line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    // A zero ends each word, the last one too.
    let before = (words.len() - 1).saturating_sub(own);
    if before == 0 { Vec::new() } else { words[1..=before].to_vec() }
}

/// What sees to it that nothing outlives this process.
pub fn warden() -> Result<Warden, Failure> {
    let before =
        loader_words(&std::fs::read("/proc/self/cmdline").unwrap_or_default(), std::env::args_os().count());
    let words: Vec<&str> = before.iter().map(String::as_str).chain(["warden"]).collect();
    Ok(Warden::spawn(&exe()?, &words)?)
}

/// What this process hands to the grounds of real guests.
pub fn host() -> Result<Host, Failure> {
    // First: from here on a polite end takes the polite way.
    host_with(Interrupt::install()?)
}

fn host_with(interrupt: Interrupt) -> Result<Host, Failure> {
    let (exe, programs) = (exe()?, peers()?);
    let warden = Arc::new(warden()?);
    let (daemon, hog) = (exe.clone(), HogCommand { exe, args: vec!["hog".into()] });
    Ok(Host { proc_root: ProcRoot::default(), warden, interrupt, programs, daemon, hog })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_told_again_what_to_run() {
        let by_loader = b"/lib/ld.so\0--library-path\0/lib\0/bin/reprieve\0migrate\0--apply\0";
        assert_eq!(loader_words(by_loader, 3), ["--library-path", "/lib", "/bin/reprieve"]);
        let plain = b"/bin/reprieve\0migrate\0--apply\0";
        assert_eq!(loader_words(plain, 3), [""; 0]);
        assert_eq!(loader_words(b"", 3), [""; 0]);
    }
}
