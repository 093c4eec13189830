//! The host as runs see it: what is handed in once and needed everywhere.

use std::path::PathBuf;
use std::sync::Arc;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{Guarded, Warden};

use crate::error::VmError;

/// The host's handles.
#[derive(Clone)]
pub struct Host {
    /// `/proc`.
    pub proc_root: ProcRoot,
    /// Cleans up after us whatever happens.
    pub warden: Arc<Warden>,
    /// The user's wish to stop.
    pub interrupt: Interrupt,
    /// The directory of the programs that guests run, one a scheme of the workload `delete-free`.
    pub programs: PathBuf,
    /// This program, whose daemon runs in guests with the workload `fio`.
    pub daemon: PathBuf,
    /// How a busy process is started.
    pub hog: HogCommand,
}

/// How this program starts itself again as a busy process.
#[derive(Clone, Debug)]
pub struct HogCommand {
    /// The program.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Host {
    /// Lets the warden guard something until the returned guard is dropped.
    pub fn guard(&self, object: Guarded) -> Result<Guard, VmError> {
        self.warden.guard(object.clone())?;
        Ok(Guard { warden: Arc::clone(&self.warden), object, gone: true })
    }

    /// Lets the warden guard a process.
    pub fn guard_process(&self, pid: i32) -> Result<Guard, VmError> {
        self.guard(Guarded::process(&self.proc_root, pid)?)
    }
}

/// Something that the warden removes should we not get to it.
pub struct Guard {
    warden: Arc<Warden>,
    object: Guarded,
    gone: bool,
}

impl Guard {
    /// Leaves the object to the warden even after this guard is dropped: we could not remove it ourselves.
    pub fn leave_to_warden(&mut self) {
        self.gone = false;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.gone {
            // A warden that is no more has nothing to forget.
            let _ = self.warden.release(&self.object);
        }
    }
}
