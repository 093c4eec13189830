//! Reads an attached guest for the control loop of boosts, and collects observations at each look.
//!
//! Every second it checks that the same kernel still runs: the kernel's clock, `jiffies_64`, must advance and never go
//! back. If the clock stands still for seconds while vCPUs run, the guest was rebooted and another kernel has taken
//! over.

use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;
use reprieve_linux::boost::{GuestRcu, RcuLook};
use reprieve_linux::clock::now_ns;
use reprieve_linux::proc::{ProcRoot, SchedStat, SchedStatReader};
use reprieve_study::units::SECOND_NS;

use super::Attached;
use crate::Result;
use crate::introspect::{Reader, Word};

/// Time between two looks at the clock, ns.
const CLOCK_EVERY_NS: u64 = SECOND_NS;
/// If the clock stands still for longer than [`STILL_NS`] while vCPUs run for more than [`STILL_RUN_NS`], another
/// kernel runs.
const STILL_NS: u64 = 5 * SECOND_NS;
const STILL_RUN_NS: u64 = SECOND_NS / 2;
/// Most ticks by which a clock can advance between two looks: those of an hour, at 1,000 a second.
const LEAP_TICKS: u64 = 3_600_000;
/// The histogram does not distinguish grace periods longer than this, ns.
const LONGEST_NS: u64 = 3_600 * SECOND_NS;

/// Why a guest can no longer be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// QEMU's process or a vCPU's thread has ended.
    Gone,
    /// Another kernel now runs in the guest.
    Restarted,
}

/// The observations of a guest.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Durations of the grace periods of which both the start and the end were seen, ns.
    pub durations: Histogram<u64>,
    /// Time during which vCPUs were runnable but descheduled, and an open grace period waited for them, ns.
    pub waited_ns: u64,
    /// The longest of these times, ns.
    pub longest_wait_ns: u64,
    /// For each vCPU, the time during which it was runnable but descheduled, ns.
    pub off_ns: Vec<u64>,
    /// For each vCPU, its CPU time, ns.
    pub run_ns: Vec<u64>,
    /// How long the guest was watched, ns.
    pub watched_ns: u64,
    /// Why the guest is no longer watched.
    pub ended: Option<Ended>,
}

impl Seen {
    /// No observations yet, for a guest with `vcpus` vCPUs.
    pub fn new(vcpus: usize) -> Seen {
        let durations = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("constant bounds");
        let none = vec![0; vcpus];
        Seen {
            durations,
            waited_ns: 0,
            longest_wait_ns: 0,
            off_ns: none.clone(),
            run_ns: none,
            watched_ns: 0,
            ended: None,
        }
    }

    /// Makes room for more vCPUs, if there are more by now.
    pub fn make_room(&mut self, vcpus: usize) {
        let room = vcpus.max(self.off_ns.len());
        self.off_ns.resize(room, 0);
        self.run_ns.resize(room, 0);
    }
}

/// The last look, to which the next is compared.
#[derive(Clone, Debug)]
struct Last {
    at_ns: u64,
    /// Time of the first look.
    first_ns: u64,
    times: Vec<SchedStat>,
    /// The open grace period, when it was first seen, and whether its start was seen.
    open: Option<(u64, u64, bool)>,
    holdouts: u64,
}

/// The clock when it was last seen to advance.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks: u64,
    at_ns: u64,
    run_ns: u64,
    looked_ns: u64,
}

/// Reads a guest for the control loop.
#[derive(Debug)]
pub struct Watched {
    reader: Reader,
    clock: Word,
    times: Vec<SchedStatReader>,
    seen: Arc<Mutex<Seen>>,
    last: Option<Last>,
    ticked: Option<Clock>,
}

impl Watched {
    /// Reads this guest, and adds the observations up in `seen`.
    ///
    /// # Errors
    /// The guest has ended.
    pub fn new(root: &ProcRoot, attached: Attached, seen: Arc<Mutex<Seen>>) -> Result<Watched> {
        let Attached { qemu, reader, clock, .. } = attached;
        let open = |tid: &i32| SchedStatReader::open(root, qemu.pid, *tid);
        let times = qemu.vcpus.iter().map(open).collect::<reprieve_linux::Result<_>>()?;
        Ok(Watched { reader, clock, times, seen, last: None, ticked: None })
    }

    fn end(&self, ended: Ended) -> reprieve_linux::Error {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(ended);
        reprieve_linux::Error::Gone { action: "read the memory of", path: "the guest".into() }
    }

    fn clock_goes_on(&mut self, at_ns: u64, run_ns: u64) -> bool {
        if self.ticked.is_some_and(|clock| at_ns < clock.looked_ns + CLOCK_EVERY_NS) {
            return true;
        }
        let ticks = self.reader.word(self.clock);
        goes_on(&mut self.ticked, ticks, at_ns, run_ns)
    }
}

/// Whether the clock has advanced, or may still do so.
fn goes_on(last: &mut Option<Clock>, ticks: u64, at_ns: u64, run_ns: u64) -> bool {
    let now = Clock { ticks, at_ns, run_ns, looked_ns: at_ns };
    let Some(clock) = last else {
        *last = Some(now);
        return true;
    };
    match ticks.checked_sub(clock.ticks) {
        Some(0) => {
            clock.looked_ns = at_ns;
            at_ns < clock.at_ns + STILL_NS || run_ns < clock.run_ns + STILL_RUN_NS
        }
        Some(1..=LEAP_TICKS) => {
            *last = Some(now);
            true
        }
        _ => false,
    }
}

impl GuestRcu for Watched {
    fn look(&mut self) -> reprieve_linux::Result<RcuLook> {
        let rcu = self.reader.look()?;
        let at_ns = now_ns();
        let times = self.times.iter().map(SchedStatReader::read).collect::<reprieve_linux::Result<Vec<_>>>();
        let Ok(times) = times else { return Err(self.end(Ended::Gone)) };
        let run_ns = times.iter().map(|time| time.run_ns).sum();
        let goes_on = self.clock_goes_on(at_ns, run_ns);
        if self.reader.is_lost() {
            return Err(self.end(Ended::Gone));
        }
        if !goes_on {
            return Err(self.end(Ended::Restarted));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.last = Some(take_note(&mut seen, self.last.take(), at_ns, &rcu, times));
        Ok(rcu)
    }
}

/// Adds a look to the observations.
fn take_note(seen: &mut Seen, last: Option<Last>, at_ns: u64, rcu: &RcuLook, times: Vec<SchedStat>) -> Last {
    let Some(last) = last else {
        // The start of this grace period was not seen.
        let open = rcu.open.map(|number| (number, at_ns, false));
        return Last { at_ns, first_ns: at_ns, times, open, holdouts: rcu.holdouts };
    };
    seen.watched_ns += at_ns.saturating_sub(last.at_ns);
    for (v, (now, before)) in times.iter().zip(&last.times).enumerate() {
        // The kernel counts a wait only when the vCPU runs again. So the wait has ended just now, and may have begun
        // before the first look.
        let booked_ns = now.delay_ns.saturating_sub(before.delay_ns);
        let off_ns = booked_ns.min(at_ns.saturating_sub(last.first_ns));
        seen.off_ns[v] += off_ns;
        seen.run_ns[v] += now.run_ns.saturating_sub(before.run_ns);
        if let Some((_, since_ns, _)) = last.open.filter(|_| v < 64 && last.holdouts >> v & 1 == 1) {
            let waited_ns = off_ns.min(at_ns.saturating_sub(since_ns));
            seen.waited_ns += waited_ns;
            seen.longest_wait_ns = seen.longest_wait_ns.max(waited_ns);
        }
    }
    let open = match (rcu.open, last.open) {
        (Some(number), Some(open)) if number == open.0 => Some(open),
        (next, before) => {
            if let Some((_, since_ns, true)) = before {
                seen.durations.saturating_record(at_ns.saturating_sub(since_ns).max(1));
            }
            next.map(|number| (number, at_ns, true))
        }
    };
    Last { at_ns, first_ns: last.first_ns, times, open, holdouts: rcu.holdouts }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rcu(open: Option<u64>, holdouts: u64) -> RcuLook {
        RcuLook { open, holdouts, ..RcuLook::default() }
    }

    /// The observations of these looks: (ms, open, holdouts, delays in ms of two vCPUs).
    fn seen(looks: &[(u64, Option<u64>, u64, [u64; 2])]) -> Seen {
        let (mut seen, mut last) = (Seen::new(2), None);
        for (at_ms, open, holdouts, delays) in looks {
            let times = delays.map(|ms| SchedStat { run_ns: 0, delay_ns: ms * MS, slices: 0 }).into();
            last = Some(take_note(&mut seen, last, at_ms * MS, &rcu(*open, *holdouts), times));
        }
        seen
    }

    #[test]
    fn grace_periods_are_timed_if_both_ends_were_seen() {
        let seen = seen(&[
            (0, Some(1), 1, [0, 0]),
            (10, None, 0, [0, 0]),
            (20, Some(2), 1, [0, 0]),
            (30, Some(2), 1, [0, 0]),
            (50, Some(3), 1, [0, 0]),
            (60, Some(3), 1, [0, 0]),
        ]);
        assert_eq!(seen.durations.len(), 1);
        let longest_ns = seen.durations.max();
        assert!(
            (30 * MS..=30 * MS + 30 * MS / 100).contains(&longest_ns),
            "30 ms, in a bucket of 1 %: {longest_ns}"
        );
        assert_eq!(seen.watched_ns, 60 * MS);
    }

    #[test]
    fn only_the_time_that_a_grace_period_waited_counts_as_waited() {
        let seen = seen(&[
            (0, None, 0, [0, 0]),
            (100, Some(1), 0b10, [0, 0]),
            // vCPU 1 runs again after 90 ms. The grace period was open for 40 ms of these. vCPU 0 is no holdout.
            (140, Some(1), 0b10, [5, 90]),
            (150, Some(1), 0b00, [5, 90]),
            (160, Some(1), 0b00, [5, 97]),
        ]);
        assert_eq!((seen.waited_ns, seen.longest_wait_ns), (40 * MS, 40 * MS));
        assert_eq!(seen.off_ns, [5 * MS, 97 * MS]);
    }

    #[test]
    fn time_before_the_first_look_does_not_count() {
        let seen = seen(&[(100, None, 0, [0, 0]), (130, None, 0, [0, 90])]);
        assert_eq!(seen.off_ns, [0, 30 * MS]);
    }

    #[test]
    fn a_clock_that_stands_still_while_vcpus_run_is_another_kernel_s() {
        let of = |looks: &[(u64, u64, u64)]| {
            let mut last = None;
            looks.iter().all(|(s, ticks, run_ms)| goes_on(&mut last, *ticks, s * SECOND_NS, run_ms * MS))
        };
        assert!(of(&[(0, 5, 0), (1, 6, 0), (2, 6, 900), (3, 7, 1900)]));
        assert!(!of(&[(0, 5, 0), (1, 5, 900), (5, 5, 4900)]));
        assert!(of(&[(0, 5, 0), (60, 5, 10)]), "a paused guest is the same");
        assert!(!of(&[(0, 5, 0), (1, 4, 0)]), "never back");
        assert!(!of(&[(0, 5, 0), (1, 1 << 40, 0)]), "another's memory");
    }
}
