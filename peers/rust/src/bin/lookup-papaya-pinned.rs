//! papaya, pinned once in each thread.

use ahash::RandomState;
use papaya::{HashMap, LocalGuard};
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use std::process::ExitCode;

struct PapayaPinned(HashMap<u64, u64, RandomState>);

impl Map for PapayaPinned {
    const IDENTITY: Identity =
        Identity::lookup("lookup-papaya-pinned", "papaya", env!("LIBRARY_VERSION_papaya"));
    type Handle<'m> = LocalGuard<'m>;

    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let map = HashMap::with_capacity_and_hasher(capacity, RandomState::new());
        for (key, value) in entries {
            map.pin().insert(key, value);
        }
        Self(map)
    }

    fn handle(&self) -> LocalGuard<'_> {
        self.0.guard()
    }

    #[inline(always)]
    fn get(&self, guard: &LocalGuard<'_>, key: u64) -> Option<u64> {
        self.0.get(&key, guard).copied()
    }
}

fn main() -> ExitCode {
    lookup::main::<PapayaPinned>()
}
