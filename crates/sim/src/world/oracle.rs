//! What nobody can do, to compare remedies with: a vCPU gets a pCPU at the moment at which the guest's grace-period
//! kthread could run on it, or at which it could free memory whose grace period is over. It keeps the pCPU until that is
//! done.
//!
//! The other half of the oracle is in RCU's parameters (`descheduled_is_quiescent`): a vCPU that the host takes off its
//! pCPU counts as quiescent at once, though it may be within a reader. So neither a grace period nor the memory after it
//! waits for anything that the host keeps off.
//!
//! The time is lent, as that of a boost is: the guest gets about as much CPU time as without the oracle. A host that never
//! took a pCPU from a holdout would give the guest more, and with it more to free: its footprint would be higher.

use super::World;
use crate::host::State;

/// The oracle of one guest.
#[derive(Debug)]
pub(super) struct Oracle {
    guest: usize,
    /// The vCPUs that are let on.
    favoured: Vec<bool>,
}

impl World {
    /// Adds the oracle for that guest.
    pub fn add_oracle(&mut self, guest: usize) {
        self.oracle = Some(Oracle { guest, favoured: vec![false; self.guests[guest].vcpus().len()] });
    }

    /// After each event: lets vCPUs on, and off again.
    #[inline]
    pub(super) fn foresee(&mut self) {
        if self.oracle.is_some() {
            self.favour();
        }
    }

    fn favour(&mut self) {
        let now_ns = self.now_ns;
        let Some(Oracle { guest, favoured }) = &mut self.oracle else { return };
        let (placement, guest) = (&self.placements[*guest], &self.guests[*guest]);
        let host = &mut self.hosts[placement.host];
        let Some(scheduler) = host.scheduler.boosting() else { return };
        let is_off = |v: usize| {
            let thread = &host.threads[placement.threads[v].0 as usize];
            // What a stimulus has stopped stays off.
            thread.state == State::Runnable && thread.paused_until_ns.is_none()
        };
        // The kthread comes first: on its pCPU it would have to wait for others that are favoured.
        let kthread = guest.ready_gp_kthread().filter(|v| favoured[*v] || is_off(*v));
        let could_work = |v: usize| kthread.map_or_else(|| guest.could_free(now_ns, v), |with| with == v);
        let mut changed = false;
        for (v, is_favoured) in favoured.iter_mut().enumerate() {
            let entity = placement.threads[v];
            let is_wanted = could_work(v) && (*is_favoured || is_off(v));
            if is_wanted == *is_favoured {
                continue;
            }
            match is_wanted {
                true => scheduler.boost(now_ns, entity, &mut host.orders),
                false => scheduler.end_boost(now_ns, entity, &mut host.orders),
            }
            (*is_favoured, changed) = (is_wanted, true);
        }
        if changed {
            self.deciding.push(placement.host);
            self.settle();
        }
    }
}
