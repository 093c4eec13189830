//! flurry, pinned at each look-up.

use ahash::RandomState;
use flurry::HashMap;
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use std::process::ExitCode;

struct Flurry(HashMap<u64, u64, RandomState>);

impl Map for Flurry {
    const IDENTITY: Identity = Identity::lookup("lookup-flurry", "flurry", env!("LIBRARY_VERSION_flurry"));
    type Handle<'m> = ();

    fn build(capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let map = HashMap::with_capacity_and_hasher(capacity, RandomState::new());
        for (key, value) in entries {
            map.pin().insert(key, value);
        }
        Self(map)
    }

    fn handle(&self) {}

    #[inline(always)]
    fn get(&self, _: &(), key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
}

fn main() -> ExitCode {
    lookup::main::<Flurry>()
}
