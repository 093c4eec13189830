//! Allocates and frees with an allocator that knows of deferred frees. This connects [`Latent`] with RCU, memory and
//! CPU time.

use crate::guest::env::Env;
use crate::guest::ids::TaskId;
use crate::guest::memory::{Cache, Object};
use crate::guest::rcu_side::RcuSide;
use crate::guest::{Clock, Guest};

impl RcuSide {
    /// Keeps an object until a grace period has passed. Returns false if the object needs a callback instead, because
    /// the allocator does not know of deferred frees or the object is not from a slab.
    pub(super) fn keep_latent(&mut self, v: usize, object: Object) -> bool {
        let (Some(latent), Some(cache)) = (&mut self.latent, object.cache()) else { return false };
        let now = self.state.cookie();
        if latent.put(v, cache, object, now) {
            self.state.ask_for(v, now, &mut self.effects);
        }
        true
    }
}

impl Env<'_> {
    /// A latent object whose grace period has passed. It comes from this vCPU or, if the cache would otherwise have to
    /// grow, from another vCPU.
    pub(super) fn reuse(&mut self, cache: Cache) -> Option<Object> {
        let rcu = &mut *self.rcu;
        let latent = rcu.latent.as_mut()?;
        let passed = |cookie| rcu.state.has_passed(cookie);
        let costs = &self.costs.memory;
        if let Some(object) = latent.take(self.vcpu, cache, passed) {
            self.spent_ns += costs.slab_fast_ns;
            return Some(object);
        }
        if self.memory.has_free(self.vcpu, cache) {
            return None;
        }
        let moved = latent.borrow(self.vcpu, cache, passed);
        if moved > 0 {
            self.spent_ns += costs.slab_partial_ns + costs.slab_remote_ns * moved as u64;
            return latent.take(self.vcpu, cache, passed);
        }
        self.ask_if_short(cache);
        None
    }

    /// Requests a grace period for a cache that is about to grow, if many of its objects are latent.
    fn ask_if_short(&mut self, cache: Cache) {
        let rcu = &mut *self.rcu;
        let Some(latent) = &mut rcu.latent else { return };
        let now = rcu.state.cookie();
        let objects = self.memory.objects_of(cache);
        if !latent.must_ask(cache, objects, now, |cookie| rcu.state.has_passed(cookie)) {
            return;
        }
        if latent.settings.expedite {
            // The allocator's caller may be a reader, so it cannot wait itself. A worker does.
            let worker = rcu.batched.expedite(self.vcpu);
            self.spent_ns += self.costs.wake_ns;
            self.to_wake.extend(worker);
        } else {
            rcu.state.hurry(&mut rcu.effects);
        }
    }

    /// Returns all latent objects that can be used again to their slabs. Returns whether there were any.
    pub(super) fn return_latent(&mut self) -> bool {
        let mut objects = Vec::new();
        let state = &self.rcu.state;
        let Some(latent) = &mut self.rcu.latent else { return false };
        latent.take_all(|cookie| state.has_passed(cookie), &mut objects);
        self.spent_ns += objects.iter().map(|object| self.memory.free(self.vcpu, *object)).sum::<u64>();
        !objects.is_empty()
    }
}

impl Guest {
    /// Returns surplus latent objects to their slabs, at a tick. Returns the CPU time.
    pub(super) fn return_surplus(&mut self, v: usize) -> u64 {
        let Some(latent) = &mut self.rcu.latent else { return 0 };
        let (state, mut surplus) = (&self.rcu.state, Vec::new());
        latent.tick(v, self.jiffies.now, |cookie| state.has_passed(cookie), &mut surplus);
        surplus.into_iter().map(|object| self.memory.free(v, object)).sum()
    }

    /// Whether a vCPU has latent objects, which its tick will eventually return to their slabs.
    pub(super) fn has_latent(&self, v: usize) -> bool {
        self.rcu.latent.as_ref().is_some_and(|latent| latent.has_any(v))
    }

    /// Makes the current task wait for an expedited grace period.
    pub(super) fn wait_expedited(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.rcu.state.start_expedited(v, u64::from(task.0), &mut self.rcu.effects);
        self.block(v, task);
        self.apply_effects(clock, Some(v));
    }
}
