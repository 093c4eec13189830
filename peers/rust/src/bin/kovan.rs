//! kovan as it is: batches of 64 nodes.

use reprieve_peers::libraries::kovan::Kovan;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Kovan<false>>()
}
