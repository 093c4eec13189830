//! arc-swap, `load_full`: for values that are held for long.

use reprieve_peers::libraries::arc_swap::Swap;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::value::main::<Swap<true>>()
}
