//! arc-swap, `Cache`: each thread keeps an `Arc` and looks whether it is still the current one.

use arc_swap::{ArcSwap, Cache};
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::Arc;

struct Cached(ArcSwap<Value>);

impl Cell for Cached {
    const IDENTITY: Identity =
        Identity::value("value-arc-swap-cache", "arc-swap", env!("LIBRARY_VERSION_arc_swap"));
    const NOTE: &'static str = "a cache per thread; an old value lives until every thread has read again";
    type Reader<'c> = Cache<&'c ArcSwap<Value>, Arc<Value>>;
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(ArcSwap::from_pointee(value)), ())
    }

    fn reader(&self) -> Cache<&ArcSwap<Value>, Arc<Value>> {
        Cache::new(&self.0)
    }

    #[inline(always)]
    fn read(&self, cache: &mut Cache<&ArcSwap<Value>, Arc<Value>>) -> Value {
        **cache.load()
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.store(Arc::new(value));
    }
}

fn main() -> ExitCode {
    value::main::<Cached>()
}
