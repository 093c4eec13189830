//! What ends a task's wait: what it waits for, and nothing else.

mod support;

use std::cell::RefCell;

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;

use reprieve_sim::guest::env::Env;
use reprieve_sim::guest::ids::{Mode, TaskId};
use reprieve_sim::guest::memory::{Cache, Mobility};
use reprieve_sim::guest::task::{Op, Program};
use support::world_of;

/// A stretch in the kernel without a preemption point, so that no grace period is shorter.
const SECTION_NS: u64 = 5 * MILLISECOND_NS;

type Times = Rc<RefCell<Vec<u64>>>;

/// Waits in one way over and over, and notes for how long.
struct Waiter {
    op: Op,
    cache: Cache,
    began_ns: Option<u64>,
    waited_ns: Times,
}

impl Program for Waiter {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        if let Some(began_ns) = self.began_ns.replace(env.now_ns) {
            self.waited_ns.borrow_mut().push(env.now_ns - began_ns);
        }
        // Something for rcu_barrier() to wait for.
        if let Ok(object) = env.alloc(self.cache) {
            env.free_deferred(object);
        }
        self.op
    }
}

/// Wakes another task every 100 us.
struct Waker {
    whom: TaskId,
    sleeps: bool,
}

impl Program for Waker {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        self.sleeps = !self.sleeps;
        if self.sleeps {
            return Op::Sleep { ns: 100_000 };
        }
        env.wake(self.whom);
        Op::Run { ns: 1_000, mode: Mode::Kernel }
    }
}

/// Long sections in the kernel, with `schedule()` between them.
#[derive(Default)]
struct Sections {
    gives_way: bool,
}

impl Program for Sections {
    fn next(&mut self, _: &mut Env<'_>) -> Op {
        self.gives_way = !self.gives_way;
        if self.gives_way { Op::Schedule } else { Op::Run { ns: SECTION_NS, mode: Mode::Kernel } }
    }
}

/// How long each of the waits of a second lasts, of a task that another one wakes every 100 us meanwhile.
fn waits(op: Op) -> Vec<u64> {
    waits_beside(op, Box::new(Sections::default()))
}

/// The same, with something else on the third vCPU.
fn waits_beside(op: Op, third: Box<dyn Program>) -> Vec<u64> {
    let waited_ns = Times::default();
    let mut world = world_of(3, 250, |guest| {
        let cache = guest.memory.add_cache(256, Mobility::Unmovable);
        let waiter = Waiter { op, cache, began_ns: None, waited_ns: waited_ns.clone() };
        let whom = guest.add_program(Box::new(waiter), Some(0));
        guest.add_program(Box::new(Waker { whom, sleeps: true }), Some(1));
        guest.add_program(third, Some(2));
    });
    assert!(world.run_until(SECOND_NS, u64::MAX));
    world.check().unwrap();
    waited_ns.take()
}

#[test]
fn a_wake_up_ends_a_wait() {
    let waits = waits(Op::Wait);
    assert!(waits.len() > 5_000, "only {} waits", waits.len());
}

#[test]
fn a_wake_up_does_not_end_a_grace_period() {
    for op in [Op::Synchronize, Op::SynchronizeExpedited, Op::Barrier] {
        let waits = waits(op);
        // An expedited one may begin at any point of a section.
        let mean_ns = waits.iter().sum::<u64>() / waits.len() as u64;
        assert!(waits.len() > 10, "{op:?}: only {} waits", waits.len());
        assert!(mean_ns > SECTION_NS / 2, "{op:?}: {mean_ns} ns on average");
    }
}

/// Pieces of one section: 300 ms in all, then `schedule()`.
#[derive(Default)]
struct InPieces {
    done: u32,
}

impl Program for InPieces {
    fn next(&mut self, _: &mut Env<'_>) -> Op {
        self.done = (self.done + 1) % 301;
        if self.done == 0 { Op::Schedule } else { Op::RunOn { ns: MILLISECOND_NS } }
    }
}

/// No preemption point stands between the pieces: not even a grace period that has become urgent (after 100 ms) ends.
#[test]
fn a_section_in_pieces_is_one_section() {
    let waits = waits_beside(Op::Synchronize, Box::new(InPieces::default()));
    let longest_ns = waits.iter().copied().max().unwrap();
    assert!(longest_ns > 200 * MILLISECOND_NS, "{waits:?}");
}
