//! dashmap: a locked shard at each look-up.

use ahash::RandomState;
use dashmap::DashMap;
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use std::process::ExitCode;

struct Dash(DashMap<u64, u64, RandomState>);

impl Map for Dash {
    const IDENTITY: Identity = Identity::lookup("lookup-dashmap", "dashmap", env!("LIBRARY_VERSION_dashmap"));
    type Handle<'m> = ();

    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let map = DashMap::with_capacity_and_hasher(capacity, RandomState::new());
        for (key, value) in entries {
            map.insert(key, value);
        }
        Self(map)
    }

    fn handle(&self) {}

    #[inline(always)]
    fn get(&self, _: &(), key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }
}

fn main() -> ExitCode {
    lookup::main::<Dash>()
}
