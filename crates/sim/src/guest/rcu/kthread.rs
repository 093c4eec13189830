//! The grace-period kthread: starts grace periods, scans, ends them (`rcu_gp_kthread`).
//!
//! One call is one step: what the kernel does between two points at which it may sleep. A step's effects are there at
//! once; the guest then charges its cost, and calls again.

use reprieve_study::units::SECOND_NS;

use super::effects::Effects;
use super::params::Ask;
use super::scan::Scan;
use super::sequence::{STATE_BITS, end, is_before, start};
use super::state::Rcu;
use super::tree::Kind;
use crate::bits::bits;

/// Why the kthread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// It was woken, or goes on after [`Kthread::Work`].
    Woken,
    /// The time of [`Kthread::SleepJiffies`] is over.
    TimedOut,
}

/// What the kthread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kthread {
    /// It goes on, once what the step cost is charged.
    Work,
    /// It sleeps until woken.
    SleepUntilWoken,
    /// It sleeps for that many jiffies from now or until woken (`schedule_timeout`). The kernel's timers never fire
    /// early: one set for `n` jiffies fires at the tick after `n` more.
    SleepJiffies(u64),
}

/// A step of the kthread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Nodes and CPUs that it visited: what its cost depends on.
    pub visited: u64,
    /// What comes next.
    pub next: Kthread,
}

impl Step {
    fn work(visited: u64) -> Step {
        Step { visited, next: Kthread::Work }
    }

    fn rest(next: Kthread) -> Step {
        Step { visited: 0, next }
    }
}

/// Where the kthread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a grace period to start.
    Idle,
    /// It is about to sleep for that many jiffies, or to keep to the time of the next scan.
    Pause { jiffies: u64, keeps_time: bool, wait: Wait },
    /// It sleeps, at longest until that jiffy.
    Asleep { until: u64, wait: Wait },
}

/// What the kthread knows while it waits for a grace period to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// No scan was made in this grace period.
    is_first: bool,
    /// Scan without sleeping, because of overload (`RCU_GP_FLAG_OVLD`).
    at_once: bool,
}

impl Rcu {
    /// The kthread runs on that CPU. `jiffies` is the guest's tick count.
    pub fn kthread(
        &mut self,
        now_ns: u64,
        jiffies: u64,
        cpu: usize,
        why: Wakeup,
        effects: &mut Effects,
    ) -> Step {
        let step = self.step(now_ns, jiffies, cpu, why, effects);
        if step.next == Kthread::Work {
            self.voluntary(cpu, effects);
        }
        // It runs: what it asked of itself needs no waking.
        effects.wake_kthread = false;
        step
    }

    fn step(&mut self, now_ns: u64, jiffies: u64, cpu: usize, why: Wakeup, effects: &mut Effects) -> Step {
        let mut timed_out = why == Wakeup::TimedOut;
        loop {
            match self.stage {
                Stage::Idle if !self.start_wanted => return Step::rest(Kthread::SleepUntilWoken),
                Stage::Idle => return Step::work(self.start_gp(now_ns, jiffies, cpu, effects)),
                Stage::Pause { jiffies: pause, keeps_time, wait } => {
                    self.pause(jiffies, pause, keeps_time, wait);
                    timed_out = false;
                }
                Stage::Asleep { until, wait } => {
                    let look = wait.at_once || self.look_wanted;
                    let is_over = self.tree.is_clear(Kind::Normal);
                    if !(look || is_over || jiffies >= until || timed_out) {
                        return Step::rest(Kthread::SleepJiffies(until - jiffies));
                    }
                    if is_over {
                        return Step::work(self.end_gp(now_ns, cpu, effects));
                    }
                    if look || jiffies >= self.scan_at {
                        return Step::work(self.scan_step(now_ns, jiffies, cpu, wait, effects));
                    }
                    // Too early (the kernel's "stray signal").
                    let wait = Wait { at_once: false, ..wait };
                    self.stage = Stage::Pause { jiffies: self.scan_at - jiffies, keeps_time: true, wait };
                }
            }
        }
    }

    /// Goes to sleep before the next scan; an overload shortens the pause.
    fn pause(&mut self, jiffies: u64, mut pause: u64, keeps_time: bool, wait: Wait) {
        if self.overloaded {
            pause = pause.div_ceil(3).max(1);
        }
        if !keeps_time || jiffies + pause < self.scan_at {
            self.scan_at = jiffies + pause;
        }
        self.stage = Stage::Asleep { until: jiffies + pause, wait };
    }

    fn scan_step(&mut self, now_ns: u64, jiffies: u64, cpu: usize, wait: Wait, effects: &mut Effects) -> u64 {
        let asks = self.params.asks == Some(Ask::AtFirstScan) && wait.is_first;
        let visited = self.scan(
            now_ns,
            jiffies,
            Scan { is_first: wait.is_first, asks_as: asks.then_some(cpu) },
            effects,
        );
        let at_once = wait.is_first && self.overloaded;
        let wait = Wait { is_first: false, at_once };
        self.stage = Stage::Pause { jiffies: self.delays.next, keeps_time: false, wait };
        visited
    }

    /// Starts a grace period: every node waits for all its CPUs (`rcu_gp_init`).
    fn start_gp(&mut self, now_ns: u64, jiffies: u64, cpu: usize, effects: &mut Effects) -> u64 {
        self.start_wanted = false;
        self.look_wanted = false;
        self.gp_start = jiffies;
        self.grace_periods.start(now_ns, self.gp_seq >> STATE_BITS);
        self.gp_seq = start(self.gp_seq);
        self.tree.set(Kind::Normal);
        for node in &mut self.tree.nodes {
            node.gp_seq = self.gp_seq;
        }
        self.note_changes(cpu);
        for leaf in self.tree.leaves() {
            // The counterfactual's: the grace period never waits for them.
            let descheduled = self.tree.nodes[leaf].descheduled;
            self.clear_waiting(now_ns, leaf as u32, descheduled, effects);
            self.grace_periods
                .forget(bits(descheduled).map(|bit| self.tree.nodes[leaf].first_cpu + bit as usize));
        }
        let mut visited = self.tree.nodes.len() as u64;
        let asks = self.params.asks == Some(Ask::AtStart);
        if asks {
            visited += self.scan(now_ns, jiffies, Scan { is_first: true, asks_as: Some(cpu) }, effects);
        }
        let wait = Wait { is_first: !asks, at_once: self.overloaded };
        self.stage = Stage::Pause { jiffies: self.delays.first, keeps_time: false, wait };
        visited
    }

    /// Ends the grace period, and asks for the next one if somebody needs it (`rcu_gp_cleanup`).
    fn end_gp(&mut self, now_ns: u64, cpu: usize, effects: &mut Effects) -> u64 {
        let mut visited = 0;
        let new = end(self.gp_seq);
        let own_leaf = self.cpus[cpu].leaf as usize;
        let mut is_needed = false;
        for at in 0..self.tree.nodes.len() {
            visited += 1;
            self.tree.nodes[at].gp_seq = new;
            if at == own_leaf {
                is_needed |= self.note_changes(cpu);
            }
            is_needed |= self.settle_requests(at);
            visited += self.settle_overload(at);
        }
        self.gp_seq = new;
        let stall_ns = self.delays.stall * SECOND_NS / self.params.hz;
        self.stall_warnings += u64::from(self.grace_periods.end(now_ns) > stall_ns);
        is_needed |= is_before(new, self.tree.nodes[0].gp_seq_needed);
        self.look_wanted = false;
        let is_asked_for = self.accelerate(cpu, 0);
        self.start_wanted |= is_needed || is_asked_for;
        visited += self.end_offloaded(effects);
        self.stage = Stage::Idle;
        visited
    }

    /// Whether somebody asked a node for a further grace period (`rcu_future_gp_cleanup`).
    fn settle_requests(&mut self, node: usize) -> bool {
        let node = &mut self.tree.nodes[node];
        let is_needed = is_before(node.gp_seq, node.gp_seq_needed);
        if !is_needed {
            // Keeps the number close behind, so that it cannot wrap.
            node.gp_seq_needed = node.gp_seq;
        }
        is_needed
    }

    /// Forgets the overload of a leaf's CPUs that worked it off; answers how many it looked at.
    fn settle_overload(&mut self, node: usize) -> u64 {
        let (limit, first_cpu) = (self.params.overload(), self.tree.nodes[node].first_cpu);
        let overloaded = self.tree.nodes[node].overloaded;
        for bit in bits(overloaded) {
            if self.backlog(first_cpu + bit as usize) < limit {
                self.tree.nodes[node].overloaded &= !(1 << bit);
            }
        }
        u64::from(overloaded.count_ones())
    }
}

#[cfg(test)]
#[path = "tests/kthread.rs"]
mod tests;
