//! reprieve-rcu, `RcuCell::get`: a copy, taken in a restartable section.

use reprieve_peers::value::{self, Cell, Value};
use reprieve_peers::{Identity, reprieve};
use reprieve_rcu::{Domain, RcuCell};
use std::process::ExitCode;

struct Get(RcuCell<Value>);

impl Cell for Get {
    const IDENTITY: Identity = reprieve::identity("value-reprieve", "value");
    const NOTE: &'static str =
        "a restartable section per read; an old value is freed in the call that replaces it";
    type Reader<'c> = ();
    type Writer = ();

    fn check() -> Result<(), String> {
        reprieve::check()
    }

    fn new(value: Value) -> (Self, ()) {
        (Self(RcuCell::in_domain(&Domain::default(), value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        self.0.get()
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.replace(value);
    }
}

fn main() -> ExitCode {
    value::main::<Get>()
}
