//! reprieve-rcu, restartable sections; nodes of 2 ms share a grace period, and the writer frees them without a thread.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use std::process::ExitCode;

struct Deadline;

impl Kind for Deadline {
    const IDENTITY: Identity = identity("reprieve-deadline", "restartable");
    const NOTES: &'static [&'static str] = &[
        "freed by the writer, in the first call after a batch's 2 ms; a stalled reader sleeps after its section, not \
         in it",
    ];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        // The deadline alone closes batches.
        reprieve_rcu::Options::new().batch(1 << 20).deadline_ns(2_000_000)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Deadline>>()
}
