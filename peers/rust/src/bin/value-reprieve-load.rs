//! reprieve-rcu, `RcuCell::load` under `Reader::lock`: a reference, by a registered reader.

use reprieve_peers::value::{self, Cell, Value};
use reprieve_peers::{Identity, reprieve};
use reprieve_rcu::{Domain, RcuCell, Reader};
use std::process::ExitCode;

struct Load(RcuCell<Value>);

impl Cell for Load {
    const IDENTITY: Identity = reprieve::identity("value-reprieve-load", "value");
    const NOTE: &'static str = "a lock per read; an old value is freed in the call that replaces it, unless a reader is preempted within its section";
    type Reader<'c> = Reader;
    type Writer = ();

    fn check() -> Result<(), String> {
        reprieve::check()
    }

    fn new(value: Value) -> (Self, ()) {
        (Self(RcuCell::in_domain(&Domain::default(), value)), ())
    }

    fn reader(&self) -> Reader {
        self.0.domain().register("reader").expect("at most 256 readers")
    }

    #[inline(always)]
    fn read(&self, reader: &mut Reader) -> Value {
        *self.0.load(&reader.lock())
    }

    fn replace(&self, _: &mut (), value: Value) {
        self.0.replace(value);
    }
}

fn main() -> ExitCode {
    value::main::<Load>()
}
