//! arc-swap, `load`: the read that its documentation recommends in general.

use arc_swap::ArcSwap;
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::Arc;

struct Loads(ArcSwap<Value>);

impl Cell for Loads {
    const IDENTITY: Identity =
        Identity::value("value-arc-swap", "arc-swap", env!("LIBRARY_VERSION_arc_swap"));
    const NOTE: &'static str = "a guard per read; freed with the last reference";
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(ArcSwap::from_pointee(value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        **self.0.load()
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.store(Arc::new(value));
    }
}

fn main() -> ExitCode {
    value::main::<Loads>()
}
