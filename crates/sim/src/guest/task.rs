//! Tasks of a guest, and the programs that they run: streams of operations.

use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::lock::Lock;

/// What a task does next. The time that the program spent through its [`Env`] comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes.
    Run {
        /// CPU time.
        ns: u64,
        /// Where.
        mode: Mode,
    },
    /// Computes in the kernel and goes straight on to the next operation: no preemption point stands between them.
    RunOn {
        /// CPU time.
        ns: u64,
    },
    /// Takes a spinlock; waits for it without giving up the vCPU.
    Lock(Lock),
    /// Releases it.
    Unlock(Lock),
    /// Calls `schedule()`, runnable: a quiescent state, and others may run.
    Schedule,
    /// Sleeps by a high-resolution timer.
    Sleep {
        /// At least so long.
        ns: u64,
    },
    /// Sleeps by a timer of the wheel.
    SleepJiffies(u64),
    /// Waits for a grace period.
    Synchronize,
    /// Waits for an expedited grace period.
    SynchronizeExpedited,
    /// Waits until all callbacks queued so far have been invoked.
    Barrier,
    /// Waits to be woken by another task's [`Env::wake`]; returns at once if that came first.
    Wait,
    /// Ends.
    Exit,
}

/// What a task runs.
pub trait Program {
    /// The next operation. Called when the previous one is done.
    fn next(&mut self, env: &mut Env<'_>) -> Op;
}

/// What kind of task it is.
pub enum Kind {
    /// A workload's, or a kernel thread written as one.
    Program(Box<dyn Program>),
    /// RCU's grace-period kthread.
    GpKthread,
    /// Runs softirqs that did not fit into interrupts, on its vCPU.
    Ksoftirqd,
    /// Invokes the callbacks that were queued on this vCPU (`rcuop`).
    Offload(usize),
    /// Frees what `kfree_rcu()` collected on its vCPU.
    Kworker,
}

/// A task, in one cache line.
#[derive(Default)]
#[repr(align(64))]
pub struct Task {
    /// What it runs; taken out while it decides.
    pub kind: Option<Kind>,
    /// What is left of its present stretch, while it does not run.
    pub left_ns: u64,
    /// Mode of that stretch.
    pub mode: Mode,
    /// Spinlocks that it holds or waits for.
    pub locks: u32,
    /// Whether it sleeps or waits.
    pub blocked: bool,
    /// Whether it waits for another task's [`Env::wake`]. Whatever else it is blocked on, no such wake-up ends.
    pub waits: bool,
    /// Whether such a wake-up came while it did not wait for one.
    pub woken: bool,
    /// Whether its next operation follows without a preemption point ([`Op::RunOn`]).
    pub runs_on: bool,
    /// Its wheel timer expired (as opposed to an early wake-up).
    pub timed_out: bool,
    /// CPU time that it used, interrupts not counted.
    pub exec_ns: u64,
    /// What of that it had used when it was woken last.
    pub woke_exec_ns: u64,
    /// Distinguishes this sleep from earlier ones, whose timers may still be set.
    pub sleep: u32,
    /// The vCPU whose wheel has a timer for this sleep.
    pub timer_on: Option<u16>,
}

impl Task {
    /// A task that has not run yet.
    pub fn new(kind: Kind) -> Task {
        Task { kind: Some(kind), blocked: true, ..Task::default() }
    }
}
