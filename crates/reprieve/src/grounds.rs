//! Where scenarios run: what a ground needs is made ready, and each scenario is handed to its ground. The simulator
//! needs nothing: no warden, no cgroup, no cache is made for it, nor for real threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Warden;
use reprieve_sim::ground::Tapes;
use reprieve_study::ground::{Finished, Progress};
use reprieve_study::{Ground, Scenario};
use reprieve_threads::peer;
use reprieve_vm::image::Cache;
use reprieve_vm::{HogCommand, Host, XenGround};

use crate::failure::Failure;
use crate::tapes;

/// The grounds that some scenarios need, ready to run them.
pub struct Grounds {
    /// Simulated runs at a time.
    jobs: usize,
    /// What simulated runs replay.
    tapes: Tapes,
    interrupt: Interrupt,
    guests: Option<Guests>,
    threads: Option<reprieve_threads::Host>,
}

/// What real guests need.
struct Guests {
    host: Host,
    cache: Cache,
}

impl Grounds {
    /// Makes ready what these scenarios need, and refuses those that this machine cannot hold.
    pub fn prepare(scenarios: &[Scenario], jobs: Option<u16>) -> Result<Grounds, Failure> {
        let jobs = match jobs {
            Some(jobs) => jobs.into(),
            None => available_parallelism().map_or(1, usize::from),
        };
        let tapes = tapes::read(scenarios)?;
        let on = |ground: Ground| scenarios.iter().filter(move |one| one.ground == ground);
        let wants_guests = on(Ground::Vm).chain(on(Ground::Xen)).next().is_some();
        let guests = wants_guests.then(|| guests(on(Ground::Vm), on(Ground::Xen))).transpose()?;
        let interrupt = match &guests {
            Some(guests) => guests.host.interrupt.clone(),
            None => Interrupt::install()?,
        };
        let threads =
            on(Ground::Threads).next().map(|_| threads(on(Ground::Threads), &interrupt)).transpose()?;
        Ok(Grounds { jobs, tapes, interrupt, guests, threads })
    }

    /// Runs one of the scenarios. The error is of a ground that could not be prepared for it.
    pub fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Result<Finished<Failure>, Failure> {
        match (scenario.ground, &self.guests, &self.threads) {
            (Ground::Vm, Some(guests), _) => {
                let host = guests.host.clone();
                let ground = reprieve_vm::Ground::prepare(scenario, host, &guests.cache, progress)?;
                Ok(failing(ground.run(progress)))
            }
            (Ground::Xen, Some(guests), _) => {
                let ground = XenGround::prepare(scenario, guests.host.clone(), &guests.cache, progress)?;
                Ok(failing(ground.run(progress)))
            }
            (Ground::Threads, _, Some(host)) => {
                let ground = reprieve_threads::Ground::prepare(scenario, host.clone(), progress)?;
                Ok(failing(ground.run(progress)))
            }
            _ => {
                let interrupted = || self.interrupt.is_raised();
                Ok(failing(reprieve_sim::ground::run(
                    scenario,
                    &self.tapes,
                    self.jobs,
                    &interrupted,
                    progress,
                )))
            }
        }
    }
}

/// With the ground's error as a failure of this command.
fn failing<E: Into<Failure>>(finished: Finished<E>) -> Finished<Failure> {
    let Finished { scenario, observations, error } = finished;
    Finished { scenario, observations, error: error.map(E::into) }
}

fn guests<'a>(
    mut on_vm: impl Iterator<Item = &'a Scenario>,
    mut on_xen: impl Iterator<Item = &'a Scenario>,
) -> Result<Guests, Failure> {
    let host = host()?;
    // Whether this run makes any cgroup or not: the next one that does may never come.
    reprieve_vm::ground::sweep(&host);
    on_vm.try_for_each(|scenario| reprieve_vm::ground::check_machine(scenario, &host))?;
    on_xen.try_for_each(|scenario| reprieve_vm::xen::ground::check_machine(scenario, &host))?;
    let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
    Ok(Guests { host, cache })
}

fn threads<'a>(
    mut scenarios: impl Iterator<Item = &'a Scenario>,
    interrupt: &Interrupt,
) -> Result<reprieve_threads::Host, Failure> {
    let host = reprieve_threads::Host::new(interrupt.clone(), peers()?)?;
    scenarios.try_for_each(|scenario| reprieve_threads::ground::check_machine(scenario, &host))?;
    Ok(host)
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

/// What this process hands to the ground of real guests.
pub fn host() -> Result<Host, Failure> {
    let (exe, programs) = (exe()?, peers()?);
    // First: from here on a polite end takes the polite way.
    let interrupt = Interrupt::install()?;
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
