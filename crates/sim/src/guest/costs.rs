//! What the guest's kernel paths cost in CPU time. The values are those of the guests that the simulator is
//! calibrated on (Debian 6.1 under emulation, 2 vCPUs, `records/rcu-memory.json`, baseline alone); a guest of another
//! speed scales them all.

use crate::guest::memory;

/// CPU time of kernel paths, in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Timer interrupt with its tick: entry, time keeping, accounting, exit. Estimate: with 250 ticks a second it is
    /// 1.5 % of a vCPU under emulation, as `rcu-control`'s idle guests show.
    pub tick_ns: u64,
    /// Any other interrupt. Estimate: a third of a tick.
    pub interrupt_ns: u64,
    /// Switch from a task to another within the guest. Estimate.
    pub switch_ns: u64,
    /// `schedule()` that finds no other task.
    pub schedule_ns: u64,
    /// One pass over pending softirqs, without what they do.
    pub softirq_ns: u64,
    /// RCU's core in softirq, without callbacks.
    pub rcu_core_ns: u64,
    /// Queueing a callback.
    pub call_rcu_ns: u64,
    /// Invoking a callback, without what it does. Calibrated: CPU time to compute a GP of the baseline less the
    /// kthread's, over the callbacks of a GP, less the slab's part.
    pub callback_ns: u64,
    /// The GP kthread's work for one step. Calibrated: 62 us a GP of one initialisation, one or two scans and one
    /// clean-up.
    pub kthread_step_ns: u64,
    /// The same for each `rcu_node` and CPU visited.
    pub kthread_visit_ns: u64,
    /// Waking a task.
    pub wake_ns: u64,
    /// Receiving a UDP packet in softirq, up to the socket; and sending one. Estimate: as much as six wakes.
    pub packet_ns: u64,
    /// Taking a free spinlock, or being handed one.
    pub lock_ns: u64,
    /// A paravirtual lock's waiter halts when it has spun for so long: 2^15 rounds (SPIN_THRESHOLD) of a pause
    /// instruction, of about 3 ns when it exits early; not scaled.
    pub spin_ns: u64,
    /// For marks at the entry and exit of read-side sections, in millionths of the CPU time in the kernel; 0 if there are
    /// none.
    pub marks_per_million: u64,
    /// The memory allocator's.
    pub memory: memory::Costs,
}

impl Costs {
    /// The guests that were measured, made `speed_permille` / 1000 times as fast.
    pub fn at_speed(speed_permille: u64) -> Costs {
        let ns = |calibrated: u64| (calibrated * 1000 / speed_permille).max(1);
        Costs {
            tick_ns: ns(45_000),
            interrupt_ns: ns(15_000),
            switch_ns: ns(12_000),
            schedule_ns: ns(4_000),
            softirq_ns: ns(1_500),
            rcu_core_ns: ns(4_000),
            call_rcu_ns: ns(600),
            callback_ns: ns(180),
            kthread_step_ns: ns(29_000),
            kthread_visit_ns: ns(1_500),
            wake_ns: ns(4_000),
            packet_ns: ns(24_000),
            lock_ns: ns(300),
            spin_ns: 100_000,
            marks_per_million: 0,
            memory: memory::Costs::scaled(MEMORY_PERMILLE * 1000 / speed_permille),
        }
    }
}

/// The emulated guest's allocator over a native one's, in thousandths.
const MEMORY_PERMILLE: u64 = 12_000;
