//! How much waits to be freed, and the limits on it.
//!
//! Room is reserved before an object is accepted, so the limits are exact however many writers there are.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a domain holds at the moment, and its limits. The counters are Relaxed because they guard no memory.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Garbage {
    objects: AtomicUsize,
    bytes: AtomicUsize,
    peak_objects: AtomicUsize,
    peak_bytes: AtomicUsize,
    freed: AtomicU64,
    exceeded: AtomicU64,
    /// How many forks lie between the creation of the domain and this process. A reservation made before a fork does
    /// not count after it.
    forks: AtomicU64,
    limit_objects: usize,
    limit_bytes: usize,
}

/// A domain's garbage is at its limit and could not be brought below it in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Objects that waited at the time.
    pub objects: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the domain is at its limit of garbage: {} objects, {} bytes", self.objects, self.bytes)
    }
}

impl std::error::Error for Full {}

impl Garbage {
    pub(crate) fn new(limit_objects: usize, limit_bytes: usize) -> Self {
        Self { limit_objects, limit_bytes, ..Self::default() }
    }

    /// Reserves room for one object. If it is the only one, it is accepted whatever its size.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Full> {
        let objects = self.objects.fetch_add(1, Ordering::Relaxed) + 1;
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if objects > self.limit_objects || (total > self.limit_bytes && objects > 1) {
            self.release(1, bytes);
            return Err(Full { objects: objects - 1, bytes: total - bytes });
        }
        self.note_peak(objects, total);
        Ok(())
    }

    /// Takes room beyond the limits.
    pub(crate) fn force(&self, bytes: usize) {
        self.exceeded.fetch_add(1, Ordering::Relaxed);
        self.take(bytes);
    }

    /// Takes room.
    pub(crate) fn take(&self, bytes: usize) {
        let objects = self.objects.fetch_add(1, Ordering::Relaxed) + 1;
        self.note_peak(objects, self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }

    fn note_peak(&self, objects: usize, bytes: usize) {
        // Load first: the line of the peak is written only when the peak moves.
        if objects > self.peak_objects.load(Ordering::Relaxed) {
            self.peak_objects.fetch_max(objects, Ordering::Relaxed);
        }
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// How many forks lie between the creation of the domain and this process.
    pub(crate) fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }

    /// For the child of a fork: sets what waits here. What other threads had in hand or had reserved is in the parent.
    pub(crate) fn recount(&self, objects: usize, bytes: usize) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.objects.store(objects, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Gives back room that was reserved and is not used.
    pub(crate) fn release(&self, objects: usize, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.objects.fetch_sub(objects, Ordering::Relaxed);
    }

    pub(crate) fn freed(&self, objects: usize, bytes: usize) {
        self.freed.fetch_add(objects as u64, Ordering::Relaxed);
        self.release(objects, bytes);
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Largest numbers of objects and of bytes so far.
    pub(crate) fn peaks(&self) -> (usize, usize) {
        (self.peak_objects.load(Ordering::Relaxed), self.peak_bytes.load(Ordering::Relaxed))
    }

    /// How many objects were accepted beyond the limits.
    pub(crate) fn total_exceeded(&self) -> u64 {
        self.exceeded.load(Ordering::Relaxed)
    }

    pub(crate) fn total_freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    /// From this size on, a batch is worth a grace period of its own.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.limit_bytes / 8
    }
}

/// Counts objects as freed when dropped, also if a callback panics; but not in the child of a fork that a callback made.
pub(crate) struct Freed<'a> {
    garbage: &'a Garbage,
    objects: usize,
    bytes: usize,
    forks: u64,
}

impl<'a> Freed<'a> {
    pub(crate) fn by_its_end(garbage: &'a Garbage, objects: usize, bytes: usize) -> Self {
        Self { garbage, objects, bytes, forks: garbage.forks() }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        if self.garbage.forks() == self.forks {
            self.garbage.freed(self.objects, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_and_peaks_stay() {
        let garbage = Garbage::new(2, 100);
        assert_eq!(garbage.reserve(1_000), Ok(()), "one object alone");
        assert_eq!(garbage.reserve(1), Err(Full { objects: 1, bytes: 1_000 }));
        garbage.freed(1, 1_000);
        assert_eq!((garbage.reserve(50), garbage.reserve(50)), (Ok(()), Ok(())));
        assert_eq!(garbage.reserve(0), Err(Full { objects: 2, bytes: 100 }));
        garbage.force(1);
        assert_eq!((garbage.objects(), garbage.bytes(), garbage.peaks()), (3, 101, (3, 1_000)));
    }
}
