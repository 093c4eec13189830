//! reprieve-rcu, a lock and an unlock per look-up; a node is freed by the call that retires it, unless a reader is
//! preempted within its section.

use reprieve_peers::reprieve::{Kind, Registered, Reprieve, identity};
use reprieve_peers::{Found, Identity, Options, Reader, Section, Sleep, Table, table::acquire};
use std::process::ExitCode;

struct Locked(reprieve_rcu::Reader);

impl Kind for Locked {
    const IDENTITY: Identity = identity("reprieve-locked", "lock");
    const NOTES: &'static [&'static str] = &["freed by the writer, in a call that retires"];
    type Reader = Self;
}

impl Registered for Locked {
    fn new(registered: reprieve_rcu::Reader, _: &Options) -> Self {
        Self(registered)
    }
}

impl Reader for Locked {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        let _guard = self.0.lock();
        // SAFETY: a node that the section may reach is not freed until the guard is dropped.
        section.hold(key, unsafe { table.find(key, acquire) })
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Locked>>()
}
