//! arc-swap: a read borrows the current `Arc`, or clones it.

use crate::Identity;
use crate::value::{Cell, Value};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The library; a read clones the `Arc` if it takes it in full.
pub struct Swap<const FULL: bool>(ArcSwap<Value>);

impl<const FULL: bool> Cell for Swap<FULL> {
    const IDENTITY: Identity = Identity::value(
        if FULL { "value-arc-swap-full" } else { "value-arc-swap" },
        "arc-swap",
        env!("LIBRARY_VERSION_arc_swap"),
    );
    const NOTE: &'static str = if FULL {
        "an Arc cloned per read; freed with the last reference"
    } else {
        "a guard per read; freed with the last reference"
    };
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(ArcSwap::from_pointee(value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        if FULL { *self.0.load_full() } else { **self.0.load() }
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.store(Arc::new(value));
    }
}
