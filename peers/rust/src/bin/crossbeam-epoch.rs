//! crossbeam-epoch; the writer flushes after each delete.

use reprieve_peers::libraries::crossbeam_epoch::Epochs;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Epochs<true>>()
}
