//! When the tests' guest runs RCU's kthread.

use super::Guest;
use crate::guest::rcu::{Context, Kthread, Wakeup};

impl Guest {
    pub(super) fn wake_kthread(&mut self, on: Option<usize>, why: Wakeup) {
        if !std::mem::take(&mut self.gp.is_asleep) {
            return;
        }
        self.gp.timer_at = None;
        self.gp.why = why;
        let anywhere = self.random.below(self.vcpus.len() as u64) as usize;
        self.gp.cpu = on.or(self.style.kthread_on).unwrap_or(anywhere);
        self.gp.ready_at_ns = self.now_ns + self.random.below(self.style.kthread_delay_ns + 1);
    }

    /// The kthread, or another task, where kernel code can be switched.
    pub(super) fn schedule(&mut self, cpu: usize) {
        if self.vcpus[cpu].is_reading {
            return;
        }
        if !self.gp.is_asleep && self.gp.cpu == cpu && self.gp.ready_at_ns <= self.now_ns {
            self.run_kthread(cpu);
        } else if self.vcpus[cpu].need_resched && self.vcpus[cpu].mode != Context::Idle {
            self.switch(cpu);
        }
    }

    fn run_kthread(&mut self, cpu: usize) {
        let mode = std::mem::replace(&mut self.vcpus[cpu].mode, Context::Kernel);
        if mode == Context::Idle {
            self.rcu.idle_exit(cpu);
        }
        self.switch(cpu);
        loop {
            let why = std::mem::replace(&mut self.gp.why, Wakeup::Woken);
            let jiffies = self.jiffies();
            let step = self.rcu.kthread(self.now_ns, jiffies, cpu, why, &mut self.effects);
            self.apply(cpu);
            match step.next {
                Kthread::Work if self.style.kthread_delay_ns > 0 && self.random.one_in(4) => {
                    // It is preempted between two steps.
                    self.gp.ready_at_ns = self.now_ns + self.random.below(self.style.kthread_delay_ns);
                    break;
                }
                Kthread::Work => continue,
                Kthread::SleepUntilWoken => self.gp.is_asleep = true,
                Kthread::SleepJiffies(sleep) => {
                    self.gp.is_asleep = true;
                    self.gp.timer_at = Some(jiffies + sleep + 1);
                }
            }
            break;
        }
        self.switch(cpu);
        self.vcpus[cpu].mode = mode;
        if mode == Context::Idle {
            self.rcu.idle_enter(cpu);
        }
    }
}
