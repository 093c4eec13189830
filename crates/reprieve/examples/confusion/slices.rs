//! Slices of a thread, from the host's switch records.

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

/// Stretches between long absences, and these. What is before the first and after the last one is cut off by the window.
fn stretches(intervals: &[Interval]) -> (Vec<u64>, Vec<u64>) {
    let (mut on, mut off, mut begun) = (Vec::new(), Vec::new(), None);
    for interval in intervals {
        let length_ns = interval.end_ns - interval.start_ns;
        if interval.state == State::Preempted && length_ns >= SHORTEST_NS {
            on.extend(begun.map(|begun_ns: u64| interval.start_ns - begun_ns));
            off.push(length_ns);
            begun = Some(interval.end_ns);
        } else if interval.state == State::Unknown {
            begun = None;
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
    fn short_absences_do_not_end_a_slice() {
        let mut events = Vec::new();
        let mut event = |time_us: u64, kind| {
            events.push(SwitchEvent { thread_index: 0, time_ns: time_us * 1000, cpu: Some(0), kind });
        };
        for round in 0..10 {
            // 1 ms on, 0.1 ms off, 2 ms on, 4 ms off.
            let at = round * 7_100;
            event(at, SwitchKind::In);
            event(at + 1_000, SwitchKind::OutPreempted);
            event(at + 1_100, SwitchKind::In);
            event(at + 3_100, SwitchKind::OutPreempted);
        }
        let slices = of(&events, 0).unwrap();
        assert_eq!((slices.on_p50_ns, slices.off_p50_ns), (3_100_000, 4_000_000));
        assert!(of(&events[..8], 0).is_none());
    }
}
