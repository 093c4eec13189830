//! std RwLock.

use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;
use std::sync::RwLock;

struct Locked(RwLock<Value>);

impl Cell for Locked {
    const IDENTITY: Identity = Identity::value("value-std-rwlock", "std", env!("LIBRARY_VERSION_std"));
    const NOTE: &'static str = "a read lock per read; the value is overwritten";
    type Reader<'c> = ();
    type Writer = ();

    fn new(value: Value) -> (Self, ()) {
        (Self(RwLock::new(value)), ())
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, _: &mut ()) -> Value {
        *self.0.read().expect("nobody panics with the lock")
    }

    fn replace(&self, _: &mut (), value: Value) {
        *self.0.write().expect("nobody panics with the lock") = value;
    }
}

fn main() -> ExitCode {
    value::main::<Locked>()
}
