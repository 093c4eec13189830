//! The QEMU guests of this host, for verbs that look into them.

use reprieve_linux::proc::ProcRoot;
use reprieve_vm::VmError;
use reprieve_vm::attach::{self, Qemu};

use crate::failure::Failure;

/// Most guests at a time.
pub const MAX_GUESTS: usize = 64;

/// Why a guest, or a file with its memory, cannot be read.
pub fn failure(name: &str, error: VmError) -> Failure {
    match error {
        VmError::Introspect(problem) => Failure::Failed(format!("{name}: {problem}")),
        other => match Failure::from(other) {
            Failure::Failed(text) => Failure::Failed(format!("{name}: {text}")),
            Failure::Usage(text) => Failure::Usage(format!("{name}: {text}")),
            Failure::Missing(text) => Failure::Missing(format!("{name}: {text}")),
        },
    }
}

/// The guests that were named, or all.
pub fn find(root: &ProcRoot, pids: &[i32]) -> Result<Vec<Qemu>, Failure> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    let found = match pids.is_empty() {
        false => pids.iter().map(|pid| attach::of(root, *pid)).collect::<Result<Vec<_>, VmError>>(),
        true => attach::all(root),
    };
    let found = found.map_err(|error| match error {
        VmError::Host(error) if error.is_gone() => Failure::Usage(error.to_string()),
        VmError::Introspect(problem) => Failure::Usage(problem),
        other => other.into(),
    })?;
    match found.len() {
        0 => Err(Failure::Missing(
            "no QEMU guest runs on this host that this user can see: run as root, in the host's PID namespace, or name one with \
             --pid"
                .into(),
        )),
        count if count > MAX_GUESTS => Err(Failure::Usage(format!(
            "{count} guests are more than {MAX_GUESTS}: name some with --pid"
        ))),
        _ => Ok(found),
    }
}
