//! The clock of `std`. There is no portable clock for a thread's CPU time.

use std::thread::JoinHandle;

/// Nanoseconds since the first call.
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) fn now_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// This target has no clock, and `Instant` panics. Each call advances the time by a microsecond, so that every
/// deadline ends.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) fn now_ns() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NOW: AtomicU64 = AtomicU64::new(0);
    NOW.fetch_add(1_000, Ordering::Relaxed)
}

/// Always 0: not known here.
pub(crate) fn cpu_ns_of(_thread: &JoinHandle<()>) -> u64 {
    0
}
