//! A guest's ticks: the grid on which they fall, and the count of them that its kernel keeps (jiffies).

use reprieve_study::units::SECOND_NS;

/// The grid and the count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jiffies {
    pub tick_ns: u64,
    phase_ns: u64,
    /// As the kernel has counted them.
    pub now: u64,
    /// The vCPU that counts; none while all are idle.
    pub timekeeper: Option<usize>,
}

impl Jiffies {
    /// Ticks of that frequency; the first one falls at `phase_ns`.
    pub fn new(hz: u64, phase_ns: u64) -> Jiffies {
        Jiffies { tick_ns: SECOND_NS / hz, phase_ns, now: 0, timekeeper: None }
    }

    /// How many ticks have fallen since time 0.
    pub fn at(&self, now_ns: u64) -> u64 {
        (now_ns + self.tick_ns - self.phase_ns) / self.tick_ns
    }

    /// When the count reaches that number; 0 if that was before time 0.
    pub fn start_ns(&self, jiffy: u64) -> u64 {
        (jiffy * self.tick_ns + self.phase_ns).saturating_sub(self.tick_ns)
    }

    /// When the next tick falls.
    pub fn next_tick_ns(&self, now_ns: u64) -> u64 {
        self.start_ns(self.at(now_ns) + 1)
    }
}
