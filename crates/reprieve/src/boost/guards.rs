//! What puts quotas back if `reprieve boost` is killed: its warden, and if that is killed too, the next
//! `reprieve boost --apply`.

use reprieve_linux::boost::Lock;
use reprieve_linux::warden::{Guarded, Warden};

use crate::failure::Failure;
use crate::grounds;
use crate::migrate::runtime_folder;

/// The warden and the journal. Whoever has them may lend; there is one at a time on a host.
pub struct Guards {
    warden: Warden,
    lock: Lock,
}

impl Guards {
    /// Puts back what a killed process has left, and starts a warden.
    pub fn new() -> Result<Guards, Failure> {
        let lock = Lock::take(&runtime_folder().join("boost.lock"))?;
        Ok(Guards { warden: grounds::warden()?, lock })
    }

    /// Guards a quota.
    pub fn guard(&self, object: &Guarded) -> reprieve_linux::Result<()> {
        self.lock.guard(object.clone())?;
        let guarded = self.warden.guard(object.clone());
        if guarded.is_err() {
            // Nothing is lent of it.
            let _ = self.lock.release(object.clone());
        }
        guarded
    }

    /// Guards it no longer, because it is as it was.
    pub fn release(&self, object: &Guarded) {
        // If the warden has ended, it needs no message; and a quota that is as it was is not put back.
        let _ = self.warden.release(object);
        let _ = self.lock.release(object.clone());
    }
}
