//! A task that sleeps until a set time and works, in a loop. Its latency is how late it runs, as cyclictest measures
//! it.

use reprieve_study::Span;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::task::{Op, Program};
use crate::workload::{Pace, Spread};

/// CPU time in the kernel to go to sleep: the call, the timer, and entering idle. Fitted to real Xen 4.17 in emulation,
/// to the median wake-up beside a spinner (240 us; `xen-wakeup`, condition credit). The spinner gets the pCPU, and its
/// rate limit begins, this long after the task has set its timer.
pub(super) const SLEEP_US: u64 = 48;

struct Wakeup {
    sleep: Spread,
    work_ns: u64,
    going_to_sleep_ns: u64,
    /// When it should run.
    due_ns: Option<u64>,
}

/// Adds the task, on vCPU 0.
pub(super) fn add(guest: &mut Guest, pace: Pace, sleep: Spread, work_us: u64) {
    let (work_ns, going_to_sleep_ns) = (pace.stated_us(work_us), pace.us(SLEEP_US));
    guest.add_program(Box::new(Wakeup { sleep, work_ns, going_to_sleep_ns, due_ns: None }), Some(0));
}

impl Program for Wakeup {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        let now_ns = env.now_ns;
        match self.due_ns.take() {
            Some(due_ns) => {
                env.counters.operations += 1;
                env.counters.latencies.add(Span::new(due_ns, now_ns), 0);
                Op::Run { ns: self.work_ns, mode: Mode::User }
            }
            None => {
                let ns = self.sleep.draw(env.random);
                self.due_ns = Some(now_ns + ns);
                env.spend(self.going_to_sleep_ns);
                Op::Sleep { ns }
            }
        }
    }
}
