//! The loop of the optional reclaimer thread, which closes bags, waits for grace periods and frees, so that writers
//! do none of that.
//!
//! It sleeps until there is garbage, then until a bag is full or due, then for the grace period. After a round it looks
//! for more work on its own for some time before it asks to be woken, so that a steady writer never pays for a wake-up.
//!
//! The age at which a bag is due is drawn anew for each round, between half the domain's deadline and all of it. A
//! bag is opened by a writer at work. With a fixed age, a writer whose period divides that age would be at work again
//! each time, and would be interrupted each time.

use super::Reclaim;
use crate::fence::NoFence;
use crate::futex::{self, announce};
use crate::platform::now_ns;
use crate::retired::discard;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::units::MILLISECOND_NS;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often the thread looks on its own, a bag's age apart, before it asks to be woken. More than once, because a
/// writer that retires about one object per deadline is sometimes late, and would then pay for a wake-up each time.
const LOOKS: u32 = 8;

/// How long the thread rests after a round that failed.
const PAUSE_NS: u64 = 100 * MILLISECOND_NS;

/// Draws the age at which bags are due.
struct Dither(u32);

impl Dither {
    /// Evenly distributed over the second half of `deadline_ns`.
    fn next(&mut self, deadline_ns: u64) -> u64 {
        // Marsaglia's xorshift of 32 bits. Quality does not matter here, as long as no writer keeps in step.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        let half_ns = deadline_ns / 2;
        deadline_ns - ((u128::from(half_ns) * u128::from(self.0)) >> 32) as u64
    }
}

impl Reclaim {
    /// Whether the caller may start a reclaimer thread: the domain has none.
    pub(crate) fn claim_thread(&self) -> bool {
        !self.has_thread.swap(true, Ordering::SeqCst)
    }

    /// Ends what `claim_thread` began.
    pub(crate) fn release_thread(&self) {
        self.has_thread.store(false, Ordering::SeqCst);
    }

    /// Wakes the reclaimer thread if it sleeps because there was nothing to do, or in any case.
    pub(super) fn wake_thread(&self, in_any_case: bool) {
        if in_any_case || (self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst)) {
            announce(&self.work);
        }
    }

    /// Makes the reclaimer thread look at `stop`, whatever it waits for.
    pub(crate) fn announce_stop(&self) {
        self.wake_thread(true);
        announce(&self.core.event);
    }
}

/// Runs on the reclaimer thread until `stop`.
pub(crate) fn run(reclaim: &Reclaim, stop: &AtomicBool) {
    let mut looks = 0;
    let mut dither = Dither(0x9e37_79b9);
    let mut due_ns = dither.next(reclaim.deadline_ns);
    while !stop.load(Ordering::SeqCst) {
        let seen = reclaim.work.load(Ordering::SeqCst);
        match reclaim.bags.oldest_ns() {
            None if looks > 0 => {
                looks -= 1;
                futex::wait(&reclaim.work, seen, Some(due_ns));
            }
            None => idle(reclaim, seen, stop),
            Some(opened_ns) => {
                let age_ns = now_ns().saturating_sub(opened_ns);
                if age_ns < due_ns && !reclaim.bags.has_full() {
                    futex::wait(&reclaim.work, seen, Some(due_ns - age_ns));
                    continue;
                }
                looks = LOOKS;
                due_ns = dither.next(reclaim.deadline_ns);
                // The panic hook has reported the panic, as a rule that of a callback. The thread serves the other objects.
                match catch_unwind(AssertUnwindSafe(|| free_round(reclaim, stop))) {
                    Ok(Ok(())) => {}
                    // membarrier is refused. Rest until it may be allowed again.
                    Ok(Err(NoFence)) => futex::wait(&reclaim.work, seen, Some(PAUSE_NS)),
                    Err(payload) => {
                        discard(payload);
                        // Rest before the next try: a callback may have leaked a guard on this thread.
                        futex::wait(&reclaim.work, seen, Some(PAUSE_NS));
                    }
                }
            }
        }
    }
}

/// Waits for what the bags hold, and frees it.
fn free_round(reclaim: &Reclaim, stop: &AtomicBool) -> Result<(), NoFence> {
    let token = reclaim.close_all();
    reclaim.core.wait_while(token, None, || !stop.load(Ordering::SeqCst))?;
    reclaim.free_due();
    Ok(())
}

/// Sleeps until a writer has put something into a bag.
fn idle(reclaim: &Reclaim, seen: u32, stop: &AtomicBool) {
    reclaim.asleep.store(true, Ordering::SeqCst);
    // SeqCst, against a writer that puts an object into a bag and then looks whether the thread sleeps: one of the
    // two sees the other.
    if reclaim.bags.are_empty() && !stop.load(Ordering::SeqCst) {
        futex::wait(&reclaim.work, seen, None);
    }
    reclaim.asleep.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bags_are_due_in_the_second_half_of_the_deadline() {
        let mut dither = Dither(1);
        let ages: Vec<u64> = (0..10_000).map(|_| dither.next(1_000)).collect();
        assert!(ages.iter().all(|age| (500..=1_000).contains(age)));
        let mean = ages.iter().sum::<u64>() / 10_000;
        assert!((740..=760).contains(&mean), "{mean}");
        assert_eq!((dither.next(0), dither.next(1)), (0, 1));
        assert!(dither.next(u64::MAX) >= u64::MAX / 2);
    }
}
