//! sdd as it is: an attempt to advance the epoch at every 128th delete.

use reprieve_peers::libraries::sdd::Sdd;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Sdd<false>>()
}
