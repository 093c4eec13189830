//! Back-pressure on deferred frees: bytes outstanding by the vCPU that deferred them, and what a task has to do about it.
//!
//! A vCPU stands for the callers on it, because that is what a kernel can count without touching each object twice.

use reprieve_policy::pressure::{Answer, Caller, Settings};

use crate::guest::env::Env;
use crate::guest::memory::{Memory, Object};
use crate::guest::rcu_side::RcuSide;
use crate::guest::task::Op;

/// What is outstanding.
#[derive(Clone, Debug)]
pub struct Outstanding {
    settings: Settings,
    /// Bytes that wait for callbacks, by the vCPU that queued them.
    bytes: Vec<u64>,
}

impl Outstanding {
    /// Nothing, on that many vCPUs.
    pub fn new(settings: Settings, vcpus: usize) -> Outstanding {
        Outstanding { settings, bytes: vec![0; vcpus] }
    }
}

impl RcuSide {
    /// An object waits for a callback that was queued on that vCPU.
    pub(super) fn add_outstanding(&mut self, v: usize, memory: &Memory, object: Object) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.bytes[v] += memory.bytes_of(object);
        }
    }

    /// Its callback was invoked.
    pub(super) fn remove_outstanding(&mut self, v: usize, memory: &Memory, object: Object) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.bytes[v] -= memory.bytes_of(object);
        }
    }

    /// Bytes outstanding of a vCPU.
    fn outstanding_bytes(&self, outstanding: &Outstanding, v: usize, memory: &Memory) -> u64 {
        let passed = |cookie| self.state.has_passed(cookie);
        let latent = self.latent.as_ref();
        let latent =
            latent.map_or(0, |latent| latent.waiting_bytes(v, passed, |cache| memory.object_bytes(cache)));
        outstanding.bytes[v] + latent
    }
}

impl Env<'_> {
    /// What a task has to do that has just deferred frees, before it goes on; nothing without back-pressure.
    pub fn back_pressure(&self) -> Option<Op> {
        let outstanding = self.rcu.outstanding.as_ref()?;
        let of = |v| self.rcu.outstanding_bytes(outstanding, v, self.memory);
        let each = (0..outstanding.bytes.len()).map(of);
        let mut caller = Caller { is_atomic: self.is_atomic, own_bytes: of(self.vcpu), ..Caller::default() };
        for bytes in each {
            caller.total_bytes += bytes;
            caller.callers += u64::from(bytes > 0);
        }
        match outstanding.settings.answer(&caller) {
            Answer::Go => None,
            Answer::Wait(ns) => Some(Op::Sleep { ns }),
            Answer::Synchronize => Some(Op::Synchronize),
        }
    }
}
