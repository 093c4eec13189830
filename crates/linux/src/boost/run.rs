//! The thread that looks at the guest and boosts its vCPUs until it is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use reprieve_policy::boost::{Aim, Decider, Look, Order, Settings, Ticks};

use super::stand::Stand;
use super::vcpus::Vcpus;
use super::{GuestRcu, Limited, RcuLook};
use crate::clock::{now_ns, sleep_until, thread_cpu_ns};
use crate::proc::ProcRoot;
use crate::threads::{FifoGuard, set_timer_slack_ns};
use crate::{Error, Result};

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
    ticks: Ticks,
    /// vCPUs that have not used up their lent time, and when it was lent.
    visited: Vec<(usize, u64)>,
    stand: Stand,
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
            ticks: Ticks::default(),
            visited: Vec::with_capacity(count),
            stand: Stand::default(),
            given: Given::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool, told: &Mutex<Given>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let _priority = FifoGuard::raise(1).map_err(|error| {
            notes.push(format!("the boosting loop runs without real-time priority: {error}"))
        });
        let _ = set_timer_slack_ns(1);
        self.stand = Stand::here();
        while !stop.load(Ordering::Relaxed) {
            let began_ns = now_ns();
            let at_ns = self.look()?;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = self.given;
            sleep_until(self.next_look_ns(at_ns).max(rested_ns(began_ns, now_ns())));
        }
        notes.extend(self.stand.note());
        let restored = self.vcpus.accounts.iter_mut().map(|account| account.group.restore());
        restored.fold(Ok(()), Result::and)?;
        Ok(notes)
    }

    /// Takes a look. Returns when.
    fn look(&mut self) -> Result<u64> {
        let rcu = self.guest.look()?;
        self.vcpus.read_times()?;
        let at_ns = now_ns();
        for account in &mut self.vcpus.accounts {
            account.look(at_ns, self.plan.may_act)?;
        }
        self.vcpus.judge(&rcu);
        self.stand_by(at_ns)?;
        let open_since_ns = self.open_since_ns(at_ns, &rcu);
        self.ticks.look(at_ns, rcu.ticks);
        let tick_ns = self.ticks.to_meet_ns(at_ns, self.plan.settings.cap_ns);
        let look = Look { at_ns, open_since_ns, tick_ns, vcpus: &self.vcpus.seen };
        let mut failed = None;
        let is_off =
            |v| self.vcpus.is_off(v, &mut self.stand).unwrap_or_else(|error| failed.replace(error).is_some());
        let began = self.policy.look(&look, is_off).iter().filter_map(|order| match *order {
            Order::Begin(v) => Some((v, at_ns)),
            // The kernel itself ends the visit.
            Order::End(_) => None,
        });
        let first = self.visited.len();
        self.visited.extend(began);
        failed.map_or(Ok(()), Err)?;
        for (v, _) in &self.visited[first..] {
            self.given.visits += 1;
            if let Some(account) = self.vcpus.account_of(*v).filter(|_| self.plan.may_act) {
                account.lend(self.plan.settings.cap_ns)?;
            }
        }
        renew(&mut self.visited, first);
        self.stand.rest();
        self.given.looks += 1;
        self.given.lent_ns = self.vcpus.accounts.iter().map(|account| account.ledger.lent_ns()).sum();
        self.given.own_cpu_ns = thread_cpu_ns();
        Ok(at_ns)
    }

    /// Takes each visited vCPU's pCPU for a moment, so that the kernel accounts its run time, and throttles it in time. Forgets
    /// those whose visit is over.
    fn stand_by(&mut self, at_ns: u64) -> Result<()> {
        let mut failed = None;
        self.visited.retain(|(v, began_ns)| {
            let is_off = self
                .vcpus
                .is_off(*v, &mut self.stand)
                .unwrap_or_else(|error| failed.replace(error).is_some());
            let elapsed_ns = at_ns.saturating_sub(*began_ns);
            elapsed_ns < self.plan.settings.cap_ns || !is_off && elapsed_ns < LONGEST_VISIT_NS
        });
        failed.map_or(Ok(()), Err)
    }

    fn next_look_ns(&self, at_ns: u64) -> u64 {
        let look_ns = self.plan.look_ns;
        let soon_ns = at_ns.saturating_add(look_ns);
        let next_ns = match self.visited.is_empty() {
            true => self.policy.next_look_ns(at_ns, look_ns),
            false => soon_ns,
        };
        let ledgers = || self.vcpus.accounts.iter().map(|account| &account.ledger);
        let next_ns = if ledgers().any(|ledger| ledger.wants_count(next_ns)) { soon_ns } else { next_ns };
        ledgers().filter_map(|ledger| ledger.due_ns()).fold(next_ns, u64::min)
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

/// Of visits to the same vCPU, only the one that began last counts: those from `first` on have begun just now.
fn renew(visited: &mut Vec<(usize, u64)>, first: usize) {
    let begun = visited.split_off(first);
    visited.retain(|(v, _)| !begun.iter().any(|(again, _)| again == v));
    visited.extend(begun);
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
    fn a_vcpu_that_is_visited_again_is_looked_at_once() {
        let mut visited = vec![(3, 10), (1, 10), (1, 20)];
        renew(&mut visited, 2);
        assert_eq!(visited, [(3, 10), (1, 20)]);
        renew(&mut visited, 2);
        assert_eq!(visited, [(3, 10), (1, 20)]);
    }

    #[test]
    fn the_loop_sleeps_as_long_as_it_looked() {
        assert_eq!((rested_ns(100, 130), rested_ns(130, 100)), (160, 100));
    }
}
