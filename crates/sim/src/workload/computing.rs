//! Processes that only compute in user space, beside the workload. On their vCPUs RCU learns of quiescent states only
//! by ticks.

use std::ops::Range;

use reprieve_study::units::SECOND_NS;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::task::{Op, Program};

/// A stretch of computing. It is long because a preemption point of the kernel stands between two.
const STRETCH_NS: u64 = SECOND_NS;

struct Computing;

/// Adds a process of that weight (1024 is nice 0) to each of these vCPUs.
pub fn add(guest: &mut Guest, vcpus: Range<usize>, weight: u32) {
    for v in vcpus {
        let task = guest.add_weighted(Box::new(Computing), &[v], weight);
        if let Some(io) = guest.io_mut() {
            io.computing.push(task);
        }
    }
}

impl Program for Computing {
    fn next(&mut self, _: &mut Env<'_>) -> Op {
        Op::Run { ns: STRETCH_NS, mode: Mode::User }
    }
}
