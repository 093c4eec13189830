//! reprieve-rcu, restartable sections while membarrier is quick, fences in the readers while it is slow: for virtual
//! machines whose vCPUs are descheduled.

use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use reprieve_peers::{Identity, Options};
use reprieve_rcu::Fencing;
use std::process::ExitCode;

/// More than membarrier takes while all vCPUs run, in an emulated guest too; less than a vCPU is away under a quota.
const ABOVE_NS: u64 = 5_000_000;

struct Adaptive;

impl Kind for Adaptive {
    const IDENTITY: Identity = identity("reprieve-adaptive", "restartable");
    const NOTES: &'static [&'static str] = &[
        "readers execute fences while membarrier takes more than 5 ms; freed by the writer, in a call that retires",
    ];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        reprieve_rcu::Options::new().fencing(Fencing::Adaptive { above_ns: ABOVE_NS })
    }

    fn reader(registered: reprieve_rcu::Reader, options: &Options) -> Restartable {
        Restartable::new(registered, options)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Adaptive>>()
}
