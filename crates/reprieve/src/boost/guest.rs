//! A guest of `reprieve boost`: its process, what was seen of it, and whether it is watched at the moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reprieve_linux::boost::{Boosting, Given, Limited};
use reprieve_linux::warden::Guarded;
use reprieve_vm::attach::{Qemu, Seen};

/// The pause before the second attempt to attach; each further one is twice as long.
const AGAIN_EVERY: Duration = Duration::from_secs(3);
/// The longest time until a guest is attached to again.
const AGAIN_AT_THE_LATEST: Duration = Duration::from_secs(300);

/// A guest, from the first attempt to attach to it.
pub struct Guest {
    /// Its process.
    pub qemu: Qemu,
    /// Release of its kernel.
    pub release: String,
    /// What was seen of it, over all its starts.
    pub seen: Arc<Mutex<Seen>>,
    /// The groups whose quota limits its vCPUs.
    pub limits: Vec<Limited>,
    /// The share of the first of these that could have shorter periods: a quota and a period, ns.
    pub shorter: Option<(u64, u64)>,
    /// Whether these are known: someone who may only watch may not be able to see them.
    pub knows_limits: bool,
    /// What boosts gave, or would have given, before it was last attached to.
    pub earlier: Given,
    /// How often it was started anew meanwhile.
    pub restarts: u64,
    pub state: State,
    /// Quotas that the warden guards: those that are, or may be, lent of. Each is the first that the group had.
    pub guarded: Vec<Guarded>,
    /// Times in a row that it was attached to, or tried to, without being watched for long.
    pub failures: u32,
}

/// Whether a guest is watched.
pub enum State {
    /// Since when.
    Watched(Boosting, Instant),
    /// It boots, was started anew, or its groups were changed; the next attempt to attach.
    Waits(Instant),
    /// Why; nothing if all is over.
    Ended(String),
}

impl Guest {
    /// One that is not attached to yet.
    pub fn new(qemu: Qemu) -> Guest {
        Guest {
            seen: Arc::new(Mutex::new(Seen::new(qemu.vcpus.len()))),
            qemu,
            release: String::new(),
            limits: Vec::new(),
            shorter: None,
            knows_limits: false,
            earlier: Given::default(),
            restarts: 0,
            state: State::Ended(String::new()),
            guarded: Vec::new(),
            failures: 0,
        }
    }

    /// Whether this is its process.
    pub fn is(&self, qemu: &Qemu) -> bool {
        (self.qemu.pid, self.qemu.start_ticks) == (qemu.pid, qemu.start_ticks)
    }

    /// Whether it was ever attached to.
    pub fn was_watched(&self) -> bool {
        !self.release.is_empty()
    }

    /// What boosts gave, or would have given.
    pub fn given(&self) -> Given {
        let mut given = self.earlier;
        if let State::Watched(boosting, _) = &self.state {
            let now = boosting.given();
            given.visits += now.visits;
            given.lent_ns += now.lent_ns;
            given.own_cpu_ns += now.own_cpu_ns;
            given.looks += now.looks;
        }
        given
    }

    /// Why it is no longer watched, unless because all is over.
    pub fn ended(&self) -> Option<&str> {
        match &self.state {
            State::Ended(why) => Some(why.as_str()).filter(|why| !why.is_empty()),
            State::Waits(_) if self.was_watched() => Some("its kernel was not found again yet"),
            State::Waits(_) => Some("its kernel was not found yet"),
            State::Watched(..) => None,
        }
    }

    /// Attaches again later: ever later, if it does not help.
    pub fn wait(&mut self) {
        self.state = State::Waits(Instant::now() + pause(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// What was seen of it up to now.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Until a guest is attached to again, after so many failures before.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        1.. => AGAIN_EVERY.saturating_mul(1 << (failures - 1).min(16)).min(AGAIN_AT_THE_LATEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_fails_again_and_again_is_attached_to_ever_later() {
        let seconds = [0, 1, 2, 3, 4, 30, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(seconds, [0, 3, 6, 12, 24, 300, 300]);
    }
}
