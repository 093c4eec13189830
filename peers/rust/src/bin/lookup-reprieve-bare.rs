//! The same look-up as `lookup-reprieve` without protection of its own: one section for as long as the thread runs.

use reprieve_peers::lookup::{self, Map};
use reprieve_peers::{Identity, reprieve};
use reprieve_rcu::{Domain, Guard, RcuMap};
use std::process::ExitCode;

struct Bare(RcuMap<u64, u64, ahash::RandomState>);

impl Map for Bare {
    const IDENTITY: Identity = reprieve::identity("lookup-reprieve-bare", "lookup");
    type Handle<'m> = Guard<'static>;

    fn build(_capacity: usize, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        Self(entries.collect())
    }

    fn handle(&self) -> Guard<'static> {
        Domain::global().lock()
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'static>, key: u64) -> Option<u64> {
        self.0.get(&key, guard).copied()
    }
}

fn main() -> ExitCode {
    lookup::main::<Bare>()
}
