//! reprieve-rcu, restartable sections; each node is freed by the call that retires it.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use std::process::ExitCode;

struct Prompt;

impl Kind for Prompt {
    const IDENTITY: Identity = identity("reprieve-restartable", "restartable");
    const NOTES: &'static [&'static str] = &[
        "freed by the writer, in the call that retires; a stalled reader sleeps after its section, not in it",
    ];
    type Reader = Restartable;
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Prompt>>()
}
