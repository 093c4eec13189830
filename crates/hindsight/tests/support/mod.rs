//! Samples for tests.

// Each test program uses a part.
#![allow(dead_code)]

use reprieve_hindsight::line::Header;
use reprieve_hindsight::{Limits, Record};
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Memory, Sample, VcpuSample};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const LIMITS: Limits = Limits { keep_ns: 15 * 60 * SECOND_NS, bytes: 64 << 20 };

pub fn header() -> Header {
    Header { boot_id: "0f2d".into(), host: "test".into(), kernel: "6.1.0".into(), program: "0.1.0".into() }
}

/// The sample of a second, in which two vCPUs were off so many times.
pub fn sample(second: u64, offs: u64) -> Sample {
    let at_ns = (second + 1) * SECOND_NS;
    let off = |n: u64| {
        let since_ns = at_ns - SECOND_NS + n * SECOND_NS / offs;
        Off { since_ns, back_ns: since_ns + SECOND_NS / offs / 2 }
    };
    let vcpu = |vcpu| VcpuSample {
        vcpu,
        beats: 1000 - offs,
        offs: (0..offs).map(off).collect(),
        idle_ns: Some(5),
        ..VcpuSample::default()
    };
    Sample {
        at_ns,
        day_ns: 1_700_000_000 * SECOND_NS + at_ns,
        span_ns: SECOND_NS,
        beat_ns: 1_000_000,
        vcpus: vec![vcpu(0), vcpu(1)],
        grace_periods_ns: vec![12_000_000, 15_000_000],
        cpu_wait_ns: Some(7),
        memory: Some(Memory { free_bytes: 1 << 20, ..Memory::default() }),
        ..Sample::default()
    }
}

/// The seconds of all samples in a record.
pub fn seconds(record: &Record) -> Vec<u64> {
    let samples = record.stretches.iter().flat_map(|stretch| &stretch.samples);
    samples.map(|sample| sample.at_ns / SECOND_NS - 1).collect()
}

/// So many rounds, or as many as the variable says.
pub fn rounds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |rounds| rounds.parse().expect("a number"))
}

/// Numbers that look random: the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64, of Steele, Lea and Flood, 2014.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
