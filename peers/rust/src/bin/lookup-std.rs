//! std HashMap with ahash: not concurrent, the limit of what a concurrent table can reach.

use ahash::RandomState;
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use std::collections::HashMap;
use std::process::ExitCode;

struct Std(HashMap<u64, u64, RandomState>);

impl Map for Std {
    const IDENTITY: Identity = Identity::lookup("lookup-std", "std and ahash", env!("LIBRARY_VERSION_ahash"));
    type Handle<'m> = ();

    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(capacity, RandomState::new());
        map.extend(entries);
        Self(map)
    }

    fn handle(&self) {}

    #[inline(always)]
    fn get(&self, _: &(), key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }
}

fn main() -> ExitCode {
    lookup::main::<Std>()
}
