//! The load of a pointer to a value that is never freed: the zero of every read cost.

use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Bare(AtomicPtr<Value>);

impl Cell for Bare {
    const IDENTITY: Identity = Identity::value("value-bare", "none", "0");
    const NOTE: &'static str = "an acquire load of a pointer; old values are leaked";
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(AtomicPtr::new(Box::leak(Box::new(value)))), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        // SAFETY: a value that was published is never freed.
        unsafe { *self.0.load(Ordering::Acquire) }
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.store(Box::leak(Box::new(value)), Ordering::Release);
    }
}

fn main() -> ExitCode {
    value::main::<Bare>()
}
