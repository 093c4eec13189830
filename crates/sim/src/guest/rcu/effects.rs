//! What a call finds, and what it wants done.

/// What an interrupt interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// User mode: a quiescent state.
    User,
    /// The kernel, which may be within a read-side critical section.
    Kernel,
    /// The idle loop: a quiescent state.
    Idle,
}

/// What a call wants done. The guest hands in one, empties it after each call, and reuses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// CPUs on which to raise the RCU softirq: only ever the CPU of the call.
    pub softirq: Vec<u32>,
    /// Wake the grace-period kthread if it sleeps.
    pub wake_kthread: bool,
    /// CPUs on which to set need_resched, by interrupt if remote.
    pub resched: Vec<u32>,
    /// CPUs to interrupt for an expedited grace period; each calls [`super::Rcu::expedited_ipi`].
    pub ipi: Vec<u32>,
    /// CPUs to interrupt for a report; each calls [`super::Rcu::asked_ipi`].
    pub ask: Vec<u32>,
    /// The CPU of the call, if it was asked and is quiescent: it calls [`super::Rcu::report_asked`].
    pub report: Vec<u32>,
    /// CPUs some of whose offloaded callbacks are ready: their threads must wake.
    pub invoke: Vec<u32>,
    /// Tokens of waiters whose expedited grace period is over.
    pub wake: Vec<u64>,
}

impl Effects {
    /// Whether nothing is to be done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let lists = self.softirq.is_empty() && self.resched.is_empty() && self.ipi.is_empty();
        let remedies = self.ask.is_empty() && self.report.is_empty() && self.invoke.is_empty();
        lists && remedies && self.wake.is_empty() && !self.wake_kthread
    }
}
