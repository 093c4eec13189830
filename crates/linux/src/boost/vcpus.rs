//! The state of the vCPUs' threads and of their groups, in the form that the policy takes.

use reprieve_policy::boost::{Ledger, Vcpu};

use super::RcuLook;
use super::group::{Group, Limited};
use super::owner;
use super::stand::{Came, Stand};
use crate::Result;
use crate::proc::{ProcRoot, SchedStatReader, TaskStatReader};

/// A group with its ledger and its vCPUs.
#[derive(Debug)]
pub(super) struct Account {
    pub group: Group,
    pub ledger: Ledger,
    vcpus: Vec<usize>,
    /// Run time of the group's vCPUs at the last look.
    pub run_ns: u64,
}

/// All vCPUs of one VM.
#[derive(Debug)]
pub(super) struct Vcpus {
    times: Vec<SchedStatReader>,
    places: Vec<TaskStatReader>,
    pub accounts: Vec<Account>,
    /// The vCPUs at the last look.
    pub seen: Vec<Vcpu>,
    /// Run time of each vCPU at the look before.
    before_ns: Vec<u64>,
}

impl Vcpus {
    /// Opens the threads' and the groups' files; these to be written if it `may_act`.
    pub fn open(root: &ProcRoot, pid: i32, tids: &[i32], limits: &[Limited], may_act: bool) -> Result<Vcpus> {
        if may_act {
            owner::check(root, pid, limits)?;
        }
        let times = tids.iter().map(|tid| SchedStatReader::open(root, pid, *tid)).collect::<Result<_>>()?;
        let places = tids.iter().map(|tid| TaskStatReader::open(root, pid, *tid)).collect::<Result<_>>()?;
        let accounts = limits.iter().map(|limited| Account::open(limited, may_act)).collect::<Result<_>>()?;
        let count = tids.len();
        Ok(Vcpus { times, places, accounts, seen: vec![Vcpu::default(); count], before_ns: vec![0; count] })
    }

    /// The account of a vCPU, if it has a quota.
    pub fn account_of(&mut self, vcpu: usize) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|account| account.vcpus.contains(&vcpu))
    }

    /// Whether a vCPU's thread has work but does not run because its quota is used up. To find out, the loop's thread moves to
    /// that thread's pCPU. If that is not possible, the answer is no.
    pub fn is_off(&self, vcpu: usize, stand: &mut Stand) -> Result<bool> {
        let account = self.accounts.iter().find(|account| account.vcpus.contains(&vcpu));
        if !account.is_some_and(|account| account.ledger.is_used_up(account.run_ns)) {
            return Ok(false);
        }
        let stat = self.places[vcpu].read()?;
        if stat.state != 'R' {
            return Ok(false);
        }
        let known_ns = match stand.go(stat.cpu) {
            // The move itself makes the kernel account what the thread ran.
            Came::Moved => self.seen[vcpu].run_ns,
            // The kernel had accounted it when this thread woke up, before this look.
            Came::WasThere => self.before_ns[vcpu],
            // From elsewhere, a thread that runs looks as if it did not until the next tick.
            Came::Refused => return Ok(false),
        };
        if self.times[vcpu].read()?.run_ns != known_ns {
            return Ok(false);
        }
        // If it sleeps or was moved meanwhile, the CPU that was looked at says nothing of it.
        let now = self.places[vcpu].read()?;
        Ok(now.state == 'R' && now.cpu == stat.cpu)
    }

    /// Reads all run times.
    pub fn read_times(&mut self) -> Result<()> {
        for ((seen, before_ns), reader) in self.seen.iter_mut().zip(&mut self.before_ns).zip(&self.times) {
            *before_ns = seen.run_ns;
            seen.run_ns = reader.read()?.run_ns;
        }
        for account in &mut self.accounts {
            account.run_ns =
                account.vcpus.iter().filter_map(|v| self.seen.get(*v)).map(|vcpu| vcpu.run_ns).sum();
        }
        Ok(())
    }

    /// Updates for each vCPU what it owes, and whether the grace period waits for it.
    pub fn judge(&mut self, rcu: &RcuLook) {
        for (v, seen) in self.seen.iter_mut().enumerate() {
            let account = self.accounts.iter().find(|account| account.vcpus.contains(&v));
            *seen = Vcpu {
                is_holdout: has(rcu.holdouts, v),
                may_hold_lock: has(rcu.not_preemptible, v),
                has_kthread: rcu.kthread_on == Some(v),
                run_ns: seen.run_ns,
                debt_ns: account.map_or(0, Account::debt_ns),
            };
        }
    }
}

fn has(mask: u64, vcpu: usize) -> bool {
    vcpu < 64 && mask >> vcpu & 1 == 1
}

impl Account {
    fn open(limited: &Limited, may_act: bool) -> Result<Account> {
        let group = match may_act {
            true => Group::to_lend(&limited.directory)?,
            false => Group::open(&limited.directory)?,
        };
        let ledger = Ledger::new(group.quota_ns(), group.period_ns());
        Ok(Account { group, ledger, vcpus: limited.vcpus.clone(), run_ns: 0 })
    }

    /// The group's debt. If it is too large for the group's small quota, this is more than any limit.
    fn debt_ns(&self) -> u64 {
        if self.ledger.owes_much(self.run_ns) { u64::MAX } else { self.ledger.debt_ns(self.run_ns) }
    }

    /// Updates the ledger, and writes the quota that it asks for.
    pub fn look(&mut self, at_ns: u64, may_act: bool) -> Result<()> {
        let count = if self.ledger.wants_count(at_ns) { Some(self.group.periods()?) } else { None };
        match self.ledger.look(at_ns, self.run_ns, count) {
            Some(quota_ns) if may_act => self.group.write(quota_ns),
            _ => Ok(()),
        }
    }

    /// Lends the group the time of a visit.
    pub fn lend(&mut self, length_ns: u64) -> Result<()> {
        let quota_ns = self.ledger.lend(self.run_ns, length_ns);
        self.group.write(quota_ns)
    }
}
