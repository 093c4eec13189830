//! reprieve-rcu, restartable sections while membarrier is quick, hazard slots and fences in the readers while it is slow:
//! for virtual machines whose vCPUs are descheduled. A thread makes all calls of membarrier, so that
//! readers use slots from the first one on.

use reprieve_peers::hands::Adaptive;
use reprieve_peers::reprieve::Reprieve;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Adaptive<true>>>()
}
