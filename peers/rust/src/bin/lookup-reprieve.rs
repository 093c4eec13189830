//! `RcuMap::copied`, and `copied_many`.

use reprieve_peers::lookup::{self, Map, TOGETHER};
use reprieve_peers::{Identity, reprieve};
use reprieve_rcu::RcuMap;
use std::process::ExitCode;

struct Reprieve(RcuMap<u64, u64, ahash::RandomState>);

impl Map for Reprieve {
    const IDENTITY: Identity = reprieve::identity("lookup-reprieve", "lookup");
    type Handle<'m> = ();

    fn build(_capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        Self(entries.collect())
    }

    fn handle(&self) {}

    #[inline(always)]
    fn get(&self, (): &(), key: u64) -> Option<u64> {
        self.0.copied(&key)
    }

    #[inline(always)]
    fn get_many(&self, (): &(), keys: &[u64; TOGETHER]) -> [Option<u64>; TOGETHER] {
        self.0.copied_many(keys)
    }
}

fn main() -> ExitCode {
    lookup::main::<Reprieve>()
}
