//! reprieve-rcu, restartable sections, and a writer that calls membarrier however long it takes.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use std::process::ExitCode;

struct Waiting;

impl Kind for Waiting {
    const IDENTITY: Identity = identity("reprieve-waiting", "restartable");
    const NOTES: &'static [&'static str] = &["freed by the writer, in a call that retires"];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        reprieve_rcu::Options::new().call_limit_ns(u64::MAX)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Waiting>>()
}
