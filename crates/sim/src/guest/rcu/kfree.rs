//! Batching of objects that only need to be freed after a grace period (`kvfree_rcu`).
//!
//! An object is in one of three states: *collecting* on its CPU; *waiting*, in a batch for which one callback was
//! queued; *free*, handed back by [`Kfree::take`]. A CPU has two batches; while both wait, objects go on collecting.
//! Objects are collected in pages of pointers, which are memory too; without a page at hand they are chained one by
//! one. A delayed work item, the monitor, hands what was collected to a batch.
//!
//! Invariant: the objects of a batch were all collected before its callback was queued.
//!
//! Source: kernel/rcu/tree.c of Linux 6.1 (stable: a batch takes objects only when it is wholly empty). Left out: the
//! second channel, for vmalloc, and the shrinker.

/// Batches of a CPU (`KFREE_N_BATCHES`).
const BATCHES: usize = 2;

/// Tunables. [`Settings::linux`] gives the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Jiffies after which collected objects are handed to a batch (`KFREE_DRAIN_JIFFIES`).
    pub drain_jiffies: u64,
    /// Pointers of a page (`KVFREE_BULK_MAX_ENTR`); once that many objects are collected, the delay is one jiffy.
    pub page_objects: u64,
    /// Empty pages that a CPU keeps at hand (`rcu_min_cached_objs`).
    pub kept_pages: u32,
}

impl Settings {
    /// Those of Linux 6.1: five seconds (before 6.1 it was HZ / 50), pages of 4 KiB with two words in use.
    pub fn linux(hz: u64) -> Settings {
        Settings { drain_jiffies: 5 * hz, page_objects: 4096 / 8 - 2, kept_pages: 5 }
    }
}

/// What [`Kfree::push`] asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Arm the CPU's monitor, or move it, to so many jiffies from now.
    pub monitor: Option<u64>,
    /// Let a work item call [`Kfree::refill`] on that CPU.
    pub refill: bool,
}

/// What [`Kfree::monitor`] asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The batch for which to queue a callback, which calls [`Kfree::take`] from a work item.
    pub batch: Option<usize>,
    /// Arm the monitor again, to so many jiffies from now.
    pub monitor: Option<u64>,
}

/// Objects, and the pages that hold pointers to some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects<T> {
    /// Those in pages; the allocator takes them in bulk.
    pub paged: Vec<T>,
    /// Those chained one by one.
    pub chained: Vec<T>,
    /// Pages in use.
    pub pages: u32,
}

impl<T> Objects<T> {
    fn new() -> Objects<T> {
        Objects { paged: Vec::new(), chained: Vec::new(), pages: 0 }
    }

    /// All objects.
    pub fn len(&self) -> u64 {
        (self.paged.len() + self.chained.len()) as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
struct PerCpu<T> {
    collecting: Objects<T>,
    waiting: [Objects<T>; BATCHES],
    kept_pages: u32,
    is_refilling: bool,
    /// Jiffy for which the monitor is armed.
    monitor_at: Option<u64>,
}

/// The batches of one guest; `T` is what the guest calls an object.
#[derive(Debug)]
pub struct Kfree<T> {
    settings: Settings,
    cpus: Vec<PerCpu<T>>,
}

impl<T> Kfree<T> {
    /// Of a guest with that many CPUs.
    pub fn new(settings: Settings, cpus: usize) -> Kfree<T> {
        let cpu = |_| PerCpu {
            collecting: Objects::new(),
            waiting: [Objects::new(), Objects::new()],
            kept_pages: 0,
            is_refilling: false,
            monitor_at: None,
        };
        Kfree { settings, cpus: (0..cpus).map(cpu).collect() }
    }

    /// An object is to be freed after a grace period (`kvfree_call_rcu`).
    pub fn push(&mut self, cpu: u32, object: T, jiffies: u64) -> Pushed {
        let page_objects = self.settings.page_objects;
        let this = &mut self.cpus[cpu as usize];
        let needs_page =
            this.collecting.paged.len() as u64 == u64::from(this.collecting.pages) * page_objects;
        let mut refill = false;
        if needs_page && this.kept_pages == 0 {
            this.collecting.chained.push(object);
            refill = !std::mem::replace(&mut this.is_refilling, true);
        } else {
            this.collecting.paged.push(object);
            this.collecting.pages += u32::from(needs_page);
            this.kept_pages -= u32::from(needs_page);
        }
        Pushed { monitor: self.arm(cpu, jiffies), refill }
    }

    /// When to arm the monitor, unless it is armed for no later (`schedule_delayed_monitor_work`).
    fn arm(&mut self, cpu: u32, jiffies: u64) -> Option<u64> {
        let this = &mut self.cpus[cpu as usize];
        let is_much = this.collecting.len() >= self.settings.page_objects;
        let delay = if is_much { 1 } else { self.settings.drain_jiffies };
        if this.monitor_at.is_some_and(|at| at <= jiffies + delay) {
            return None;
        }
        this.monitor_at = Some(jiffies + delay);
        Some(delay)
    }

    /// The work item that [`Pushed::refill`] asked for: how many pages it allocates, for [`Kfree::keep`].
    pub fn refill(&mut self, cpu: u32) -> u32 {
        let this = &mut self.cpus[cpu as usize];
        this.is_refilling = false;
        self.settings.kept_pages - this.kept_pages
    }

    /// Empty pages, freshly allocated or done with; answers how many of them go back to the allocator.
    pub fn keep(&mut self, cpu: u32, pages: u32) -> u32 {
        let this = &mut self.cpus[cpu as usize];
        let kept = pages.min(self.settings.kept_pages - this.kept_pages);
        this.kept_pages += kept;
        pages - kept
    }

    /// The monitor's work item (`kfree_rcu_monitor`).
    pub fn monitor(&mut self, cpu: u32, jiffies: u64) -> Drained {
        let this = &mut self.cpus[cpu as usize];
        this.monitor_at = None;
        if this.collecting.is_empty() {
            return Drained::default();
        }
        let batch = this.waiting.iter().position(Objects::is_empty);
        match batch {
            Some(batch) => std::mem::swap(&mut this.waiting[batch], &mut this.collecting),
            None => return Drained { batch, monitor: self.arm(cpu, jiffies) },
        }
        Drained { batch, monitor: None }
    }

    /// The work item after a batch's grace period: its objects, now to be freed, and its pages, for [`Kfree::keep`]
    /// (`kfree_rcu_work`).
    pub fn take(&mut self, cpu: u32, batch: usize) -> Objects<T> {
        std::mem::replace(&mut self.cpus[cpu as usize].waiting[batch], Objects::new())
    }

    /// Objects of a CPU that are not free yet.
    pub fn backlog(&self, cpu: u32) -> u64 {
        let this = &self.cpus[cpu as usize];
        this.collecting.len() + this.waiting.iter().map(Objects::len).sum::<u64>()
    }
}

#[cfg(test)]
#[path = "tests/kfree.rs"]
mod tests;
