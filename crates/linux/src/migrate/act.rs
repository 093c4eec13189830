//! The movers: threads that change affinities, so that the decider never waits.
//!
//! If a task runs on a vCPU that is off, a change of its affinity takes until that vCPU is back. So there is one mover
//! per vCPU that tasks leave, and such a task delays only others that leave the same vCPU. An order is only the number
//! of a slot; the wanted CPU is in the slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rtrb::{Consumer, Producer};

use crate::clock;
use crate::migrate::link::{Shared, Sleeper};
use crate::migrate::masks::{Bound, Table};
use crate::threads::FifoGuard;

/// The real-time priority, below that of beat threads.
const PRIORITY: u8 = 1;
/// How long a mover sleeps without an order. An order and the end of the daemon wake it earlier.
const IDLE: Duration = Duration::from_secs(10);

/// Counts orders by outcome.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Carried out.
    pub done: AtomicU64,
    /// Left to another thread that was changing the same task.
    pub overtaken: AtomicU64,
    /// Not carried out, because somebody else had changed the mask or the task had ended.
    pub foreign: AtomicU64,
    /// Refused by the kernel, or no longer possible.
    pub refused: AtomicU64,
}

impl Outcomes {
    /// Counts one outcome.
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
    /// A mover with this ring of orders and this sleeper.
    pub fn new(orders: Producer<usize>, sleeper: Arc<Sleeper>) -> Mover {
        Mover { orders, sleeper }
    }

    /// Orders the mover to carry out a slot, and wakes it on `cpu`, the caller's own, which is therefore on. Returns
    /// `false` if the ring is full; the main loop will then find that the slot is behind.
    pub fn order(&mut self, slot: usize, cpu: usize) -> bool {
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
