//! The memory microbenchmark: kernel threads, one a vCPU, allocate objects and free them through `call_rcu()`, with a
//! call of `schedule()` after every burst.

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::task::{Op, Program};
use crate::memory::{Cache, Mobility};
use crate::workload::Pace;

/// CPU time of a pair of allocation and `call_rcu()` in the worker, besides the allocator's and RCU's own. Fitted to
/// the throughput of `rcu-memory`'s baseline, 2.8e5 pairs a second on 2 vCPUs.
const PAIR_US: u64 = 4;
/// CPU time of the worker's own bookkeeping after a burst: it sums up the counters of all CPUs. Part of the same fit.
const BURST_US: u64 = 6;

struct Worker {
    cache: Cache,
    burst: u32,
    pause_ns: u64,
    limit_objects: u64,
    batched: bool,
    pair_ns: u64,
    burst_ns: u64,
    /// Pairs that are left of the burst in progress.
    left: u32,
    after_burst: bool,
}

/// Pairs that take effect at once: a long burst spreads over its time.
const PIECE: u32 = 64;

/// Adds a worker for each vCPU.
pub fn add(
    guest: &mut Guest,
    pace: Pace,
    object_bytes: u64,
    burst: u32,
    pause_us: u64,
    limit_objects: u64,
    batched: bool,
) {
    let cache = guest.memory.add_cache(object_bytes as u32, Mobility::Unmovable);
    for v in 0..guest.vcpus().len() {
        let worker = Worker {
            cache,
            burst,
            pause_ns: pause_us * 1000,
            limit_objects,
            batched,
            pair_ns: pace.us(PAIR_US),
            burst_ns: pace.us(BURST_US),
            left: 0,
            after_burst: false,
        };
        guest.add_program(Box::new(worker), Some(v));
    }
}

impl Worker {
    fn stall(&mut self, env: &mut Env<'_>) -> Op {
        env.counters().stalls += 1;
        Op::SleepJiffies(1)
    }
}

impl Program for Worker {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        if std::mem::take(&mut self.after_burst) {
            return if self.pause_ns > 0 { Op::Sleep { ns: self.pause_ns } } else { Op::Schedule };
        }
        if self.left == 0 {
            if env.backlog() >= self.limit_objects {
                return self.stall(env);
            }
            self.left = self.burst;
        }
        let piece = self.left.min(PIECE);
        for _ in 0..piece {
            let Ok(object) = env.alloc(self.cache) else {
                self.left = 0;
                return self.stall(env);
            };
            if self.batched {
                env.free_batched(object);
            } else {
                env.free_deferred(object);
            }
            env.counters().operations += 1;
        }
        self.left -= piece;
        let ns = self.pair_ns * u64::from(piece);
        if self.left > 0 {
            return Op::RunOn { ns };
        }
        self.after_burst = true;
        Op::Run { ns: ns + self.burst_ns, mode: Mode::Kernel }
    }
}
