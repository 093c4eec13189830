//! The memory microbenchmark: kernel threads, each on a vCPU of its own, allocate objects, free them through `call_rcu()`,
//! and call `schedule()` after every burst.

use reprieve_study::scenario::Memory;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::memory::{Cache, Mobility};
use crate::guest::task::{Op, Program};
use crate::workload::Pace;

/// CPU time of the worker for a pair of allocation and `call_rcu()`, without the allocator's and RCU's own. Fitted to
/// the throughput of `rcu-memory`'s baseline, 2.8e5 pairs a second on 2 vCPUs.
const PAIR_US: u64 = 4;
/// CPU time of the worker after a burst, to sum up the counters of all CPUs. Part of the same fit.
const BURST_US: u64 = 6;

struct Worker {
    cache: Cache,
    burst: u32,
    pause_ns: u64,
    limit_objects: u64,
    batched: bool,
    pair_ns: u64,
    burst_ns: u64,
    /// Other work after each burst.
    kernel_ns: u64,
    user_ns: u64,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Before a burst.
    Idle,
    /// `due` pairs have used their CPU time and take effect next. `left` pairs remain of the burst, with these.
    Pairs {
        due: u32,
        left: u32,
    },
    /// The burst is done; other work is next, in the kernel and then in user mode.
    Kernel,
    User,
    /// All work is done; the pause is next, or over.
    Pause,
}

/// Most pairs that take effect together, at the end of their CPU time. Callbacks queued after a tick and before the
/// next voluntary preemption point thus come after the tick's RCU work. In a real guest it is the same: the GP kthread
/// finds them when it starts a grace period, and requests the next one.
const PIECE: u32 = 64;

/// Adds the workers, one per vCPU from vCPU 0 on.
pub fn add(guest: &mut Guest, pace: Pace, workers: usize, asked: &Memory, limit_objects: u64) {
    let Memory { object_bytes, burst, pause_us, batched, kernel_us, user_us, .. } = *asked;
    let cache = guest.memory.add_cache(object_bytes as u32, Mobility::Unmovable);
    for v in 0..workers {
        let worker = Worker {
            cache,
            burst,
            pause_ns: pause_us * 1000,
            limit_objects,
            batched,
            pair_ns: pace.us(PAIR_US),
            burst_ns: pace.us(BURST_US),
            kernel_ns: pace.stated_us(kernel_us),
            user_ns: pace.stated_us(user_us),
            stage: Stage::Idle,
        };
        guest.add_program(Box::new(worker), Some(v));
    }
}

impl Worker {
    /// Waits a tick, because too much memory waits for a grace period or none is left.
    fn wait_for_memory(&mut self, env: &mut Env<'_>) -> Op {
        env.counters.memory_shortages += 1;
        self.stage = Stage::Idle;
        Op::SleepJiffies(1)
    }

    /// Spends the CPU time of the next pairs.
    fn begin(&mut self, left: u32, more_ns: u64) -> Op {
        let due = left.min(PIECE);
        self.stage = Stage::Pairs { due, left };
        Op::RunOn { ns: self.pair_ns * u64::from(due) + more_ns }
    }

    /// What comes after the burst, from that stage on.
    fn other_work(&mut self, from: Stage) -> Op {
        if matches!(from, Stage::Kernel) && self.kernel_ns > 0 {
            self.stage = Stage::User;
            return Op::Run { ns: self.kernel_ns, mode: Mode::Kernel };
        }
        self.stage = Stage::Pause;
        if self.user_ns > 0 {
            return Op::Run { ns: self.user_ns, mode: Mode::User };
        }
        if self.pause_ns > 0 { Op::Run { ns: 0, mode: Mode::Kernel } } else { Op::Schedule }
    }

    /// Lets one pair take effect; false if memory ran out.
    fn pair(&self, env: &mut Env<'_>) -> bool {
        let Ok(object) = env.alloc(self.cache) else { return false };
        if self.batched {
            env.free_batched(object);
        } else {
            env.free_deferred(object);
        }
        env.counters.operations += 1;
        true
    }
}

impl Program for Worker {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        match self.stage {
            Stage::Pairs { due, left } => {
                if !(0..due).all(|_| self.pair(env)) {
                    return self.wait_for_memory(env);
                }
                if left > due {
                    return self.begin(left - due, 0);
                }
                if let Some(op) = env.back_pressure() {
                    self.stage = Stage::Kernel;
                    return op;
                }
                self.other_work(Stage::Kernel)
            }
            Stage::Kernel | Stage::User => self.other_work(self.stage),
            Stage::Pause if self.pause_ns > 0 => {
                self.stage = Stage::Idle;
                Op::Sleep { ns: self.pause_ns }
            }
            Stage::Idle | Stage::Pause if env.backlog() >= self.limit_objects => self.wait_for_memory(env),
            Stage::Idle | Stage::Pause => self.begin(self.burst, self.burst_ns),
        }
    }
}
