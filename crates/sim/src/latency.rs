//! The latencies that a workload measures: their distribution, and the stalls among them.

use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{Distribution, Span};

/// A latency longer than this is a stall.
pub const STALL_NS: u64 = MILLISECOND_NS;

/// Latencies since the measurement began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// All latencies.
    pub all: Distribution,
    /// Each stall: from when the task was due, or the request came, until it ran or was answered.
    pub stalls: Vec<Span>,
    most: u64,
}

impl Latencies {
    /// An empty measurement that ends after `most` latencies.
    pub fn measured(most: u64) -> Latencies {
        Latencies { most, ..Latencies::default() }
    }

    /// Adds a latency. The network added `outside_ns`, which counts in the latency but not towards a stall.
    pub fn add(&mut self, inside: Span, outside_ns: u64) {
        if self.is_complete() {
            return;
        }
        self.all.record(inside.length_ns() + outside_ns);
        if inside.length_ns() > STALL_NS {
            self.stalls.push(inside);
        }
    }

    /// Whether the measurement has as many latencies as it should.
    pub fn is_complete(&self) -> bool {
        self.all.count() >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_longer_than_a_millisecond_and_the_network_makes_none() {
        let mut latencies = Latencies::measured(3);
        latencies.add(Span::new(0, STALL_NS), 5 * STALL_NS);
        latencies.add(Span::new(7, STALL_NS + 8), 0);
        assert_eq!((latencies.stalls.len(), latencies.all.count()), (1, 2));
        assert_eq!(latencies.all.max_ns, 6 * STALL_NS);
        latencies.add(Span::new(0, 1), 0);
        assert!(latencies.is_complete());
        latencies.add(Span::new(0, 9 * STALL_NS), 0);
        assert_eq!(latencies.stalls, [Span::new(7, STALL_NS + 8)], "no more than were wanted");
    }
}
