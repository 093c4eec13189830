//! Keys and values that panic in the user code that a map calls.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};

/// What keys and values of one test share.
#[derive(Default)]
pub struct Shared {
    /// How many calls of user code remain until one panics; 0 if none will.
    pub fuse: AtomicU64,
    pub live: AtomicIsize,
}
impl Shared {
    pub fn step(&self) {
        if self.fuse.load(Ordering::Relaxed) != 0 && self.fuse.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("expected");
        }
    }
}

/// Counts how many of its kind live. Panics when the fuse says so.
pub struct Fragile(pub u64, Arc<Shared>);
impl Fragile {
    pub fn new(n: u64, shared: &Arc<Shared>) -> Self {
        shared.live.fetch_add(1, Ordering::Relaxed);
        Self(n, shared.clone())
    }
}
impl Clone for Fragile {
    fn clone(&self) -> Self {
        self.1.step();
        Self::new(self.0, &self.1)
    }
}
impl Drop for Fragile {
    fn drop(&mut self) {
        self.1.live.fetch_sub(1, Ordering::Relaxed);
    }
}
impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.step();
        self.0.hash(state);
    }
}
impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        self.1.step();
        self.0 == other.0
    }
}
impl Eq for Fragile {}
