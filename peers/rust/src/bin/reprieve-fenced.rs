//! reprieve-rcu, readers that execute fences of their own; the writer calls no membarrier.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use reprieve_rcu::Fencing;
use std::process::ExitCode;

struct Fenced;

impl Kind for Fenced {
    const IDENTITY: Identity = identity("reprieve-fenced", "lock");
    const NOTES: &'static [&'static str] =
        &["a fence in each look-up; freed by the writer, in a call that retires"];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        reprieve_rcu::Options::new().fencing(Fencing::Fenced)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Fenced>>()
}
