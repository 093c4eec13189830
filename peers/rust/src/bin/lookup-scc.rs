//! scc: its HashIndex, whose readers take no lock and pin an epoch at each look-up.

use ahash::RandomState;
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use scc::HashIndex;
use std::process::ExitCode;

struct Scc(HashIndex<u64, u64, RandomState>);

impl Map for Scc {
    const IDENTITY: Identity = Identity::lookup("lookup-scc", "scc", env!("LIBRARY_VERSION_scc"));
    type Handle<'m> = ();

    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let map = HashIndex::with_capacity_and_hasher(capacity, RandomState::new());
        for (key, value) in entries {
            let _ = map.insert_sync(key, value);
        }
        Self(map)
    }

    fn handle(&self) {}

    #[inline(always)]
    fn get(&self, _: &(), key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }
}

fn main() -> ExitCode {
    lookup::main::<Scc>()
}
