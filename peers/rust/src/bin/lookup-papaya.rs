//! papaya, pinned at each look-up.

use ahash::RandomState;
use papaya::HashMap;
use reprieve_peers::Identity;
use reprieve_peers::lookup::{self, Map};
use std::process::ExitCode;

struct Papaya(HashMap<u64, u64, RandomState>);

impl Map for Papaya {
    const IDENTITY: Identity = Identity::lookup("lookup-papaya", "papaya", env!("LIBRARY_VERSION_papaya"));
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
    lookup::main::<Papaya>()
}
