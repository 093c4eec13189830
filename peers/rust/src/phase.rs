//! The phases of a run. They follow each other, and the writer alone turns them.
//!
//! Readers notice a new phase between two batches of look-ups, and take their own counters and CPU clock together at
//! that moment: what they report is exact though they notice late.

use std::sync::atomic::{AtomicU8, Ordering};

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Everything runs, nothing counts.
    Warmup,
    /// The first half of the window.
    Window,
    /// The second half of the window, which begins with the stall if there is one.
    Middle,
    /// Everything goes on but nothing is counted, until the window's deletes are freed.
    Drain,
    /// Readers end.
    Stop,
}

/// The phase of a run, shared by its threads.
#[derive(Debug)]
pub struct Clock(AtomicU8);

impl Default for Clock {
    fn default() -> Self {
        Self(AtomicU8::new(Phase::Warmup as u8))
    }
}

impl Clock {
    /// The phase now.
    #[inline]
    pub fn now(&self) -> Phase {
        const ALL: [Phase; 5] = [Phase::Warmup, Phase::Window, Phase::Middle, Phase::Drain, Phase::Stop];
        // Acquire: pairs with the release in `turn`.
        ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Begins `phase`.
    pub fn turn(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Release);
    }
}
