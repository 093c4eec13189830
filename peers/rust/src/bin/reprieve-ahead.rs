//! reprieve-rcu, restartable sections, and a thread that makes all calls of membarrier from the first one on.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use std::process::ExitCode;

struct Ahead;

impl Kind for Ahead {
    const IDENTITY: Identity = identity("reprieve-ahead", "restartable");
    const NOTES: &'static [&'static str] = &["freed by the writer, in a later call that retires"];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        reprieve_rcu::Options::new().call_limit_ns(0)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Ahead>>()
}
