//! The clone microbenchmark: one process per vCPU calls `clone()` into new namespaces in a loop. The child exits at
//! once. A kernel worker takes all network namespaces that have gathered, waits for grace periods (`cleanup_net` in
//! Linux: `synchronize_rcu()`, two expedited grace periods, `rcu_barrier()`), and tears them down. It calls
//! `cond_resched()` between two namespaces.

use std::cell::RefCell;
use std::rc::Rc;

use reprieve_study::units::MILLISECOND_NS;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::memory::{Cache, Mobility, Object};
use crate::guest::task::{Op, Program};
use crate::workload::Pace;

/// CPU time to clone into a network namespace: device, sysctl tables, /proc entries. Fitted, with the constants below,
/// to `rcu-clone`'s baseline: 199 clones a second on 2 vCPUs that are 14 % idle. The fit gives 198 and 19 %.
const NET_US: u64 = 3_100;
/// CPU time for any other namespace.
const OTHER_US: u64 = 300;
/// CPU time for the process itself: fork, exit, wait.
const PROCESS_US: u64 = 900;
/// CPU time to tear down one network namespace.
const TEAR_DOWN_US: u64 = 4_100;
/// Slab objects of a network namespace, of [`NET_OBJECT_BYTES`] each: 320 KiB in all, from the slab's growth per clone
/// in `rcu-clone`'s baseline.
const NET_OBJECTS: usize = 160;
const NET_OBJECT_BYTES: u32 = 2048;
/// Slab objects of any other namespace, of [`OTHER_OBJECT_BYTES`] each.
const OTHER_OBJECTS: usize = 6;
const OTHER_OBJECT_BYTES: u32 = 512;
/// Objects that a process frees through `call_rcu()` at its exit: task, credentials, signal handlers, pids, files.
const PROCESS_OBJECTS: usize = 10;
/// How long a worker pauses when memory is short, as in the real benchmark.
const SHORTAGE_PAUSE_NS: u64 = 10 * MILLISECOND_NS;

/// Network namespaces to tear down.
#[derive(Default)]
struct Dying {
    objects: Vec<Vec<Object>>,
}

type Shared = Rc<RefCell<Dying>>;

/// Adds the workers, one per vCPU from vCPU 0 on, and the kernel worker that tears down namespaces.
pub fn add(guest: &mut Guest, pace: Pace, workers: usize, namespaces: &[String], stop_below_bytes: u64) {
    let net = namespaces.iter().any(|name| name == "net");
    let mount = namespaces.iter().any(|name| name == "mnt");
    let others = namespaces.len() - usize::from(net);
    let net_cache = guest.memory.add_cache(NET_OBJECT_BYTES, Mobility::Unmovable);
    let other_cache = guest.memory.add_cache(OTHER_OBJECT_BYTES, Mobility::Unmovable);
    let dying = Shared::default();
    let cleaner =
        Cleaner { dying: dying.clone(), batch: Vec::new(), step: 0, tear_down_ns: pace.us(TEAR_DOWN_US) };
    let cleaner = guest.add_program(Box::new(cleaner), None);
    for v in 0..workers {
        let worker = Worker {
            dying: dying.clone(),
            cleaner,
            net: net.then_some(net_cache),
            others,
            other_cache,
            mount,
            ns: pace.us(PROCESS_US + OTHER_US * others as u64 + if net { NET_US } else { 0 }),
            stop_below_bytes,
            held: Vec::new(),
            step: 0,
        };
        guest.add_program(Box::new(worker), Some(v));
    }
}

struct Worker {
    dying: Shared,
    cleaner: TaskId,
    net: Option<Cache>,
    others: usize,
    other_cache: Cache,
    mount: bool,
    ns: u64,
    stop_below_bytes: u64,
    held: Vec<Object>,
    step: u32,
}

impl Worker {
    /// Allocates the objects of a child and its namespaces; frees them again if memory runs out.
    fn clone(&mut self, env: &mut Env<'_>) -> Option<Vec<Object>> {
        let mut net = Vec::new();
        let mut whole = true;
        for _ in 0..self.net.map_or(0, |_| NET_OBJECTS) {
            match self.net.and_then(|cache| env.alloc(cache).ok()) {
                Some(object) => net.push(object),
                None => whole = false,
            }
        }
        for _ in 0..self.others * OTHER_OBJECTS + PROCESS_OBJECTS {
            match env.alloc(self.other_cache) {
                Ok(object) => self.held.push(object),
                Err(_) => whole = false,
            }
        }
        if whole {
            return Some(net);
        }
        net.into_iter().chain(self.held.drain(..)).for_each(|object| env.free(object));
        None
    }
}

impl Program for Worker {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        self.step += 1;
        match self.step {
            1 => {
                let net = if env.available_bytes() < self.stop_below_bytes { None } else { self.clone(env) };
                let Some(net) = net else {
                    self.step = 0;
                    env.counters.memory_shortages += 1;
                    return Op::Sleep { ns: SHORTAGE_PAUSE_NS };
                };
                if self.net.is_some() {
                    self.dying.borrow_mut().objects.push(net);
                }
                Op::Run { ns: self.ns, mode: Mode::Kernel }
            }
            2 => {
                env.wake(self.cleaner);
                for object in self.held.drain(..) {
                    env.free_deferred(object);
                }
                env.back_pressure().unwrap_or(Op::Schedule)
            }
            // Unmounting waits for an expedited grace period.
            3 if self.mount => Op::SynchronizeExpedited,
            _ => {
                self.step = 0;
                env.counters.operations += 1;
                Op::Schedule
            }
        }
    }
}

struct Cleaner {
    dying: Shared,
    batch: Vec<Vec<Object>>,
    step: u32,
    tear_down_ns: u64,
}

impl Program for Cleaner {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        self.step += 1;
        match self.step {
            1 => {
                self.batch = std::mem::take(&mut self.dying.borrow_mut().objects);
                if self.batch.is_empty() {
                    self.step = 0;
                    return Op::Wait;
                }
                Op::Synchronize
            }
            2 | 3 => Op::SynchronizeExpedited,
            4 => Op::Barrier,
            // Each namespace is an operation of its own, so that a preemption point lies between two.
            _ => match self.batch.pop() {
                Some(objects) => {
                    objects.into_iter().for_each(|object| env.free(object));
                    Op::Run { ns: self.tear_down_ns, mode: Mode::Kernel }
                }
                None => {
                    self.step = 0;
                    Op::Schedule
                }
            },
        }
    }
}
