//! haphazard, the global domain: each thread keeps a hazard pointer, which a read sets.

use haphazard::{AtomicPtr, HazardPointer};
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;

struct Hazards(AtomicPtr<Value>);

impl Cell for Hazards {
    const IDENTITY: Identity =
        Identity::value("value-haphazard", "haphazard", env!("LIBRARY_VERSION_haphazard"));
    const NOTE: &'static str =
        "a hazard pointer and a fence per read; freed by the writer, at 1,000 values or after 2 s";
    type Reader<'c> = HazardPointer<'static>;
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(AtomicPtr::from(Box::new(value))), ())
    }

    fn reader(&self) -> HazardPointer<'static> {
        HazardPointer::new()
    }

    #[inline(always)]
    fn read(&self, hazard: &mut HazardPointer<'static>) -> Value {
        *self.0.safe_load(hazard).expect("never null")
    }

    fn replace(&self, _: &mut (), value: Value) {
        let old = self.0.swap(Box::new(value)).expect("never null");
        // SAFETY: unlinked by the swap, and retired once; readers protect it in the global domain.
        unsafe { old.retire() };
    }
}

fn main() -> ExitCode {
    value::main::<Hazards>()
}
