//! A value whose memory shows whether it was dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const ALIVE: u64 = 0x5ca1_ab1e;

/// Counts its drops, and spoils its memory.
pub struct Canary {
    pub number: u64,
    state: AtomicU64,
    drops: Arc<AtomicUsize>,
}

impl Canary {
    pub fn new(number: u64, drops: &Arc<AtomicUsize>) -> Self {
        Self { number, state: AtomicU64::new(ALIVE), drops: drops.clone() }
    }

    /// The number, if the value is alive.
    #[track_caller]
    pub fn check(&self) -> u64 {
        assert_eq!(self.state.load(Ordering::SeqCst), ALIVE, "used after it was dropped");
        self.number
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.check();
        self.state.store(0, Ordering::SeqCst);
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}
