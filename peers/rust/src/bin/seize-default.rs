//! seize as it is: batches of 32 nodes.

use reprieve_peers::libraries::seize::Seize;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Seize<false>>()
}
