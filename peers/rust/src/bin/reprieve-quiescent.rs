//! reprieve-rcu, readers that stay online and report quiescent states, as event loops do.

use reprieve_peers::reprieve::{Kind, Registered, Reprieve, identity};
use reprieve_peers::{Found, Identity, Options, Reader, Section, Sleep, Table, table::acquire};
use std::process::ExitCode;

/// A reader that lives as long as its thread, online.
struct EventLoop {
    online: reprieve_rcu::Online<'static>,
    every: u64,
    until_quiescent: u64,
}

impl Kind for EventLoop {
    const IDENTITY: Identity = identity("reprieve-quiescent", "quiescent");
    const NOTES: &'static [&'static str] = &["freed by the writer, in a call that retires"];
    type Reader = Self;
}

impl Registered for EventLoop {
    fn new(registered: reprieve_rcu::Reader, options: &Options) -> Self {
        // Leaked: the section borrows it. The thread's end gives the registration back.
        let online = Box::leak(Box::new(registered)).online();
        Self { online, every: options.quiescent_every, until_quiescent: options.quiescent_every }
    }
}

impl Reader for EventLoop {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // SAFETY: a node that the thread may reach is not freed until its next quiescent state.
        let found = section.hold(key, unsafe { table.find(key, acquire) });
        self.until_quiescent -= 1;
        if self.until_quiescent == 0 {
            self.until_quiescent = self.every;
            self.online.quiescent();
        }
        found
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<EventLoop>>()
}
