//! sdd; an attempt to advance the epoch at each delete.

use reprieve_peers::libraries::sdd::Sdd;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Sdd<true>>()
}
