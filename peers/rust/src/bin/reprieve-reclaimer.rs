//! reprieve-rcu, restartable sections; a reclaimer thread on the writer's CPUs waits and frees. Its deadline is what
//! keeps the delay a hundredth of the tens of milliseconds that other libraries need when readers are preempted.

use reprieve_peers::Identity;
use reprieve_peers::reprieve::{Kind, Reprieve, Restartable, identity};
use std::process::ExitCode;

struct Thread;

impl Kind for Thread {
    const IDENTITY: Identity = identity("reprieve-reclaimer", "restartable");
    const RECLAIMER: bool = true;
    const NOTES: &'static [&'static str] = &[
        "freed by a reclaimer thread on the writer's CPUs, which lets garbage wait for 200 us; a stalled reader sleeps \
         after its section, not in it",
    ];
    type Reader = Restartable;

    fn options() -> reprieve_rcu::Options {
        reprieve_rcu::Options::new().batch(1 << 20).deadline_ns(200_000)
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<Reprieve<Thread>>()
}
