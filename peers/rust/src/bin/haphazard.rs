//! haphazard; the writer reclaims eagerly after each delete.

use reprieve_peers::libraries::haphazard::Hazards;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::main::<Hazards<true>>()
}
