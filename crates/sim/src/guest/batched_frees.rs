//! `kfree_rcu()`: objects wait for a grace period in batches, with one callback for each batch. A kernel worker on each
//! vCPU hands the collected objects over to a batch, and frees a batch after its grace period.

use crate::guest::callback;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::memory::{Frame, Mobility, Object};
use crate::guest::rcu::kfree::{Kfree, Pushed, Settings};
use crate::guest::vcpu::Level;
use crate::guest::{Clock, Guest};

/// Objects that the worker frees between two preemption points: as many as a page has pointers.
const CHUNK: usize = 510;

#[derive(Debug)]
pub(super) struct BatchedFrees {
    kfree: Kfree<Object>,
    workers: Vec<Worker>,
}

/// The work of one vCPU's kernel worker.
#[derive(Debug, Default)]
struct Worker {
    task: Option<TaskId>,
    /// The jiffy at which it hands over the collected objects.
    monitor_at: Option<u64>,
    /// It should allocate pages of pointers.
    refill: bool,
    /// It should wait for an expedited grace period.
    expedite: bool,
    /// Batches whose grace period has ended.
    ready: Vec<usize>,
    /// Objects to free now.
    freeing: Vec<Object>,
    /// Empty pages of pointers.
    pages: Vec<Frame>,
}

impl BatchedFrees {
    pub(super) fn new(hz: u64, vcpus: usize) -> BatchedFrees {
        let workers = (0..vcpus).map(|_| Worker::default()).collect();
        BatchedFrees { kfree: Kfree::new(Settings::linux(hz), vcpus), workers }
    }

    pub(super) fn set_worker(&mut self, v: usize, task: TaskId) {
        self.workers[v].task = Some(task);
    }

    /// Collects an object. Returns the worker if it must wake now, or earlier than planned.
    pub(super) fn push(&mut self, v: usize, object: Object, jiffies: u64) -> Option<TaskId> {
        let Pushed { monitor, refill } = self.kfree.push(v as u32, object, jiffies);
        let worker = &mut self.workers[v];
        worker.refill |= refill;
        if let Some(delay) = monitor {
            worker.monitor_at = Some(jiffies + delay);
        }
        worker.task.filter(|_| refill || monitor.is_some())
    }

    /// Has the worker of a vCPU wait for an expedited grace period. Returns it: it must wake.
    pub(super) fn expedite(&mut self, v: usize) -> Option<TaskId> {
        self.workers[v].expedite = true;
        self.workers[v].task
    }

    /// The number of waiting objects.
    pub(super) fn backlog(&self) -> u64 {
        (0..self.workers.len()).map(|v| self.kfree.backlog(v as u32)).sum()
    }
}

impl Guest {
    /// Runs the next piece of work of a vCPU's kernel worker.
    pub(super) fn run_kworker(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.vcpus[v].mode = Mode::Kernel;
        let worker = &mut self.rcu.batched.workers[v];
        if std::mem::take(&mut worker.refill) {
            return self.refill_pages(v);
        }
        if std::mem::take(&mut worker.expedite) {
            return self.wait_expedited(clock, v, task);
        }
        if !worker.freeing.is_empty() {
            return self.free_chunk(v);
        }
        if let Some(batch) = worker.ready.pop() {
            return self.take_batch(v, batch);
        }
        match worker.monitor_at {
            Some(at) if at <= self.jiffies.now => self.hand_over_collected(clock, v),
            Some(at) => self.sleep_jiffies(v, task, at - self.jiffies.now),
            None => self.block(v, task),
        }
    }

    fn refill_pages(&mut self, v: usize) {
        let wanted = self.rcu.batched.kfree.refill(v as u32);
        let mut ns = 0;
        let mut got = 0;
        for _ in 0..wanted {
            let Ok((frame, cost_ns)) = self.memory.alloc_pages(v, 0, Mobility::Unmovable) else {
                break;
            };
            ns += cost_ns;
            got += 1;
            self.rcu.batched.workers[v].pages.push(frame);
        }
        ns += self.return_pages(v, got);
        self.vcpus[v].begin(Level::Task, ns);
    }

    /// Keeps some empty pages and frees the others. Returns the CPU time.
    fn return_pages(&mut self, v: usize, pages: u32) -> u64 {
        let surplus = self.rcu.batched.kfree.keep(v as u32, pages);
        let mut ns = 0;
        for _ in 0..surplus {
            if let Some(frame) = self.rcu.batched.workers[v].pages.pop() {
                ns += self.memory.free_pages(v, frame, 0);
            }
        }
        ns
    }

    fn take_batch(&mut self, v: usize, batch: usize) {
        let objects = self.rcu.batched.kfree.take(v as u32, batch);
        let freeing = &mut self.rcu.batched.workers[v].freeing;
        freeing.extend(objects.paged);
        freeing.extend(objects.chained);
        let ns = self.return_pages(v, objects.pages);
        self.vcpus[v].begin(Level::Task, ns + self.costs.wake_ns);
    }

    fn free_chunk(&mut self, v: usize) {
        let freeing = &mut self.rcu.batched.workers[v].freeing;
        let rest = freeing.len().saturating_sub(CHUNK);
        let freed: Vec<Object> = freeing.drain(rest..).collect();
        let mut ns = 0;
        for object in freed {
            self.rcu.remove_outstanding(v, &self.memory, object);
            ns += self.memory.free(v, object);
        }
        self.vcpus[v].begin(Level::Task, ns);
    }

    /// Hands the collected objects over to a batch and queues its callback.
    fn hand_over_collected(&mut self, clock: &mut Clock<'_>, v: usize) {
        let drained = self.rcu.batched.kfree.monitor(v as u32, self.jiffies.now);
        self.rcu.batched.workers[v].monitor_at = drained.monitor.map(|delay| self.jiffies.now + delay);
        self.vcpus[v].begin(Level::Task, self.costs.call_rcu_ns);
        if let Some(batch) = drained.batch {
            self.rcu.call(v, callback::batch(v, batch));
            self.apply_effects(clock, Some(v));
        }
    }

    /// A batch's grace period has ended: its worker frees the objects.
    pub(super) fn batch_ready(&mut self, clock: &mut Clock<'_>, here: usize, v: usize, batch: usize) {
        let worker = &mut self.rcu.batched.workers[v];
        worker.ready.push(batch);
        if let Some(task) = worker.task {
            self.wake_task(clock, task, Some(here));
        }
    }
}
