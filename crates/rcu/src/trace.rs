//! Events for the `tracing` crate, behind the feature of that name. Without the feature these functions do nothing.
//!
//! Only writers report, on paths that are slow already, and never under a lock: a subscriber may use the domain.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use crate::garbage::Full;

/// A grace period has ended, `ns` after it began. Reported where the domain has a hook for late readers, whose limit
/// `limit_ns` returns, and the grace period took longer than that.
pub(crate) fn grace_period(ns: u64, limit_ns: impl FnOnce() -> Option<u64>) {
    #[cfg(feature = "tracing")]
    if let Some(limit_ns) = limit_ns()
        && ns > limit_ns
    {
        tracing::warn!(duration_ns = ns, limit_ns, "a grace period took long");
    }
}

/// The domain's readers execute fences from now on, or no longer.
pub(crate) fn switched(to_fences: bool) {
    #[cfg(feature = "tracing")]
    tracing::info!(to_fences, "membarrier's latency crossed its limit");
}

/// A call finds the domain at a limit of garbage.
pub(crate) fn limit_reached(full: Full) {
    #[cfg(feature = "tracing")]
    tracing::debug!(objects = full.objects, bytes = full.bytes, "garbage is at its limit");
}

/// A call could not bring the garbage below its limit, and exceeded it.
pub(crate) fn limit_exceeded(full: Full) {
    #[cfg(feature = "tracing")]
    tracing::warn!(objects = full.objects, bytes = full.bytes, "garbage exceeds its limit");
}
