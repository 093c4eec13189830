//! The oracle, an ideal that cannot be built, to which remedies are compared. A vCPU gets a pCPU at once when the
//! guest's grace-period kthread could run on it, or when it could free memory whose grace period is over. It keeps the
//! pCPU until that is done.
//!
//! The other half of the oracle is in RCU's parameters (`descheduled_is_quiescent`): a descheduled vCPU counts as
//! quiescent at once, though it may be within a reader. So neither a grace period, nor the memory to be freed after it,
//! waits for a descheduled vCPU.
//!
//! The time is charged, like that of a boost, but nothing bounds it: a guest that has much to free gets more CPU time than
//! without the oracle, at its neighbours' expense. The alternative would be a host that never takes a pCPU from a holdout.
//! It would give the guest more still, so the guest would free more, and its footprint would be higher.

use super::World;
use crate::host::State;

/// The oracle of one guest.
#[derive(Debug)]
pub(super) struct Oracle {
    guest: usize,
    /// The vCPUs that the oracle keeps on a pCPU.
    favoured: Vec<bool>,
}

impl World {
    /// Adds the oracle for a guest.
    pub fn add_oracle(&mut self, guest: usize) {
        self.oracle = Some(Oracle { guest, favoured: vec![false; self.guests[guest].vcpus().len()] });
    }

    /// Runs after each event. Puts vCPUs on a pCPU, and ends that when it is no longer needed.
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
            // A vCPU that a stimulus has stopped stays off.
            thread.state == State::Runnable && thread.paused_until_ns.is_none()
        };
        // The kthread comes first. If other vCPUs were favoured too, they could hold the pCPU that the kthread needs.
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
