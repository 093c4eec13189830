//! haphazard as it is: the library waits for 1,000 nodes, or two seconds.

use reprieve_peers::libraries::haphazard::Hazards;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Hazards<false>>()
}
