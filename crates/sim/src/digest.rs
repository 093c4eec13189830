//! A hash of everything that a run produced. Equal hashes show that another machine or compiler computed the same.
//!
//! Words are mixed by a rotation, an exclusive or and a multiplication (FxHash, of Firefox and rustc). It is fast and
//! portable, and no protection against tampering.

use reprieve_study::Observation;
use reprieve_study::metric;
use reprieve_study::observation::{VCPU_OFF, VCPU_UNDISTURBED};
use reprieve_study::timeline::Events;

/// The digest extended by a word.
#[inline]
pub fn mixed(digest: u64, word: u64) -> u64 {
    (digest.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

struct Digest(u64);

impl Digest {
    fn add(&mut self, word: u64) {
        self.0 = mixed(self.0, word);
    }

    /// Adds a text and a mark of its end.
    fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.add(byte.into()));
        self.add(u64::MAX);
    }
}

/// The hash of a run: of the digest of its events, and of all numbers derived from them.
pub fn result_hash(events: u64, of: &Observation) -> String {
    let mut digest = Digest(events);
    let numbers = [of.provenance.events, of.provenance.window_ns, of.provenance.samples];
    let vcpus = of.provenance.vcpus.iter().flat_map(|vcpu| [vcpu.run_ns, vcpu.delay_ns]);
    numbers.into_iter().chain(vcpus).chain(of.holdouts.iter().copied()).for_each(|word| digest.add(word));
    // Interrupts are new, and so is the neighbours' CPU time without I/O. They derive from events that the digest already covers; left out, they keep the hashes of
    // older recordings valid.
    let has_io = of.metrics.contains_key(metric::IO_RATE);
    let is_hashed = |name: &str| (has_io || name != metric::NEIGHBOUR_CPU) && name != metric::IPIS;
    for (name, value) in of.metrics.iter().filter(|(name, _)| is_hashed(name)) {
        digest.text(name);
        digest.add(value.to_bits());
    }
    for (name, timeline) in &of.timelines {
        digest.text(name);
        for (t_ns, value) in timeline.t_ns.iter().zip(&timeline.values) {
            digest.add(*t_ns);
            digest.add(value.to_bits());
        }
    }
    // The same for these two.
    let is_new = |name: &str| [VCPU_OFF, VCPU_UNDISTURBED].contains(&name);
    for (name, distribution) in of.distributions.iter().filter(|(name, _)| !is_new(name)) {
        digest.text(name);
        for (ns, share) in distribution.cumulative() {
            digest.add(ns);
            digest.add(share.to_bits());
        }
    }
    for track in of.trace.iter().flat_map(|trace| &trace.tracks) {
        digest.text(&track.name);
        // Counters are timelines, added above.
        if let Events::Slices(slices) = &track.events {
            for (span, _) in slices {
                digest.add(span.start_ns);
                digest.add(span.end_ns);
            }
        }
    }
    format!("{:016x}", digest.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_study::observation::{Provenance, Standing, VcpuTime};
    use reprieve_study::timeline::{Timeline, Trace, Track};
    use reprieve_study::{Distribution, Span};

    fn observed() -> Observation {
        let mut durations = Distribution::default();
        durations.extend([5_000, 7_000]);
        let vcpus = vec![VcpuTime { run_ns: 5, delay_ns: 6 }];
        let events = Events::Slices(vec![(Span::new(1, 2), String::new())]);
        Observation {
            condition: "c".into(),
            repetition: 0,
            standing: Standing::Accepted,
            case: None,
            sweep: None,
            provenance: Provenance { vcpus, events: 7, ..Provenance::default() },
            metrics: [("a".to_string(), 1.0), ("b".to_string(), 2.0)].into(),
            distributions: [("d".to_string(), durations)].into(),
            timelines: [("t".to_string(), Timeline { t_ns: vec![1, 2], values: vec![3.0, 4.0] })].into(),
            holdouts: vec![8, 9],
            stalls: Vec::new(),
            tape: None,
            replayed: None,
            trace: Some(Trace { tracks: vec![Track { name: "vCPU 0".into(), events }] }),
        }
    }

    #[test]
    fn whatever_changes_shows() {
        let changes: [fn(&mut Observation); 9] = [
            |_| {},
            |run| run.provenance.events += 1,
            |run| run.provenance.vcpus[0].delay_ns += 1,
            |run| *run.metrics.get_mut("b").unwrap() = 2.0_f64.next_up(),
            |run| run.metrics.retain(|name, _| name != "a"),
            |run| run.timelines.get_mut("t").unwrap().t_ns[1] += 1,
            |run| run.distributions.get_mut("d").unwrap().record(9_000),
            |run| run.holdouts.swap(0, 1),
            |run| run.trace = None,
        ];
        let mut hashes = vec![result_hash(1, &observed())];
        for change in changes {
            let mut run = observed();
            change(&mut run);
            hashes.push(result_hash(0, &run));
        }
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), changes.len() + 1, "{hashes:?}");
        assert_eq!(result_hash(0, &observed()), result_hash(0, &observed()));
    }
}
