//! Which descheduled vCPUs of a VM should run, so that its RCU grace period can end.
//!
//! A grace period waits for every vCPU that has not reported a quiescent state (a *holdout*), and for the kthread that
//! ends it. While the host deschedules such a vCPU, the grace period cannot end, and memory freed under RCU piles up. This
//! module orders exactly these vCPUs to run for a moment each, a *visit*, of a millisecond or less.
//!
//! A vCPU reports in two steps: at a tick of the guest's timer it notices the grace period, and at the next tick it
//! reports. A vCPU that runs again takes an overdue tick at once. So a visit that begins shortly before a tick covers two
//! ticks, and may be much shorter than the time between ticks. A vCPU that hosts the kthread, or may hold a lock that a
//! holdout spins for, needs no tick and is visited at any time.
//!
//! The time is lent, not given. The caller carries out the orders and charges the time to the vCPU like all its run time,
//! so the vCPU has to wait longer later. Three bounds hold even if a grace period never ends. No visit begins while the
//! vCPU owes as much as a limit. Visits take at most a set share of a CPU, with up to one second's worth saved. After
//! a few visits to a vCPU in one grace period, each further pause is twice as long.

mod aim;
mod ledger;
mod ticks;
mod unaimed;

pub use aim::{Aim, Decider};
pub use ledger::{LEAD_NS, LEAST_NS, Ledger};
pub use ticks::Ticks;
pub use unaimed::Unaimed;

use crate::SECOND_NS;

/// Visits to a vCPU within one grace period after which the pause before each further one doubles.
const PATIENCE: u32 = 4;
/// While no vCPU is visited or should be, looks are this many times as far apart.
const CALM: u64 = 4;
/// The longest pause between two visits.
const LONGEST_PAUSE_NS: u64 = SECOND_NS;

/// When to boost, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// vCPUs are boosted once the grace period is this old, ns.
    pub threshold_ns: u64,
    /// The longest visit, ns.
    pub cap_ns: u64,
    /// The shortest pause between two visits of a vCPU, ns.
    pub cool_down_ns: u64,
    /// A vCPU that owes this much CPU time is not boosted, ns.
    pub debt_ns: u64,
    /// CPU time that a vCPU's visits may take, in thousandths of one CPU. Up to one second's worth can be saved.
    pub share_permille: u64,
    /// Whether a visit to a vCPU that only has to report begins shortly before a tick of the guest. Fewer visits then suffice, but
    /// each comes up to a tick later.
    pub before_tick: bool,
}

impl Default for Settings {
    /// Chosen on simulated guests with a tick of 4 ms, with another seed than results are reported for.
    fn default() -> Settings {
        Settings {
            threshold_ns: 5_000_000,
            cap_ns: 500_000,
            cool_down_ns: 1_500_000,
            debt_ns: 10_000_000,
            share_permille: 200,
            before_tick: false,
        }
    }
}

impl Settings {
    /// The most that visits can save up, in thousandths of ns.
    fn most_budget(&self) -> u64 {
        self.share_permille.saturating_mul(SECOND_NS)
    }
}

/// What is known of a vCPU at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// The open grace period waits for it.
    pub is_holdout: bool,
    /// The grace-period kthread wants to run on it.
    pub has_kthread: bool,
    /// Its task cannot be preempted, so it may hold a spinlock that another vCPU spins for.
    pub may_hold_lock: bool,
    /// Its CPU time so far, ns.
    pub run_ns: u64,
    /// Its CPU time beyond what it is entitled to, ns.
    pub debt_ns: u64,
}

impl Vcpu {
    fn is_waited_for(&self) -> bool {
        self.is_holdout || self.is_urgent()
    }

    /// A visit helps even if no tick falls into it.
    fn is_urgent(&self) -> bool {
        self.has_kthread || self.may_hold_lock && !self.is_holdout
    }
}

/// What is known of a VM at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The moment.
    pub at_ns: u64,
    /// When the open grace period began; none if none is open.
    pub open_since_ns: Option<u64>,
    /// The tick that visits should meet ([`Ticks::to_meet_ns`]); none if they may begin at any time.
    pub tick_ns: Option<u64>,
    /// All vCPUs, in the same order at every look.
    pub vcpus: &'a [Vcpu],
}

/// What to do with a vCPU, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Let it run at once.
    Begin(usize),
    /// End its visit: it competes for CPU time as before.
    End(usize),
}

/// A visit that is under way.
#[derive(Clone, Copy, Debug)]
struct Visit {
    began_ns: u64,
    /// The vCPU's run time when it began.
    run_ns: u64,
}

/// What is remembered of a vCPU.
#[derive(Clone, Debug)]
struct Past {
    visit: Option<Visit>,
    /// When the last visit ended.
    ended_ns: Option<u64>,
    /// Number of visits in the open grace period.
    visits: u32,
    /// CPU time that visits may still take, in thousandths of ns.
    budget: u64,
    /// The moment up to which the budget has been refilled.
    filled_ns: u64,
}

/// Decides for one VM.
#[derive(Clone, Debug)]
pub struct Booster {
    settings: Settings,
    pasts: Vec<Past>,
    orders: Vec<Order>,
    /// Start of the grace period that was open at the last look.
    open_since_ns: Option<u64>,
    /// Whether the last look asked if a vCPU is off: it then began a visit, or found the vCPU running.
    has_asked: bool,
    /// When to look again because a vCPU should be boosted shortly before a tick.
    before_tick_ns: Option<u64>,
}

impl Booster {
    /// For a VM with that many vCPUs, from `now_ns` on.
    pub fn new(settings: Settings, vcpus: usize, now_ns: u64) -> Booster {
        let budget = settings.most_budget();
        let past = Past { visit: None, ended_ns: None, visits: 0, budget, filled_ns: now_ns };
        let orders = Vec::with_capacity(vcpus);
        Booster {
            settings,
            pasts: vec![past; vcpus],
            orders,
            open_since_ns: None,
            has_asked: false,
            before_tick_ns: None,
        }
    }

    /// Takes a look and returns at most one order for each vCPU. `is_off` says whether a vCPU has work but no pCPU. It is
    /// called only for a vCPU that would be visited if it is off, because on a real host the answer costs time.
    ///
    /// # Panics
    /// If the number of vCPUs is not the one given to [`Booster::new`].
    pub fn look(&mut self, look: &Look<'_>, mut is_off: impl FnMut(usize) -> bool) -> &[Order] {
        assert_eq!(look.vcpus.len(), self.pasts.len(), "a VM's vCPUs do not change");
        self.orders.clear();
        self.has_asked = false;
        self.before_tick_ns = None;
        if look.open_since_ns != self.open_since_ns {
            self.open_since_ns = look.open_since_ns;
            self.pasts.iter_mut().for_each(|past| past.visits = 0);
        }
        let due_ns = look.open_since_ns.map(|since_ns| since_ns.saturating_add(self.settings.threshold_ns));
        let is_due = due_ns.is_some_and(|due_ns| look.at_ns >= due_ns);
        for (v, vcpu) in look.vcpus.iter().enumerate() {
            let past = &mut self.pasts[v];
            past.fill(&self.settings, look.at_ns);
            let is_wanted = is_due && vcpu.is_waited_for();
            match past.visit {
                Some(visit) => {
                    let is_over = look.at_ns.saturating_sub(visit.began_ns) >= self.settings.cap_ns;
                    if is_over || !is_wanted {
                        past.end(visit, look.at_ns, vcpu);
                        self.orders.push(Order::End(v));
                    }
                }
                None if is_wanted && past.may_begin(&self.settings, look.at_ns, vcpu) => {
                    if !vcpu.is_urgent()
                        && let Err(before_tick_ns) = meets_tick(look, &self.settings)
                    {
                        self.before_tick_ns = Some(before_tick_ns);
                        continue;
                    }
                    self.has_asked = true;
                    if is_off(v) {
                        past.visit = Some(Visit { began_ns: look.at_ns, run_ns: vcpu.run_ns });
                        past.visits += 1;
                        self.orders.push(Order::Begin(v));
                    }
                }
                None => {}
            }
        }
        &self.orders
    }

    /// When to look again after a look at `at_ns`, if looks are usually `look_ns` apart: earlier if a visit should end or begin
    /// before that, and later while no vCPU is visited or should be, so that looks cost less.
    pub fn next_look_ns(&self, at_ns: u64, look_ns: u64) -> u64 {
        let visits = self.pasts.iter().filter_map(|past| past.visit);
        let first_end_ns = visits.map(|visit| visit.began_ns.saturating_add(self.settings.cap_ns)).min();
        let is_calm = first_end_ns.is_none() && !self.has_asked;
        let pause_ns = look_ns.max(1).saturating_mul(if is_calm { CALM } else { 1 });
        let soon_ns = at_ns.saturating_add(pause_ns);
        let events = first_end_ns.into_iter().chain(self.before_tick_ns);
        events.fold(soon_ns, |soon_ns, event_ns| soon_ns.min(event_ns.max(at_ns + 1)))
    }

    /// The vCPUs with a visit under way. A caller that stops must end these visits.
    pub fn boosted(&self) -> impl Iterator<Item = usize> + '_ {
        self.pasts.iter().enumerate().filter(|(_, past)| past.visit.is_some()).map(|(v, _)| v)
    }
}

/// `Ok` if the guest's next tick falls into the middle half of a visit that begins now, or if ticks are unknown. Otherwise
/// the moment to look again: when a visit would have the tick in its middle, or, if that has passed, the tick itself.
fn meets_tick(look: &Look<'_>, settings: &Settings) -> Result<(), u64> {
    let Some(tick_ns) = look.tick_ns.filter(|_| settings.before_tick) else { return Ok(()) };
    let cap_ns = settings.cap_ns;
    let left_ns = tick_ns.saturating_sub(look.at_ns);
    match left_ns >= cap_ns / 4 && left_ns <= cap_ns - cap_ns / 4 {
        true => Ok(()),
        false if left_ns > cap_ns / 2 => Err(tick_ns - cap_ns / 2),
        false => Err(tick_ns),
    }
}

impl Past {
    fn fill(&mut self, settings: &Settings, at_ns: u64) {
        let elapsed_ns = at_ns.saturating_sub(self.filled_ns).min(SECOND_NS);
        let added = elapsed_ns.saturating_mul(settings.share_permille);
        self.budget = self.budget.saturating_add(added).min(settings.most_budget());
        self.filled_ns = self.filled_ns.max(at_ns);
    }

    fn may_begin(&self, settings: &Settings, at_ns: u64, vcpu: &Vcpu) -> bool {
        let next_ns = self.ended_ns.map_or(0, |ended_ns| ended_ns.saturating_add(self.pause_ns(settings)));
        at_ns >= next_ns
            && vcpu.debt_ns < settings.debt_ns
            && self.budget >= settings.cap_ns.saturating_mul(1000)
    }

    /// The pause before the next visit. It starts short again with each grace period.
    fn pause_ns(&self, settings: &Settings) -> u64 {
        let doublings = self.visits.saturating_sub(PATIENCE).min(16);
        settings.cool_down_ns.saturating_mul(1 << doublings).min(LONGEST_PAUSE_NS.max(settings.cool_down_ns))
    }

    fn end(&mut self, visit: Visit, at_ns: u64, vcpu: &Vcpu) {
        let took_ns = vcpu.run_ns.saturating_sub(visit.run_ns);
        self.budget = self.budget.saturating_sub(took_ns.saturating_mul(1000));
        (self.visit, self.ended_ns) = (None, Some(at_ns));
    }
}

#[cfg(test)]
mod tests;
