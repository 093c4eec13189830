//! Events for the `tracing` crate, behind the feature of that name. Without it, nothing.
//!
//! Writers only, on paths that are slow already, and never under a lock: a subscriber may use the domain.

#[cfg(feature = "tracing")]
mod events {
    use crate::core::Core;
    use crate::garbage::Full;

    /// A grace period has ended, `ns` after it began. An event where the domain has a hook for late readers
    /// and this was longer than the hook's limit.
    pub(crate) fn grace_period(core: &Core, ns: u64) {
        if let Some(hook) = core.hook()
            && ns > hook.limit_ns
        {
            tracing::warn!(duration_ns = ns, limit_ns = hook.limit_ns, "a grace period took long");
        }
    }

    /// The domain's readers execute fences from now on, or no longer.
    pub(crate) fn switched(to_fences: bool) {
        tracing::info!(to_fences, "membarrier's latency crossed its limit");
    }

    /// A call finds the domain at a limit of garbage.
    pub(crate) fn limit_reached(full: Full) {
        tracing::debug!(objects = full.objects, bytes = full.bytes, "garbage is at its limit");
    }

    /// A call could not bring the garbage below its limit, and went beyond.
    pub(crate) fn limit_exceeded(full: Full) {
        tracing::warn!(objects = full.objects, bytes = full.bytes, "garbage exceeds its limit");
    }
}

#[cfg(not(feature = "tracing"))]
mod events {
    use crate::core::Core;
    use crate::garbage::Full;

    pub(crate) fn grace_period(_: &Core, _: u64) {}
    pub(crate) fn switched(_: bool) {}
    pub(crate) fn limit_reached(_: Full) {}
    pub(crate) fn limit_exceeded(_: Full) {}
}

pub(crate) use events::{grace_period, limit_exceeded, limit_reached, switched};
