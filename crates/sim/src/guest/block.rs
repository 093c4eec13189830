//! A guest's block layer: page cache with read-ahead, merged requests, a virtual disk with a ring, and interrupts for
//! the vCPU that submitted.
//!
//! The path of a read: a task asks for pages. Pages that are neither cached nor pending become requests, as few as
//! their size allows (the plug), together with the pages read ahead. The ring takes a limited number; further requests
//! wait in the queue, where a request that continues another one is merged into it. The device interrupts the vCPU that
//! submitted. When that vCPU runs and takes the interrupt, the pages are present and waiting tasks wake.
//!
//! Invariants: a page is pending while exactly one request covers it; the ring never exceeds its size; a request is in
//! exactly one place: queue, ring, or the completions of a vCPU.
//!
//! Left out: write-back (a write waits for the disk), metadata, and several queues per vCPU.

pub mod cache;
pub mod read_ahead;

use std::collections::VecDeque;

use crate::device::DiskRequest;
use crate::guest::ids::TaskId;
use cache::{Cache, FileId, State};
use read_ahead::ReadAhead;

/// The parameters of a block layer. Sizes are in pages of the cache.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    /// Size of a page of the cache.
    pub page_bytes: u64,
    /// Size of the cache.
    pub cache_pages: usize,
    /// Most pages that are read ahead.
    pub read_ahead_pages: u32,
    /// Most pages of a request.
    pub request_pages: u32,
    /// Size of the ring.
    pub ring: usize,
    /// CPU time to submit a request.
    pub submit_ns: u64,
    /// CPU time of an interrupt per completed request.
    pub complete_ns: u64,
    /// Whether starts and ends of requests are traced.
    pub traced: bool,
    /// CPU time to trace one of them.
    pub trace_ns: u64,
}

/// A range of pages of a file; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The file.
    pub file: FileId,
    /// First page.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Pages {
    fn end(self) -> u32 {
        self.first + self.count
    }

    fn has(self, file: FileId, page: u32) -> bool {
        self.file == file && (self.first..self.end()).contains(&page)
    }
}

/// Who makes a request, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The task.
    pub task: TaskId,
    /// The vCPU that it runs on.
    pub vcpu: usize,
    /// When.
    pub now_ns: u64,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Io {
    pages: Pages,
    /// Who submitted it, and when; updated when it enters the ring.
    by: By,
    writes: bool,
}

/// A task that waits for a page.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: TaskId,
    file: FileId,
    page: u32,
}

/// The start or end of a request, as the block layer's tracepoints report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// When.
    pub at_ns: u64,
    /// The task that submitted it.
    pub task: TaskId,
    /// The vCPU that submitted it.
    pub vcpu: usize,
    /// Whether it is the start.
    pub begins: bool,
    /// For an end: the time from the start to the interrupt.
    pub took_ns: Option<u64>,
}

/// A block layer.
#[derive(Debug)]
pub struct Block {
    spec: BlockSpec,
    cache: Cache,
    read_ahead: Vec<ReadAhead>,
    requests: Vec<Option<Io>>,
    free: Vec<u32>,
    /// Requests waiting for room in the ring.
    queued: VecDeque<u32>,
    in_ring: usize,
    /// Requests of the ring that the device has not completed.
    at_device: usize,
    /// Completed requests, by the vCPU whose interrupt is pending.
    completions: Vec<Vec<u32>>,
    waiters: Vec<Waiter>,
    /// Requests to hand over to the device.
    leaving: VecDeque<u32>,
    /// Traced starts and ends.
    events: Vec<BlockEvent>,
    /// CPU time spent on tracing.
    pub(super) traced_ns: u64,
    /// Steps of long loops (the simulator's cost, not the guest's).
    work: u64,
}

/// How often a read retries when pages of its own range evict each other. After that it waits for the pending ones, and
/// retries when woken.
const PASSES: u32 = 64;

impl Block {
    /// An empty block layer.
    pub fn new(spec: BlockSpec, vcpus: usize) -> Block {
        Block {
            cache: Cache::new(spec.cache_pages),
            spec,
            read_ahead: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            queued: VecDeque::new(),
            in_ring: 0,
            at_device: 0,
            completions: vec![Vec::new(); vcpus],
            waiters: Vec::new(),
            leaving: VecDeque::new(),
            events: Vec::new(),
            traced_ns: 0,
            work: 0,
        }
    }

    /// Adds a file of that many pages, which begins at that byte of the disk.
    pub fn add_file(&mut self, start_byte: u64, pages: u32) -> FileId {
        self.read_ahead.push(ReadAhead::default());
        self.cache.add_file(start_byte, pages)
    }

    /// A task reads. Returns whether all pages are present, and the CPU time. If not, the task waits for the first
    /// missing page and should then ask again.
    pub fn read(&mut self, by: By, pages: Pages) -> (bool, u64) {
        let absent = self.absent(pages);
        let wanted = self.read_ahead[pages.file.0 as usize].read(
            pages,
            absent,
            self.cache.pages_of(pages.file),
            self.spec.read_ahead_pages,
        );
        let mut ns = 0;
        for range in wanted.into_iter().flatten() {
            ns += self.submit(by, range, false);
        }
        // New pages may have evicted others of the range; pending pages stay.
        for _ in 0..PASSES {
            let Some(first) = self.absent(pages) else { break };
            ns += self.submit(by, Pages { first, count: pages.end() - first, ..pages }, false);
        }
        let is_there = self.wait_for(by.task, pages);
        if is_there {
            (pages.first..pages.end()).for_each(|page| self.cache.touch(pages.file, page));
        }
        (is_there, ns)
    }

    /// A task writes: the pages are cached and go to the disk. Returns the CPU time. While one of the pages is pending,
    /// nothing is written (Linux locks such a page); the task waits and should ask again.
    pub fn write(&mut self, by: By, pages: Pages) -> Option<u64> {
        self.wait_for(by.task, pages).then(|| self.submit(by, pages, true))
    }

    /// Whether no page of the range is pending. If one is, the task waits for the first of them.
    pub fn wait_for(&mut self, task: TaskId, pages: Pages) -> bool {
        let pending = self.find(pages, State::Pending);
        if let Some(page) = pending {
            // Something else may have woken it, so it may still be on the list.
            self.waiters.retain(|waiter| waiter.task != task);
            self.waiters.push(Waiter { task, file: pages.file, page });
        }
        pending.is_none()
    }

    /// Takes the steps of long loops since the last call.
    pub(super) fn take_work(&mut self) -> u64 {
        let waiting = self.waiters.len() * self.completions.iter().map(Vec::len).sum::<usize>();
        std::mem::take(&mut self.work) + self.cache.take_work() + waiting as u64
    }

    fn absent(&mut self, pages: Pages) -> Option<u32> {
        self.find(pages, State::Absent)
    }

    fn find(&mut self, pages: Pages, state: State) -> Option<u32> {
        let found = (pages.first..pages.end()).find(|page| self.cache.state(pages.file, *page) == state);
        self.work += u64::from(found.map_or(pages.count, |page| page - pages.first));
        found
    }

    /// Makes requests for those pages of a range that need one. Returns the CPU time.
    fn submit(&mut self, by: By, range: Pages, writes: bool) -> u64 {
        let mut ns = 0;
        let mut page = range.first;
        self.work += u64::from(range.count);
        while page < range.end() {
            let first = page;
            while page < range.end()
                && page - first < self.spec.request_pages
                && self.needs_request(range.file, page, writes)
            {
                self.cache.begin(range.file, page);
                page += 1;
            }
            if page > first {
                let pages = Pages { file: range.file, first, count: page - first };
                ns += self.add(Io { pages, by, writes });
            } else {
                page += 1;
            }
        }
        ns
    }

    fn needs_request(&self, file: FileId, page: u32, writes: bool) -> bool {
        match self.cache.state(file, page) {
            State::Absent => true,
            State::Pending => false,
            State::Present | State::Used | State::Referenced => writes,
        }
    }

    /// Adds a request: to the ring if it has room, else merged or queued. Returns the CPU time.
    fn add(&mut self, io: Io) -> u64 {
        if self.in_ring < self.spec.ring {
            let id = self.name(io);
            return self.dispatch(io.by.now_ns, id);
        }
        if !self.merge(io) {
            let id = self.name(io);
            self.queued.push_back(id);
        }
        self.spec.submit_ns
    }

    fn name(&mut self, io: Io) -> u32 {
        let id = self.free.pop().unwrap_or(self.requests.len() as u32);
        if id as usize == self.requests.len() {
            self.requests.push(None);
        }
        self.requests[id as usize] = Some(io);
        id
    }

    /// Merges a request into the last one of the queue, if it continues that and fits.
    fn merge(&mut self, io: Io) -> bool {
        let Some(last) = self.queued.back().and_then(|id| self.requests[*id as usize].as_mut()) else {
            return false;
        };
        let continues = last.pages.file == io.pages.file && last.pages.end() == io.pages.first;
        let fits = last.pages.count + io.pages.count <= self.spec.request_pages;
        let merges = continues && fits && last.writes == io.writes && last.by.task == io.by.task;
        if merges {
            last.pages.count += io.pages.count;
        }
        merges
    }

    fn dispatch(&mut self, now_ns: u64, id: u32) -> u64 {
        self.in_ring += 1;
        self.at_device += 1;
        self.leaving.push_back(id);
        self.requests[id as usize].as_mut().expect("a request that exists").by.now_ns = now_ns;
        self.spec.submit_ns + self.record(now_ns, id, true)
    }

    /// Traces a start or an end, if tracing is on. Returns the CPU time.
    fn record(&mut self, at_ns: u64, id: u32, begins: bool) -> u64 {
        if !self.spec.traced {
            return 0;
        }
        let By { task, vcpu, now_ns } = self.io(id).by;
        let took_ns = (!begins).then_some(at_ns - now_ns);
        self.events.push(BlockEvent { at_ns, task, vcpu, begins, took_ns });
        self.traced_ns += self.spec.trace_ns;
        self.spec.trace_ns
    }

    fn io(&self, id: u32) -> &Io {
        self.requests[id as usize].as_ref().expect("a request that exists")
    }

    /// Takes the next request for the device.
    pub fn leave(&mut self, guest: usize) -> Option<DiskRequest> {
        let id = self.leaving.pop_front()?;
        let Io { pages, by, writes } = *self.io(id);
        let start = self.cache.start_of(pages.file) + u64::from(pages.first) * self.spec.page_bytes;
        let bytes = u64::from(pages.count) * self.spec.page_bytes;
        Some(DiskRequest { guest, id, vcpu: by.vcpu, start, bytes, writes })
    }

    /// Whether there is one.
    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The device has completed a request. Returns the vCPU to interrupt.
    pub(super) fn came_back(&mut self, id: u32) -> usize {
        self.at_device -= 1;
        let v = self.io(id).by.vcpu;
        self.completions[v].push(id);
        v
    }

    /// A vCPU takes its interrupt. Adds the tasks to wake to `wakes`. Returns the CPU time.
    pub(super) fn complete(&mut self, now_ns: u64, v: usize, wakes: &mut Vec<TaskId>) -> u64 {
        let mut done = std::mem::take(&mut self.completions[v]);
        let mut ns = 0;
        for id in done.drain(..) {
            ns += self.spec.complete_ns + self.record(now_ns, id, false);
            let io = self.requests[id as usize].take().expect("a request that exists");
            self.free.push(id);
            self.in_ring -= 1;
            self.work += u64::from(io.pages.count);
            (io.pages.first..io.pages.end()).for_each(|page| self.cache.end(io.pages.file, page));
            self.waiters.retain(|waiter| {
                let stays = !io.pages.has(waiter.file, waiter.page);
                if !stays {
                    wakes.push(waiter.task);
                }
                stays
            });
        }
        self.completions[v] = done;
        while self.in_ring < self.spec.ring
            && let Some(id) = self.queued.pop_front()
        {
            // The vCPU that takes the interrupt submits a queued request.
            self.requests[id as usize].as_mut().expect("a request that exists").by.vcpu = v;
            ns += self.dispatch(now_ns, id);
        }
        ns
    }

    /// Whether no request is at the device. Queued requests then wait for an interrupt, which makes room in the ring.
    pub fn is_idle_at_device(&self) -> bool {
        self.at_device == 0
    }

    /// How many tasks wait only because a vCPU is off: their requests are completed but the interrupt is not taken; or
    /// they are queued, the device is idle, and no running vCPU would make room in the ring.
    pub fn kept_waiting(&self, is_on: impl Fn(usize) -> bool) -> usize {
        let undelivered = || self.completions.iter().enumerate().filter(|(_, done)| !done.is_empty());
        if self.at_device == 0 && undelivered().all(|(v, _)| !is_on(v)) {
            // Every task waits for a page of one request, and all requests are completed or queued.
            return self.waiters.len();
        }
        let off = undelivered().filter(|(v, _)| !is_on(*v)).flat_map(|(_, done)| done);
        off.map(|id| self.waiters_of(*id)).sum()
    }

    fn waiters_of(&self, id: u32) -> usize {
        let pages = self.io(id).pages;
        self.waiters.iter().filter(|waiter| pages.has(waiter.file, waiter.page)).count()
    }

    /// Whether a completion interrupt is pending for that vCPU.
    pub fn waits_for_interrupt(&self, v: usize) -> bool {
        !self.completions[v].is_empty()
    }

    /// Memory of its requests and of the cache's order.
    pub(super) fn held_bytes(&self) -> usize {
        self.requests.len() * size_of::<Option<Io>>() + self.cache.held_bytes()
    }

    /// Takes the starts and ends since the last call, oldest first.
    pub fn take_events(&mut self, into: &mut Vec<BlockEvent>) {
        into.append(&mut self.events);
    }

    /// Checks that every request is in exactly one place.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let named = self.requests.iter().flatten().count();
        let undelivered: usize = self.completions.iter().map(Vec::len).sum();
        if named != self.queued.len() + self.in_ring || self.in_ring != self.at_device + undelivered {
            return Err(format!(
                "{named} requests: {} queued, {} in the ring, {} at the device, {undelivered} done",
                self.queued.len(),
                self.in_ring,
                self.at_device
            ));
        }
        if self.in_ring > self.spec.ring {
            return Err(format!("{} requests in a ring of {}", self.in_ring, self.spec.ring));
        }
        self.cache.check()
    }
}

#[cfg(test)]
mod tests;
