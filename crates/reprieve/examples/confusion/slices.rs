//! Slices of a thread, from the host's switch records: how long it could run, after an absence of any kind, until another thread was put
//! in its place. A stretch that the thread ended itself, by waiting for something, is no slice.

use reprieve_linux::switches::{Interval, IntervalBuilder, State, SwitchEvent};

use crate::record::Slices;

/// Shorter absences do not end a slice: beats cannot see them.
const SHORTEST_NS: u64 = 1_000_000;
/// Fewer say nothing.
const FEWEST: usize = 8;

/// The slices of these events, all of one thread; none if there are too few.
pub fn of(events: &[SwitchEvent], lost: u64) -> Option<Slices> {
    let (first, last) = (events.first()?.time_ns, events.last()?.time_ns);
    let mut builder = IntervalBuilder::new(first, None);
    events.iter().for_each(|event| builder.push(event));
    let (mut on, mut off) = stretches(&builder.finish(last));
    if on.len() < FEWEST || off.len() < FEWEST {
        return None;
    }
    Some(Slices { count: on.len(), on_p50_ns: median(&mut on), off_p50_ns: median(&mut off), lost })
}

/// Stretches that ended by a preemption for long, and these preemptions. What is before the first absence is cut off by the window.
fn stretches(intervals: &[Interval]) -> (Vec<u64>, Vec<u64>) {
    let (mut on, mut off, mut begun) = (Vec::new(), Vec::new(), None);
    for interval in intervals {
        let length_ns = interval.end_ns - interval.start_ns;
        match interval.state {
            State::Preempted if length_ns >= SHORTEST_NS => {
                on.extend(begun.map(|begun_ns: u64| interval.start_ns - begun_ns));
                off.push(length_ns);
                begun = Some(interval.end_ns);
            }
            // It may have waited for a pCPU in it, after it was woken.
            State::Blocked if length_ns >= SHORTEST_NS => begun = Some(interval.end_ns),
            State::Unknown => begun = None,
            _ => {}
        }
    }
    (on, off)
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_linux::switches::SwitchKind;

    #[test]
    fn a_slice_ends_by_a_preemption_for_long() {
        let mut events = Vec::new();
        let mut event = |time_us: u64, kind| {
            events.push(SwitchEvent { thread_index: 0, time_ns: time_us * 1000, cpu: Some(0), kind });
        };
        for round in 0..10 {
            // 5 ms on, 2 ms asleep, 1 ms on, 0.1 ms off, 2 ms on, 4 ms off.
            let at = round * 14_100;
            event(at, SwitchKind::In);
            event(at + 5_000, SwitchKind::OutVoluntary);
            event(at + 7_000, SwitchKind::In);
            event(at + 8_000, SwitchKind::OutPreempted);
            event(at + 8_100, SwitchKind::In);
            event(at + 10_100, SwitchKind::OutPreempted);
        }
        let slices = of(&events, 0).unwrap();
        assert_eq!((slices.on_p50_ns, slices.off_p50_ns), (3_100_000, 4_000_000));
        assert!(of(&events[..12], 0).is_none());
    }
}
