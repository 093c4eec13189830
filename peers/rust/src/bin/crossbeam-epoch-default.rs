//! crossbeam-epoch as it is: the writer offers 64 nodes at a time.

use reprieve_peers::libraries::crossbeam_epoch::Epochs;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Epochs<false>>()
}
