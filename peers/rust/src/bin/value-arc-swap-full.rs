//! arc-swap, `load_full`: for values that are held for long.

use arc_swap::ArcSwap;
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::Arc;

struct Full(ArcSwap<Value>);

impl Cell for Full {
    const IDENTITY: Identity =
        Identity::value("value-arc-swap-full", "arc-swap", env!("LIBRARY_VERSION_arc_swap"));
    const NOTE: &'static str = "an Arc cloned per read; freed with the last reference";
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(ArcSwap::from_pointee(value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        *self.0.load_full()
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.store(Arc::new(value));
    }
}

fn main() -> ExitCode {
    value::main::<Full>()
}
