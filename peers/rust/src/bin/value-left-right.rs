//! left-right: two copies, of which readers enter one; each replacement is published at once.

use left_right::{Absorb, ReadHandle, ReadHandleFactory, WriteHandle};
use reprieve_peers::Identity;
use reprieve_peers::value::{self, Cell, Value};
use std::process::ExitCode;

struct LeftRight(ReadHandleFactory<Config>);

impl Cell for LeftRight {
    const IDENTITY: Identity =
        Identity::value("value-left-right", "left-right", env!("LIBRARY_VERSION_left_right"));
    const NOTE: &'static str =
        "an enter per read; both copies are overwritten, and the writer waits for readers";
    type Reader<'c> = ReadHandle<Config>;
    type Writer = WriteHandle<Config, Value>;

    fn new(value: Value) -> (Self, WriteHandle<Config, Value>) {
        let (write, read) = left_right::new_from_empty::<Config, Value>(Config(value));
        (Self(read.factory()), write)
    }

    fn reader(&self) -> ReadHandle<Config> {
        self.0.handle()
    }

    #[inline(always)]
    fn read(&self, handle: &mut ReadHandle<Config>) -> Value {
        handle.enter().expect("the writer outlives the readers").0
    }

    fn replace(&self, writer: &mut WriteHandle<Config, Value>, value: Value) {
        writer.append(value).publish();
    }
}

#[derive(Clone)]
struct Config(Value);

impl Absorb<Value> for Config {
    fn absorb_first(&mut self, value: &mut Value, _: &Self) {
        self.0 = *value;
    }

    fn sync_with(&mut self, first: &Self) {
        self.0 = first.0;
    }
}

fn main() -> ExitCode {
    value::main::<LeftRight>()
}
