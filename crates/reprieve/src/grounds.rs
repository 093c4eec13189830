//! Where scenarios run: what a ground needs is made ready, and each scenario is handed to its ground. The simulator
//! needs nothing: no warden, no cgroup, no cache is made for it.

use std::sync::Arc;
use std::thread::available_parallelism;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Warden;
use reprieve_study::ground::{Finished, Progress};
use reprieve_study::{Ground, Scenario};
use reprieve_vm::ground::check_machine;
use reprieve_vm::image::Cache;
use reprieve_vm::{HogCommand, Host};

use crate::failure::Failure;

/// The grounds that some scenarios need, ready to run them.
pub struct Grounds {
    /// Simulated runs at a time.
    jobs: usize,
    interrupt: Interrupt,
    guests: Option<Guests>,
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
        let on_vm: Vec<&Scenario> = scenarios.iter().filter(|one| one.ground == Ground::Vm).collect();
        if on_vm.is_empty() {
            return Ok(Grounds { jobs, interrupt: Interrupt::install()?, guests: None });
        }
        let host = host()?;
        on_vm.iter().try_for_each(|scenario| check_machine(scenario, &host.proc_root))?;
        let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
        Ok(Grounds { jobs, interrupt: host.interrupt.clone(), guests: Some(Guests { host, cache }) })
    }

    /// Runs one of the scenarios. The error is of a ground that could not be prepared for it.
    pub fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Result<Finished<Failure>, Failure> {
        match &self.guests {
            Some(guests) if scenario.ground == Ground::Vm => {
                let host = guests.host.clone();
                let ground = reprieve_vm::Ground::prepare(scenario, host, &guests.cache, progress)?;
                Ok(failing(ground.run(progress)))
            }
            _ => {
                let interrupted = || self.interrupt.is_raised();
                Ok(failing(reprieve_sim::ground::run(scenario, self.jobs, &interrupted, progress)))
            }
        }
    }
}

/// With the ground's error as a failure of this command.
fn failing<E: Into<Failure>>(finished: Finished<E>) -> Finished<Failure> {
    let Finished { scenario, observations, error } = finished;
    Finished { scenario, observations, error: error.map(E::into) }
}

/// What this process hands to the ground of real guests.
pub fn host() -> Result<Host, Failure> {
    let exe =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("finding this program: {error}")))?;
    // First: from here on a polite end takes the polite way.
    let interrupt = Interrupt::install()?;
    let warden = Arc::new(Warden::spawn(&exe, &["warden"])?);
    let hog = HogCommand { exe, args: vec!["hog".into()] };
    Ok(Host { proc_root: ProcRoot::default(), warden, interrupt, hog })
}
