//! What a fair policy decides, and what it decides on.

use super::runqueue::Runqueue;

/// Weight of nice 0: virtual time of an entity with this weight passes like wall time.
pub const NICE_0: u32 = 1024;

/// Virtual time that passes while an entity of that weight runs for that long, rounded down.
pub fn scaled(delta_ns: u64, weight: u32) -> i64 {
    match weight {
        NICE_0 => delta_ns as i64,
        weight => (delta_ns * NICE_0 as u64 / weight as u64) as i64,
    }
}

/// An entity's part in the competition on its runqueue.
///
/// Virtual times are i64 ns, and mean something only beside others of the same runqueue.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Number of the entity.
    pub entity: u32,
    /// Share of the CPU relative to others.
    pub weight: u32,
    /// Virtual time it has had: run time x 1024 / weight. That of a running entity is as of the last accounting.
    pub vruntime: i64,
    /// EEVDF: virtual time by which its slice should be done (while it moves: relative to `vruntime`).
    pub deadline: i64,
    /// EEVDF: virtual time up to which it may not be preempted.
    pub protected: i64,
    /// EEVDF, while it is on no runqueue: by how much it was behind the average.
    pub lag: i64,
    /// Run time that it has had.
    pub ran_ns: u64,
    /// CFS: its `ran_ns` when it was last switched to.
    pub ran_before_ns: u64,
}

impl Share {
    /// A new entity's.
    pub fn new(entity: u32, weight: u32) -> Share {
        Share { entity, weight, vruntime: 0, deadline: 0, protected: 0, lag: 0, ran_ns: 0, ran_before_ns: 0 }
    }

    /// Virtual time that passes while it runs for that long.
    pub fn scaled(&self, delta_ns: u64) -> i64 {
        scaled(delta_ns, self.weight)
    }

    /// It ran.
    pub fn charge(&mut self, delta_ns: u64) {
        self.vruntime += self.scaled(delta_ns);
        self.ran_ns += delta_ns;
    }
}

/// How an entity comes to a runqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// For the first time.
    New,
    /// From sleep, or from being throttled.
    Woken,
    /// From a pause ([`crate::sched::Pausing::pause`]): it keeps up to so much of what it has a right to, ns.
    Resumed(u64),
    /// From another runqueue, runnable.
    Moved,
}

/// How an entity leaves a runqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// To sleep, or because it is throttled: it was the running one.
    Sleeps,
    /// To another runqueue: it was queued.
    Moves,
}

/// A fair policy: only what EEVDF and CFS do differently. `current` is always the share of the entity that runs on that
/// runqueue, accounted up to now.
pub trait Policy: std::fmt::Debug {
    /// Its place in the queue: least first.
    fn key(&self, share: &Share) -> i64;

    /// Gives `share` its virtual times before it is queued. `base_was` is the base of the runqueue on which it was last,
    /// if that is another.
    fn place(
        &self,
        queue: &Runqueue,
        current: Option<&Share>,
        share: &mut Share,
        arrival: Arrival,
        base_was: Option<i64>,
    );

    /// Keeps what `share` needs to be placed again. If it `Moves` it is still counted in the queue.
    fn leave(&self, queue: &mut Runqueue, current: Option<&Share>, share: &mut Share, how: Departure);

    /// The running entity was charged. True if its slice is over.
    fn charged(&self, queue: &mut Runqueue, current: &mut Share) -> bool;

    /// Whether the running entity should give way at this tick, with others queued.
    fn tick(&self, queue: &Runqueue, current: &Share) -> bool;

    /// Whether `woken`, just queued, should preempt.
    fn preempts(&self, queue: &mut Runqueue, current: &Share, woken: &Share) -> bool;

    /// What runs next: a place in the queue, which is not empty; or nothing if `current` goes on.
    fn choose(&self, queue: &Runqueue, current: Option<&Share>) -> Option<usize>;

    /// `share` was taken from the queue and is switched to.
    fn start(&self, queue: &mut Runqueue, share: &mut Share);

    /// The running entity gives way, with others queued.
    fn yields(&self, queue: &mut Runqueue, current: &mut Share);
}
