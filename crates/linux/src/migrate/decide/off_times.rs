//! The oracle's knowledge: when vCPUs will go off and come back. For experiments, in which whatever disturbs the
//! machine knows these times in advance.
//!
//! They come from a file of signals in the text form of a record: lines `told OFF_NS VCPU BACK_NS`, on CLOCK_MONOTONIC.
//! The policy holds one time off per vCPU, so it gets the next when that is over. Invariant: nothing is allocated after
//! reading.

use std::io::BufRead;

use reprieve_policy::signal::Signal;

use crate::migrate::report::run_record::BadRecord;

/// The times off of all vCPUs.
#[derive(Clone, Debug, Default)]
pub struct OffTimes {
    vcpus: Vec<Coming>,
}

/// The times off of one vCPU.
#[derive(Clone, Debug, Default)]
struct Coming {
    /// When it goes off and when it is back, ns, ascending.
    off: Vec<(u64, u64)>,
    /// Index of the first one not yet handed to the policy.
    next: usize,
}

impl OffTimes {
    /// Reads a file; its lines may be in any order.
    ///
    /// # Errors
    /// [`BadRecord`] for any other line, and for a vCPU number of `vcpus` or above.
    pub fn read(input: impl BufRead, vcpus: usize) -> Result<OffTimes, BadRecord> {
        let mut coming = vec![Coming::default(); vcpus];
        for (line, text) in input.lines().enumerate() {
            let bad = |what: String| BadRecord { line: line + 1, what };
            let text = text.map_err(|e| bad(e.to_string()))?;
            match text.parse() {
                Ok(Signal::NextOff { vcpu, off_ns, back_ns }) if vcpu < vcpus && off_ns < back_ns => {
                    coming[vcpu].off.push((off_ns, back_ns));
                }
                _ => {
                    let expected = format!(
                        "expected told OFF_NS VCPU BACK_NS, with a vCPU below {vcpus} and OFF_NS before BACK_NS"
                    );
                    return Err(bad(expected));
                }
            }
        }
        coming.iter_mut().for_each(|coming| coming.off.sort_unstable());
        Ok(OffTimes { vcpus: coming })
    }

    /// A signal that is due: the next time off of a vCPU whose last one is over. Call it until it returns `None`.
    pub fn due(&mut self, now_ns: u64) -> Option<Signal> {
        let (vcpu, (off_ns, back_ns)) =
            self.vcpus.iter_mut().enumerate().find_map(|(vcpu, coming)| Some((vcpu, coming.due(now_ns)?)))?;
        Some(Signal::NextOff { vcpu, off_ns, back_ns })
    }
}

impl Coming {
    fn due(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let is_over = |last: usize| self.off[last].1 <= now_ns;
        if self.next > 0 && !is_over(self.next - 1) {
            return None;
        }
        // Skip those that are already over.
        while self.next < self.off.len() && self.off[self.next].1 <= now_ns {
            self.next += 1;
        }
        let coming = self.off.get(self.next).copied()?;
        self.next += 1;
        Some(coming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_off_is_due_once_when_the_last_is_over() {
        let text = "told 70 0 95\ntold 10 0 35\ntold 40 1 65\ntold 130 0 155\n";
        let mut off_times = OffTimes::read(text.as_bytes(), 2).unwrap();
        let mut due = |now_ns: u64| -> Vec<String> {
            std::iter::from_fn(|| off_times.due(now_ns)).map(|signal| signal.to_string()).collect()
        };
        assert_eq!(due(0), ["told 10 0 35", "told 40 1 65"]);
        assert_eq!(due(34), [""; 0]);
        assert_eq!(due(35), ["told 70 0 95"]);
        assert_eq!(due(64), [""; 0]);
        // By now the one from 130 to 155 is over.
        assert_eq!(due(155), [""; 0]);
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        for text in ["told 1 0 2\ntold 1 2 3", "told 1 0 2\ntold 5 0 5", "told 1 0 2\ntick 5", "told 1 0 2\n"]
        {
            let line = OffTimes::read(text.as_bytes(), 2).map_err(|bad| bad.line);
            assert_eq!(line.is_err(), text != "told 1 0 2\n", "{text:?}");
            assert!(line.is_ok() || line.unwrap_err() == 2);
        }
    }
}
