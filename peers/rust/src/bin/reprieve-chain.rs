//! reprieve-rcu, look-ups of the library's own in one piece of assembly; each node is freed by the call that retires it.

use reprieve_peers::reprieve::{Kind, Registered, Reprieve, identity};
use reprieve_peers::{Found, Identity, Options, Reader, Section, Sleep, Table};
use reprieve_rcu::Domain;
use std::process::ExitCode;

struct Chain(Domain);

impl Kind for Chain {
    const IDENTITY: Identity = identity("reprieve-chain", "restartable, copies");
    const NOTES: &'static [&'static str] = &[
        "freed by the writer, in the call that retires; the reader copies the value in its section, and computes and sleeps after",
    ];
    type Reader = Self;
}

impl Registered for Chain {
    fn new(registered: reprieve_rcu::Reader, _: &Options) -> Self {
        Self(registered.domain().clone())
    }
}

impl Reader for Chain {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // SAFETY: the writer unlinks a node before it retires it in this domain; links are not marked.
        let copy = unsafe { self.0.find_in_chain(table.bucket(key), &key) };
        section.stall();
        section.hold_copy(key, copy)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Chain>>()
}
