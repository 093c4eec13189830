//! The movers: threads that change affinities, so that the decider never waits.
//!
//! Changing the affinity of a task that runs on a vCPU which is off lasts until that is back. There is a mover for each
//! vCPU that tasks leave: such a task holds up only what leaves the same vCPU. What is to be done is in the slots; a mover is
//! only told to look at one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::migrate::clock;
use rtrb::{Consumer, Producer};

use crate::migrate::link::shared::{Shared, Sleeper};
use crate::migrate::masks::table::{Bound, Table};
use crate::threads::FifoGuard;

/// As the decider.
const PRIORITY: u8 = 1;
/// A mover is woken up for an order, and when the daemon ends; of itself it looks this often only.
const IDLE: Duration = Duration::from_secs(10);

/// How orders were carried out.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Done.
    pub done: AtomicU64,
    /// Left to the thread that was at the task.
    pub overtaken: AtomicU64,
    /// Left alone: somebody else had changed the mask, or the task had ended.
    pub foreign: AtomicU64,
    /// Refused by the kernel, or not possible any more.
    pub refused: AtomicU64,
}

impl Outcomes {
    /// Counts one.
    pub fn count(&self, bound: Bound) {
        let counter = match bound {
            Bound::Done => &self.done,
            Bound::Same => return,
            Bound::Overtaken => &self.overtaken,
            Bound::Foreign | Bound::Gone => &self.foreign,
            Bound::Refused => &self.refused,
        };
        // Relaxed: a counter.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The decider's end of a mover.
pub struct Mover {
    orders: Producer<usize>,
    sleeper: Arc<Sleeper>,
}

impl Mover {
    /// With the ring to it, of slots to look at, and its sleeper.
    pub fn new(orders: Producer<usize>, sleeper: Arc<Sleeper>) -> Mover {
        Mover { orders, sleeper }
    }

    /// Has it look at a slot; wakes it on `cpu`, which must be on: the caller's own. `false` if its ring is full: then the
    /// house thread finds the slot behind.
    pub fn look_at(&mut self, slot: usize, cpu: usize) -> bool {
        let sent = self.orders.push(slot).is_ok();
        self.sleeper.wake_on(cpu);
        sent
    }
}

/// Runs a mover until the daemon ends.
pub fn run(
    mut orders: Consumer<usize>,
    sleeper: &Sleeper,
    table: &Table,
    outcomes: &Outcomes,
    shared: &Shared,
) {
    let _guard = FifoGuard::raise(PRIORITY);
    sleeper.enter();
    let mut meter = clock::Meter::start();
    while !shared.is_stopped() {
        while let Ok(slot) = orders.pop() {
            table.carry_out(slot, |bound| outcomes.count(bound));
        }
        shared.count_work(meter.step());
        sleeper.rest(IDLE);
    }
}
