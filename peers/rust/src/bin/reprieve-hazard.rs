//! reprieve-rcu, a restartable traversal that pins the node it finds; only the pinned node waits for its reader.

use reprieve_peers::reprieve::{Kind, Registered, Reprieve, identity};
use reprieve_peers::{Found, Identity, Options, Reader, Section, Sleep, Table, table::acquire};
use std::process::ExitCode;
use std::ptr;

/// The slot of a reader that lives as long as its thread.
struct Pinning(reprieve_rcu::Slot<'static>);

impl Kind for Pinning {
    const IDENTITY: Identity = identity("reprieve-hazard", "hazard");
    const NOTES: &'static [&'static str] = &["freed by the writer, in the call that retires, unless pinned"];
    type Reader = Self;
}

impl Registered for Pinning {
    fn new(registered: reprieve_rcu::Reader, _: &Options) -> Self {
        // Leaked: the slot borrows it. The thread's end gives the registration back.
        Self(Box::leak(Box::new(registered)).slot().expect("at most 256 readers"))
    }
}

impl Reader for Pinning {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // The hash needs no protection, and the bucket's address does not change.
        let bucket = table.bucket(key);
        // SAFETY: the traversal only loads; a node that it may reach is not freed before it ends or starts again, and
        // the writer retires nodes by their addresses.
        let guard = unsafe {
            self.0.acquire(move || Table::find_from(bucket, key, acquire).map_or(ptr::null(), ptr::from_ref))
        };
        section.hold(key, guard.as_deref())
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Pinning>>()
}
