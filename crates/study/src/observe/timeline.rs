//! Values over time, for figures (`Timeline`, part of a record) and for a trace viewer (`Trace`, which is
//! large and therefore written on demand only).

use serde::{Deserialize, Serialize};

use crate::observe::grace_period::Span;

/// A series of values: `t_ns[i]`, counted from the start of the window, goes with `values[i]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Nanoseconds from the start of the window, ascending.
    pub t_ns: Vec<u64>,
    /// The metric's value at that time, in the unit its key names.
    pub values: Vec<f64>,
}

impl Timeline {
    /// Appends a point. Points come in order of time.
    pub fn push(&mut self, t_ns: u64, value: f64) {
        debug_assert!(self.t_ns.last().is_none_or(|last| *last <= t_ns));
        self.t_ns.push(t_ns);
        self.values.push(value);
    }

    /// At most `buckets` points: the one with the largest value of each equal stretch of time, so that spikes
    /// survive.
    pub fn downsampled(&self, buckets: usize) -> Timeline {
        let (Some(first), Some(last)) = (self.t_ns.first(), self.t_ns.last()) else {
            return Timeline::default();
        };
        if self.t_ns.len() <= buckets {
            return self.clone();
        }
        let width = (last - first) / buckets.max(1) as u64 + 1;
        let mut kept = Timeline::default();
        let mut bucket = u64::MAX;
        for (t_ns, value) in self.t_ns.iter().zip(&self.values) {
            let here = (t_ns - first) / width;
            if here != bucket {
                bucket = here;
                kept.push(*t_ns, *value);
            } else if kept.values.last().is_some_and(|largest| value > largest) {
                (*kept.t_ns.last_mut().unwrap(), *kept.values.last_mut().unwrap()) = (*t_ns, *value);
            }
        }
        kept
    }
}

/// What happened in one run, event by event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The tracks, in the order in which a viewer should show them.
    pub tracks: Vec<Track>,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Heading, for instance `vCPU 1`.
    pub name: String,
    /// The contents.
    pub events: Events,
}

/// Contents of a track. Times are nanoseconds from the start of the window.
#[derive(Clone, Debug, PartialEq)]
pub enum Events {
    /// Stretches of time with a label, in order, not overlapping.
    Slices(Vec<(Span, String)>),
    /// A value that changes.
    Counter(Timeline),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampling_keeps_the_spike_and_the_order() {
        let mut timeline = Timeline::default();
        for t in 0..1000 {
            timeline.push(t, if t == 577 { 99.0 } else { 1.0 });
        }
        let small = timeline.downsampled(10);
        assert_eq!(small.t_ns.len(), 10);
        assert!(small.t_ns.contains(&577) && small.values.contains(&99.0));
        assert!(small.t_ns.is_sorted());
        assert_eq!(Timeline::default().downsampled(3), Timeline::default());
    }
}
