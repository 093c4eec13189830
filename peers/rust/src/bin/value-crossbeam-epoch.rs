//! crossbeam-epoch, the default collector: a pin per read.

use crossbeam_epoch::{self as epoch, Atomic, Owned};
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

struct Epochs(Atomic<Value>);

impl Cell for Epochs {
    const IDENTITY: Identity =
        Identity::value("value-crossbeam-epoch", "crossbeam-epoch", env!("LIBRARY_VERSION_crossbeam_epoch"));
    const NOTE: &'static str = "a pin per read; freed two epochs later, by a thread that pins";
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(Atomic::new(value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        let guard = epoch::pin();
        // SAFETY: never null; a value that the pinned thread may reach is not freed until it unpins.
        *unsafe { self.0.load(Ordering::Acquire, &guard).deref() }
    }

    fn replace(&self, _: &mut (), value: Value) {
        let guard = epoch::pin();
        let old = self.0.swap(Owned::new(value), Ordering::AcqRel, &guard);
        // SAFETY: unlinked by the swap, and destroyed once.
        unsafe { guard.defer_destroy(old) };
    }
}

fn main() -> ExitCode {
    value::main::<Epochs>()
}
