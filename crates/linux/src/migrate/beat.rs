//! The beat thread of a vCPU, pinned to it.
//!
//! At each beat an absolute timer wakes the thread, which reads the clock and pushes a beat into its ring. Then it may
//! run the shared decider, since its vCPU is evidently on: after a late beat, while I/O tasks are on this vCPU, and
//! when nobody has run the decider for a while. The policy sets the time of the next beat.

use std::sync::atomic::Ordering;

use reprieve_policy::beat::{Beat, READ_EVERY, grain_ns};
use reprieve_policy::signal::Signal;

use reprieve_policy::SECOND_NS;
use rtrb::Producer;

use crate::clock;
use crate::migrate::decide::SharedDecider;
use crate::migrate::link::Shared;
use crate::proc::{ProcRoot, SchedStatReader};
use crate::threads::{self, FifoGuard};

/// The real-time priority. Beat threads run before movers, and movers before everything that is not real-time.
const PRIORITY: u8 = 2;
/// The longest time between two beats, ns, even if the policy asks for more because a clock jumped.
const LONGEST_NS: u64 = 100_000_000;
/// Time between two attempts to return to a CPU that went offline, ns.
const OFFLINE_NS: u64 = SECOND_NS;

/// Runs the beat thread of `vcpu` until the daemon ends. Calls `raised` once, with whether it got real-time priority.
pub fn run(
    vcpu: usize,
    root: &ProcRoot,
    shared: &Shared,
    decider: &SharedDecider,
    mut out: Producer<Signal>,
    raised: impl FnOnce(bool),
) {
    let guard = FifoGuard::raise(PRIORITY);
    let _ = threads::set_timer_slack_ns(1);
    let delay = SchedStatReader::open(root, std::process::id() as i32, threads::own_tid()).ok();
    let (mut count, mut meter) = (0u32, clock::Meter::start());
    let mut pinned = threads::set_affinity(threads::own_tid(), &[vcpu]).is_ok();
    raised(guard.is_ok());
    let mut due_ns = clock::now_ns() + shared.period_ns.load(Ordering::Relaxed);
    while !shared.is_stopped() {
        let period_ns = shared.period_ns.load(Ordering::Relaxed);
        clock::sleep_until(due_ns);
        let at_ns = clock::now_ns();
        // If the CPU goes offline, the kernel moves the thread away, and a beat would count for the wrong vCPU.
        if !pinned || rustix::thread::sched_getcpu() != vcpu {
            pinned = threads::set_affinity(threads::own_tid(), &[vcpu]).is_ok();
            due_ns = at_ns + if pinned { period_ns } else { OFFLINE_NS };
            continue;
        }
        let reads = at_ns.saturating_sub(due_ns) > grain_ns(period_ns) || count.is_multiple_of(READ_EVERY);
        count = count.wrapping_add(1);
        let run_delay_ns =
            delay.as_ref().filter(|_| reads).and_then(|delay| Some(delay.read().ok()?.delay_ns));
        let beat = Beat { vcpu, due_ns, at_ns, period_ns, steal_ns: None, run_delay_ns };
        shared.count_lost(out.push(Signal::Beat(beat)).is_ok());
        let looked_ns = shared.looked_ns.load(Ordering::Relaxed);
        let look_ns = shared.look_ns.load(Ordering::Relaxed);
        let late = beat.lateness_ns() > grain_ns(period_ns);
        if late {
            shared.hurry();
        }
        let looks = late || shared.is_endangered(vcpu) || at_ns.saturating_sub(looked_ns) >= look_ns;
        let next_ns = if looks { decider.decide(vcpu) } else { None };
        shared.count_work(meter.step());
        due_ns = next_ns.unwrap_or(0).min(at_ns + LONGEST_NS).max(at_ns + period_ns);
    }
}
