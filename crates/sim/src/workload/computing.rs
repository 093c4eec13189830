//! Processes that compute in user space and do nothing else: an application beside the workload. Where one runs, RCU
//! learns of quiescent states by ticks alone.

use std::ops::Range;

use reprieve_study::units::SECOND_NS;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::task::{Op, Program};

/// A stretch of computing: long, because between two of them a preemption point of the kernel would stand.
const STRETCH_NS: u64 = SECOND_NS;

struct Computing;

/// Adds one of that weight (1024 is nice 0), pinned to each of these vCPUs.
pub fn add(guest: &mut Guest, vcpus: Range<usize>, weight: u32) {
    for v in vcpus {
        let task = guest.add_weighted(Box::new(Computing), v, weight);
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
