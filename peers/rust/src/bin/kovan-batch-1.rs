//! kovan; the writer flushes after each delete.

use reprieve_peers::libraries::kovan::Kovan;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Kovan<true>>()
}
