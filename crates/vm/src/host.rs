//! Handles to the host that every run needs: `/proc`, the warden, the interrupt, paths of programs.

use std::path::PathBuf;
use std::sync::Arc;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{Guarded, Warden};

use crate::Result;

/// The host's handles.
#[derive(Clone)]
pub struct Host {
    /// `/proc`.
    pub proc_root: ProcRoot,
    /// Cleans up even if this process is killed.
    pub warden: Arc<Warden>,
    /// Raised when the user interrupts.
    pub interrupt: Interrupt,
    /// The directory of the programs that guests run for the workload `delete-free`, one for each scheme.
    pub programs: PathBuf,
    /// This program, whose daemon runs in guests with the workload `fio`.
    pub daemon: PathBuf,
    /// How a busy process is started.
    pub hog: HogCommand,
}

/// How this program starts a copy of itself as a busy process.
#[derive(Clone, Debug)]
pub struct HogCommand {
    /// The program.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Host {
    /// Makes the warden responsible for an object until the returned guard is dropped.
    pub fn guard(&self, object: Guarded) -> Result<Guard> {
        self.warden.guard(object.clone())?;
        Ok(Guard { warden: Arc::clone(&self.warden), object, gone: true })
    }

    /// The same for a process.
    pub fn guard_process(&self, pid: i32) -> Result<Guard> {
        self.guard(Guarded::process(&self.proc_root, pid)?)
    }
}

/// An object that the warden removes if this process dies first.
pub struct Guard {
    warden: Arc<Warden>,
    object: Guarded,
    gone: bool,
}

impl Guard {
    /// Leaves the object to the warden for good, because this process could not remove it.
    pub fn leave_to_warden(&mut self) {
        self.gone = false;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.gone {
            // Fails only if the warden is gone, and then there is nothing to release.
            let _ = self.warden.release(&self.object);
        }
    }
}
