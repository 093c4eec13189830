//! Grace periods for those who ask instead of being called back (`get_state_synchronize_rcu_full`,
//! `poll_state_synchronize_rcu_full`, `start_poll_synchronize_rcu`).

use super::effects::Effects;
use super::sequence::{is_before, snapshot};
use super::state::Rcu;

/// A moment: [`Rcu::has_passed`] says whether a full grace period has passed since, normal or expedited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    normal: u64,
    expedited: u64,
}

impl Rcu {
    /// This moment.
    #[inline]
    pub fn cookie(&self) -> Cookie {
        Cookie { normal: snapshot(self.gp_seq), expedited: snapshot(self.expedited.seq) }
    }

    /// Whether a full grace period has passed since that moment: every CPU was quiescent after it.
    #[inline]
    pub fn has_passed(&self, cookie: Cookie) -> bool {
        !is_before(self.gp_seq, cookie.normal) || !is_before(self.expedited.seq, cookie.expedited)
    }

    /// That CPU asks for the grace period after which the cookie has passed, unless somebody did.
    pub fn ask_for(&mut self, cpu: usize, cookie: Cookie, effects: &mut Effects) {
        let leaf = self.cpus[cpu].leaf;
        if is_before(self.gp_seq, cookie.normal) && self.request(cpu, leaf, cookie.normal) {
            self.wake_kthread(effects);
        }
    }

    /// Has the kthread look now which CPUs the grace period still waits for.
    pub fn hurry(&mut self, effects: &mut Effects) {
        if self.gp_in_progress() && !self.look_wanted {
            self.look_wanted = true;
            self.wake_kthread(effects);
        }
    }
}
