//! What a program sees of its guest while it decides its next operation: the allocator, RCU, and little else. What it
//! does here takes effect at once; the CPU time for it is charged before its operation begins.

use crate::guest::block::{BlockEvent, By, Pages};
use crate::guest::callback;
use crate::guest::costs::Costs;
use crate::guest::ids::TaskId;
use crate::guest::io::{BlockIo, IoSide};
use crate::guest::memory::{Cache, Frame, Memory, Mobility, Object, OutOfMemory};
use crate::guest::network::Packet;
use crate::guest::rcu_side::RcuSide;
use crate::latency::Latencies;
use crate::random::Stream;

/// A program's surroundings.
pub struct Env<'a> {
    /// Simulated time.
    pub now_ns: u64,
    /// The vCPU that the task runs on.
    pub vcpu: usize,
    /// The task.
    pub task: TaskId,
    /// Whether the task holds a spinlock, and so must not sleep.
    pub is_atomic: bool,
    /// Time that the host has kept that vCPU waiting for a pCPU since it started, as it tells its guest.
    pub steal_ns: u64,
    /// The guest's costs.
    pub costs: &'a Costs,
    pub(super) memory: &'a mut Memory,
    pub(super) rcu: &'a mut RcuSide,
    pub(super) io: &'a mut IoSide,
    /// The program's stream of random numbers.
    pub random: &'a mut Stream,
    pub(super) to_wake: &'a mut Vec<TaskId>,
    pub(super) jiffies: u64,
    /// What the workload has counted.
    pub counters: &'a mut Counters,
    pub(super) spent_ns: u64,
}

/// What workloads count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Operations done: pairs, clones, transactions.
    pub operations: u64,
    /// Bytes that tasks have read or written.
    pub io_bytes: u64,
    /// Of them those that were read.
    pub read_bytes: u64,
    /// How often a worker could not go on because memory was short.
    pub memory_shortages: u64,
    /// CPU time for marks of read-side sections.
    pub marks_ns: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Latencies of `synchronize_rcu()`, in ns.
    pub sync_ns: Vec<u64>,
    /// Latencies of wake-ups or requests.
    pub latencies: Latencies,
    /// Workers that are ready for the measured part.
    pub ready: u32,
    /// When the last of them was.
    pub ready_ns: u64,
    /// Workers that are done.
    pub finished: u32,
    /// When the last of them was.
    pub finished_ns: u64,
}

impl Env<'_> {
    /// Charges CPU time in the kernel.
    pub fn spend(&mut self, ns: u64) {
        self.spent_ns += ns;
    }

    /// Charges an allocation, or counts that it failed.
    fn charge<T>(&mut self, allocated: Result<(T, u64), OutOfMemory>) -> Result<T, OutOfMemory> {
        self.counters.failures += u64::from(allocated.is_err());
        let (what, ns) = allocated?;
        self.spent_ns += ns;
        Ok(what)
    }

    /// Allocates an object.
    pub fn alloc(&mut self, cache: Cache) -> Result<Object, OutOfMemory> {
        if let Some(object) = self.reuse(cache) {
            return Ok(object);
        }
        let mut allocated = self.memory.alloc(self.vcpu, cache);
        if allocated.is_err() && self.return_latent() {
            allocated = self.memory.alloc(self.vcpu, cache);
        }
        self.charge(allocated)
    }

    /// Frees an object at once.
    pub fn free(&mut self, object: Object) {
        self.spent_ns += self.memory.free(self.vcpu, object);
    }

    /// Allocates a block of pages.
    pub fn alloc_pages(&mut self, order: u8, mobility: Mobility) -> Result<Frame, OutOfMemory> {
        let allocated = self.memory.alloc_pages(self.vcpu, order, mobility);
        self.charge(allocated)
    }

    /// Frees a block of pages.
    pub fn free_pages(&mut self, frame: Frame, order: u8) {
        self.spent_ns += self.memory.free_pages(self.vcpu, frame, order);
    }

    /// Frees an object after a grace period: `call_rcu()`.
    pub fn free_deferred(&mut self, object: Object) {
        self.spent_ns += self.costs.call_rcu_ns;
        if !self.rcu.keep_latent(self.vcpu, object) {
            self.rcu.add_outstanding(self.vcpu, self.memory, object);
            self.rcu.call(self.vcpu, callback::free(object));
        }
    }

    /// Frees an object after a grace period, in a batch with others: `kfree_rcu()`.
    pub fn free_batched(&mut self, object: Object) {
        self.spent_ns += self.costs.call_rcu_ns;
        if !self.rcu.keep_latent(self.vcpu, object) {
            self.rcu.add_outstanding(self.vcpu, self.memory, object);
            self.to_wake.extend(self.rcu.batched.push(self.vcpu, object, self.jiffies));
        }
    }

    /// Objects that wait for a grace period, all vCPUs.
    pub fn backlog(&self) -> u64 {
        self.rcu.backlog()
    }

    /// Memory that could be had.
    pub fn available_bytes(&self) -> u64 {
        self.memory.available_bytes()
    }

    /// Takes the next packet from the server's socket.
    pub fn receive(&mut self) -> Option<Packet> {
        self.io.network.socket.pop_front()
    }

    /// Answers a request. The answer leaves now.
    pub fn answer(&mut self, request: Packet) {
        self.counters.operations += 1;
        self.io.network.answers.push(request);
    }

    /// Wakes a task that waits.
    pub fn wake(&mut self, task: TaskId) {
        self.spent_ns += self.costs.wake_ns;
        self.to_wake.push(task);
    }
}

impl Env<'_> {
    fn io(&mut self) -> &mut BlockIo {
        self.io.disk.as_deref_mut().expect("a guest whose programs do I/O has a block layer")
    }

    fn by(&self) -> By {
        By { task: self.task, vcpu: self.vcpu, now_ns: self.now_ns }
    }

    /// Reads pages of a file. Returns whether they are all there; else the program should wait, and ask again.
    pub fn read(&mut self, pages: Pages) -> bool {
        let by = self.by();
        let (is_there, ns) = self.io().block.read(by, pages);
        self.spend(ns);
        is_there
    }

    /// Begins to write pages of a file: [`Env::is_written`] says when they are on the disk. Returns whether it was begun;
    /// else the program should wait, and ask again.
    pub fn write(&mut self, pages: Pages) -> bool {
        let by = self.by();
        let ns = self.io().block.write(by, pages);
        ns.into_iter().for_each(|ns| self.spend(ns));
        ns.is_some()
    }

    /// Whether no page of the range is on its way; else the program should wait, and ask again.
    pub fn is_written(&mut self, pages: Pages) -> bool {
        let task = self.task;
        self.io().block.wait_for(task, pages)
    }

    /// A task may run on these vCPUs alone from now on, a bit for each.
    pub fn set_mask(&mut self, task: TaskId, mask: u64) {
        self.io().change_mask(task, mask);
    }

    /// A beat was done.
    pub fn count_beat(&mut self) {
        self.io().beats_done += 1;
    }

    /// Starts and ends of requests since the last time.
    pub fn take_block_events(&mut self, into: &mut Vec<BlockEvent>) {
        self.io().block.take_events(into);
    }
}
