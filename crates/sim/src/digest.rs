//! One number for all that a run gave, to see at a glance whether another run, machine or compiler gave the same.
//!
//! Words are mixed by a rotation, an exclusive or and a multiplication (the hash of Firefox and of rustc's tables,
//! FxHash): fast, the same everywhere, and no protection against anybody.

use reprieve_study::Observation;
use reprieve_study::timeline::Events;

/// The digest with a further word.
#[inline]
pub fn mixed(digest: u64, word: u64) -> u64 {
    (digest.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// A digest that grows.
struct Digest(u64);

impl Digest {
    fn add(&mut self, word: u64) {
        self.0 = mixed(self.0, word);
    }

    /// Adds a text, so that it does not run into the next one.
    fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.add(byte.into()));
        self.add(u64::MAX);
    }
}

/// The hash of a run: of all its events, whose digest that is, and of all numbers made from them.
pub fn result_hash(events: u64, of: &Observation) -> String {
    let mut digest = Digest(events);
    let numbers = [of.provenance.events, of.provenance.window_ns, of.provenance.samples];
    let vcpus = of.provenance.vcpus.iter().flat_map(|vcpu| [vcpu.run_ns, vcpu.delay_ns]);
    numbers.into_iter().chain(vcpus).chain(of.holdouts.iter().copied()).for_each(|word| digest.add(word));
    for (name, value) in &of.metrics {
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
    for (name, distribution) in &of.distributions {
        digest.text(name);
        for (ns, share) in distribution.cumulative() {
            digest.add(ns);
            digest.add(share.to_bits());
        }
    }
    for track in of.trace.iter().flat_map(|trace| &trace.tracks) {
        digest.text(&track.name);
        // Counters are timelines, which are in already.
        if let Events::Slices(slices) = &track.events {
            for (span, _) in slices {
                digest.add(span.start_ns);
                digest.add(span.end_ns);
            }
        }
    }
    format!("{:016x}", digest.0)
}
