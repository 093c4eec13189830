//! arc-swap, `load`: the read that its documentation recommends in general.

use reprieve_peers::libraries::arc_swap::Swap;
use std::process::ExitCode;

fn main() -> ExitCode {
    reprieve_peers::value::main::<Swap<false>>()
}
