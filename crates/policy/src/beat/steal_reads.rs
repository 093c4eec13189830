//! When to read steal: often enough for a verdict and no more, since reading `/proc/stat` costs more than the rest of a
//! beat.
//!
//! Steal is read at three kinds of beats: at a late beat; at the first later beat by which the kernel must have booked
//! that steal; and at one ordinary beat in [`READ_EVERY`], so that the next late beat has a recent reading to compare
//! with. If the host has never booked any steal, as under emulation, it is read at most every half second.

use super::{Beat, grain_ns};

/// Steal and the beat thread's run delay are read at one ordinary beat in this many.
pub const READ_EVERY: u32 = 16;
/// When to read again after a late beat, ns: the kernel books a gap's steal at its next tick, at most 10 ms later.
const BOOKED_NS: u64 = 12_000_000;
/// Least time between two readings while the host has never booked any steal, ns.
const RETRY_NS: u64 = 500_000_000;

/// The schedule of readings for all vCPUs. Allocates only in [`StealReads::new`].
#[derive(Clone, Debug)]
pub struct StealReads {
    vcpus: Vec<Due>,
    /// The earliest time of the next reading, ns, while no steal has ever been booked.
    retry_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// When the kernel must have booked the steal of the last late beat, ns.
    booked_ns: Option<u64>,
    /// Beats since the last reading.
    beats: u32,
}

impl StealReads {
    /// For vCPUs 0 to `vcpus` - 1.
    pub fn new(vcpus: usize) -> StealReads {
        StealReads { vcpus: vec![Due::default(); vcpus], retry_ns: Some(0) }
    }

    /// Returns the beat, with its vCPU's steal filled in if a reading is due. Pass every beat through here once, in
    /// order. `read` returns this vCPU's steal since boot as of `now_ns`, in ns, or `None` if it cannot be read.
    pub fn fill(&mut self, beat: Beat, now_ns: u64, read: impl FnOnce() -> Option<u64>) -> Beat {
        let late = beat.lateness_ns() > grain_ns(beat.period_ns);
        let Some(due) = self.vcpus.get_mut(beat.vcpu) else { return beat };
        due.beats += 1;
        let booked = due.booked_ns.is_some_and(|booked_ns| beat.at_ns >= booked_ns);
        let waits = self.retry_ns.is_some_and(|retry_ns| now_ns < retry_ns);
        if waits || !(late || booked || due.beats >= READ_EVERY) {
            return beat;
        }
        *due = Due { booked_ns: late.then_some(beat.at_ns + BOOKED_NS), beats: 0 };
        let steal_ns = read();
        let never = self.retry_ns.is_some() && steal_ns.is_none_or(|steal_ns| steal_ns == 0);
        self.retry_ns = never.then_some(now_ns + RETRY_NS);
        Beat { steal_ns, ..beat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Hands in beats that are due every millisecond and late by `late_ms` each; returns the due times, ms, of those at
    /// which steal was read.
    fn read_at(reads: &mut StealReads, late_ms: &[u64], from_ms: u64, steal_ns: Option<u64>) -> Vec<u64> {
        let mut read = Vec::new();
        for (due_ms, late_ms) in (from_ms..).zip(late_ms) {
            let (due_ns, at_ns) = (due_ms * MS, (due_ms + late_ms) * MS);
            let beat = Beat { vcpu: 1, due_ns, at_ns, period_ns: MS, steal_ns: None, run_delay_ns: None };
            reads.fill(beat, at_ns, || {
                read.push(due_ms);
                steal_ns
            });
        }
        read
    }

    #[test]
    fn late_beats_booked_steal_and_one_ordinary_beat_in_sixteen_are_read() {
        let mut reads = StealReads::new(2);
        assert_eq!(read_at(&mut reads, &[0; 40], 1, Some(5)), [16, 32]);
        let mut late_ms = [0; 40];
        late_ms[3] = 2;
        assert_eq!(read_at(&mut reads, &late_ms, 100, Some(5)), [103, 117, 133], "103 + 2 + 12 ms");
    }

    #[test]
    fn a_host_that_never_booked_any_is_asked_twice_a_second() {
        for never in [None, Some(0)] {
            let mut reads = StealReads::new(2);
            assert_eq!(read_at(&mut reads, &[0; 1_100], 1, never), [16, 516, 1_016]);
        }
        let beat = Beat { vcpu: 9, due_ns: 0, at_ns: MS, period_ns: MS, steal_ns: None, run_delay_ns: None };
        assert_eq!(StealReads::new(2).fill(beat, MS, || unreachable!("no such vCPU")), beat);
    }
}
