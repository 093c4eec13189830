//! Allocating and freeing where the allocator knows of deferred frees: [`Latent`] joined with RCU, memory and CPU time.

use crate::guest::env::Env;
use crate::guest::ids::TaskId;
use crate::guest::memory::{Cache, Object};
use crate::guest::rcu_side::RcuSide;
use crate::guest::{Clock, Guest};

impl RcuSide {
    /// Keeps an object until a grace period has passed; false if it needs a callback, because the allocator knows of no
    /// deferred frees or the object is of no slab.
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
    /// A latent object whose grace period has passed, if the vCPU has one; or if the cache would have to grow, and another
    /// vCPU has one.
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

    /// A cache is about to grow: asks for a grace period if much of it is latent.
    fn ask_if_short(&mut self, cache: Cache) {
        let rcu = &mut *self.rcu;
        let Some(latent) = &mut rcu.latent else { return };
        let now = rcu.state.cookie();
        let objects = self.memory.objects_of(cache);
        if !latent.must_ask(cache, objects, now, |cookie| rcu.state.has_passed(cookie)) {
            return;
        }
        if latent.settings.expedite {
            // The allocator's caller may be a reader, so it cannot ask itself.
            let worker = rcu.batched.expedite(self.vcpu);
            self.spent_ns += self.costs.wake_ns;
            self.to_wake.extend(worker);
        } else {
            rcu.state.hurry(&mut rcu.effects);
        }
    }

    /// Gives back to their slabs all latent objects that can be used again. Answers whether there were any.
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
    /// A tick: gives back latent objects that nobody needs. Returns the CPU time.
    pub(super) fn return_surplus(&mut self, v: usize) -> u64 {
        let Some(latent) = &mut self.rcu.latent else { return 0 };
        let (state, mut surplus) = (&self.rcu.state, Vec::new());
        latent.tick(v, self.jiffies.now, |cookie| state.has_passed(cookie), &mut surplus);
        surplus.into_iter().map(|object| self.memory.free(v, object)).sum()
    }

    /// Whether a vCPU has latent objects: its tick gives them back one day.
    pub(super) fn has_latent(&self, v: usize) -> bool {
        self.rcu.latent.as_ref().is_some_and(|latent| latent.has_any(v))
    }

    /// The current task waits for an expedited grace period.
    pub(super) fn wait_expedited(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.rcu.state.start_expedited(v, u64::from(task.0), &mut self.rcu.effects);
        self.block(v, task);
        self.apply_effects(clock, Some(v));
    }
}
