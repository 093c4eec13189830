//! The thread that looks at the guest and boosts its vCPUs until it is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use reprieve_policy::boost::{Aim, Decider, Look, Order, Settings};
use reprieve_policy::cpus::CpuSet;

use super::vcpus::Vcpus;
use super::{GuestRcu, Limited, RcuLook};
use crate::clock::{now_ns, sleep_until, thread_cpu_ns};
use crate::proc::ProcRoot;
use crate::threads::{FifoGuard, own_tid, set_affinity_set, set_timer_slack_ns};
use crate::{Error, Result, threads};

/// A visit is taken to be over after this time. A vCPU that has not used up its lent time by then sleeps or has no
/// pCPU.
const LONGEST_VISIT_NS: u64 = 10_000_000;

/// What to boost, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `/proc`.
    pub proc_root: ProcRoot,
    /// The VM's process.
    pub pid: i32,
    /// The threads of the VM's vCPUs, in the order of the vCPUs.
    pub tids: Vec<i32>,
    /// The groups whose quota limits some of these threads. Each vCPU is in at most one.
    pub limits: Vec<Limited>,
    /// The policy's settings.
    pub settings: Settings,
    /// Time between two looks, ns.
    pub look_ns: u64,
    /// What decides when visits begin.
    pub aim: Aim,
    /// Whether quotas are written. If not, visits are only counted.
    pub may_act: bool,
}

/// The visits, lent time and costs since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Visits that began.
    pub visits: u64,
    /// CPU time of the vCPUs within visits, ns.
    pub lent_ns: u64,
    /// CPU time of the loop itself, ns.
    pub own_cpu_ns: u64,
    /// Number of looks.
    pub looks: u64,
}

/// A running loop. Dropping it ends the loop and puts every quota back.
pub struct Boosting {
    thread: Option<JoinHandle<Result<Vec<String>>>>,
    stop: Arc<AtomicBool>,
    given: Arc<Mutex<Given>>,
}

impl Boosting {
    /// Starts the loop. Nothing else may change the quotas while it runs.
    ///
    /// # Errors
    /// A thread has ended; a group has no quota, or may not be written; it holds other threads than
    /// this VM's, or another loop lends to it.
    pub fn start<G: GuestRcu + Send + 'static>(plan: Plan, guest: G) -> Result<Boosting> {
        let vcpus = Vcpus::open(&plan.proc_root, plan.pid, &plan.tids, &plan.limits, plan.may_act)?;
        let stop = Arc::new(AtomicBool::new(false));
        let given = Arc::new(Mutex::new(Given::default()));
        let seen_stop = Arc::clone(&stop);
        let told = Arc::clone(&given);
        let body = move || Loop::new(plan, vcpus, guest).run(&seen_stop, &told);
        let builder = std::thread::Builder::new().name("boost".into());
        let thread =
            builder.spawn(body).map_err(|e| Error::io("start", "a thread", e, "free some memory"))?;
        Ok(Boosting { thread: Some(thread), stop, given })
    }

    /// The visits, lent time and costs so far.
    pub fn given(&self) -> Given {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the loop has ended by itself, because the guest has ended or a quota cannot be written.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the loop and puts every quota back. Returns notes for people on what was not permitted.
    ///
    /// # Errors
    /// The error that ended the loop, or that kept a quota from being put back.
    pub fn finish(mut self) -> Result<Vec<String>> {
        self.end().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn end(&mut self) -> Option<Result<Vec<String>>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Boosting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's groups put their quotas back even if it panics.
            let _ = thread.join();
        }
    }
}

/// The body of the thread.
struct Loop<G> {
    plan: Plan,
    vcpus: Vcpus,
    guest: G,
    policy: Decider,
    /// The open grace period's number, and when it was first seen.
    open: Option<(u64, u64)>,
    /// vCPUs that have not used up their lent time, and when it was lent.
    visited: Vec<(usize, u64)>,
    /// The policy's orders at this look.
    orders: Vec<Order>,
    /// The CPUs that this thread may use between visits; and the pCPU that it is bound to during a visit.
    home: Option<CpuSet>,
    bound_to: Option<usize>,
    given: Given,
}

impl<G: GuestRcu> Loop<G> {
    fn new(plan: Plan, vcpus: Vcpus, guest: G) -> Loop<G> {
        let (count, now_ns) = (plan.tids.len(), now_ns());
        let policy = Decider::new(plan.aim, plan.settings, count, now_ns);
        Loop {
            plan,
            vcpus,
            guest,
            policy,
            open: None,
            visited: Vec::with_capacity(count),
            orders: Vec::with_capacity(count),
            home: None,
            bound_to: None,
            given: Given::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool, told: &Mutex<Given>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let _priority = FifoGuard::raise(1).map_err(|error| {
            notes.push(format!("the boosting loop runs without real-time priority: {error}"))
        });
        let _ = set_timer_slack_ns(1);
        self.home = threads::affinity_set(own_tid()).ok();
        let mut next_ns = now_ns();
        while !stop.load(Ordering::Relaxed) {
            let began_ns = now_ns();
            self.look()?;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = self.given;
            // A late look is not made up for: that would only come in bursts.
            let ended_ns = now_ns();
            next_ns = (next_ns + self.plan.look_ns).max(ended_ns);
            let due_ns = self.vcpus.accounts.iter().filter_map(|account| account.ledger.due_ns()).min();
            let wanted_ns = due_ns.map_or(next_ns, |due_ns| next_ns.min(due_ns));
            sleep_until(wanted_ns.max(rested_ns(began_ns, ended_ns)));
        }
        let restored = self.vcpus.accounts.iter_mut().map(|account| account.group.restore());
        restored.fold(Ok(()), Result::and)?;
        Ok(notes)
    }

    fn look(&mut self) -> Result<()> {
        self.stand_by();
        let rcu = self.guest.look()?;
        self.vcpus.read_times()?;
        let at_ns = now_ns();
        for account in &mut self.vcpus.accounts {
            account.look(at_ns, self.plan.may_act)?;
        }
        self.vcpus.judge(&rcu);
        let seen = &self.vcpus.seen;
        self.visited.retain(|(v, began_ns)| !seen[*v].is_off && at_ns < began_ns + LONGEST_VISIT_NS);
        let open_since_ns = self.open_since_ns(at_ns, &rcu);
        self.orders.clear();
        let look = Look { at_ns, open_since_ns, vcpus: &self.vcpus.seen };
        self.orders.extend_from_slice(self.policy.look(&look));
        for order in &self.orders {
            match *order {
                Order::Begin(v) => {
                    self.given.visits += 1;
                    self.visited.retain(|(other, _)| *other != v);
                    self.visited.push((v, at_ns));
                    if let Some(account) = self.vcpus.account_of(v).filter(|_| self.plan.may_act) {
                        account.lend(self.plan.settings.cap_ns)?;
                    }
                }
                // The kernel itself ends the visit.
                Order::End(_) => {}
            }
        }
        self.given.looks += 1;
        self.given.lent_ns = self.vcpus.accounts.iter().map(|account| account.ledger.lent_ns()).sum();
        self.given.own_cpu_ns = thread_cpu_ns();
        Ok(())
    }

    /// Moves this thread to the pCPU of a visited vCPU, or to each in turn if there are several. When this thread
    /// preempts the vCPU, the kernel accounts the vCPU's run time, and so throttles it in time.
    fn stand_by(&mut self) {
        let turn = self.given.looks as usize % self.visited.len().max(1);
        let wanted = self.visited.get(turn).and_then(|(v, _)| self.vcpus.pcpu_of(*v));
        if wanted == self.bound_to {
            return;
        }
        let Some(home) = &self.home else { return };
        let cpus = match wanted {
            Some(pcpu) => std::iter::once(pcpu).collect(),
            None => *home,
        };
        // If the kernel refuses, visits last up to a tick longer. That time is paid back, too.
        let _ = set_affinity_set(own_tid(), &cpus);
        self.bound_to = wanted;
    }

    fn open_since_ns(&mut self, at_ns: u64, rcu: &RcuLook) -> Option<u64> {
        self.open = match (rcu.open, self.open) {
            (Some(number), Some((last, since_ns))) if number == last => Some((last, since_ns)),
            (Some(number), _) => Some((number, at_ns)),
            (None, _) => None,
        };
        self.open.map(|(_, since_ns)| since_ns)
    }
}

/// When the loop has slept as long as its look took: so this thread, which has real-time priority, takes half of a CPU at the
/// most, however slow looks are.
fn rested_ns(began_ns: u64, ended_ns: u64) -> u64 {
    ended_ns.saturating_add(ended_ns.saturating_sub(began_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_sleeps_as_long_as_it_looked() {
        assert_eq!((rested_ns(100, 130), rested_ns(130, 100)), (160, 100));
    }
}
