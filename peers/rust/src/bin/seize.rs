//! seize with batches of one node.

use reprieve_peers::libraries::seize::Seize;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Seize<true>>()
}
