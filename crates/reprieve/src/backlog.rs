//! `reprieve backlog`: on the host, says which objects wait for a grace period in a guest, and who frees them. The guest runs, is
//! paused, or is a dump of its memory.

mod words;

use std::time::{Duration, Instant};

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_study::shown;
use reprieve_vm::attach::{self, Given, Opened, Qemu};

use crate::cli::BacklogArguments;
use crate::failure::Failure;
use crate::{guests, output};
use words::Seen;

/// The longest walk. A list of a million objects takes some seconds.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the verb.
pub fn backlog(arguments: &BacklogArguments) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let given = Given { btf: arguments.btf.clone(), symbols: arguments.symbols.clone() };
    let is_raised = || interrupt.is_raised();
    let (name, opened) = match &arguments.dump {
        Some(path) => (path.display().to_string(), attach::dump(path, &given, &is_raised)),
        None => {
            let root = ProcRoot::default();
            let qemu = only(guests::find(&root, &Vec::from_iter(arguments.pid))?)?;
            let name = format!("guest {} (process {})", qemu.name, qemu.pid);
            (name, attach::guest(&root, &qemu, &given, &is_raised))
        }
    };
    let failure = |error| guests::failure(&shown::line(&name), error);
    let opened = opened.map_err(failure)?;
    let deadline = Instant::now() + LONGEST;
    let backlog = opened.backlog(&|| is_raised() || Instant::now() >= deadline).map_err(failure)?;
    let names = opened.functions(&backlog.functions());
    let Opened { kernel, stands_still, other_kernels, .. } = &opened;
    let seen = Seen {
        name: &name,
        release: &kernel.release,
        is_dump: arguments.dump.is_some(),
        stands_still: *stands_still,
        other_kernels: *other_kernels,
        backlog: &backlog,
        names: &names,
    };
    output::print(&if arguments.json { seen.json() } else { seen.text() })
}

/// The only guest.
fn only(mut found: Vec<Qemu>) -> Result<Qemu, Failure> {
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let each: Vec<String> = found.iter().map(|qemu| format!("--pid {} ({})", qemu.pid, qemu.name)).collect();
    Err(Failure::Usage(format!("{} guests run on this host: name one with {}", found.len(), each.join(", "))))
}
