//! What exactly is injected. Quotas, periods, lengths and times are drawn around each strength, so that no threshold can be tuned to single
//! ones; numbers of processes, and what part of the time they run, are fixed. All follows from the seed.

use rand::{Rng, RngExt};
use reprieve_study::statistics;
use serde::{Deserialize, Serialize};

use crate::causes::{Cause, GRACE_SETTINGS};

/// An injection with its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "names and units say what the values are")]
pub enum Injection {
    Quota { vcpus: Vec<usize>, percent: f64, period_us: u64 },
    VmQuota { percent: f64, period_us: u64 },
    Contention { hogs: usize },
    Neighbour { vcpu: usize, hogs: usize, duty_percent: u64, burst_us: u64 },
    Pause { after_ms: u64, length_ms: u64 },
    ClockStep { after_ms: u64, by_ms: i64 },
    OwnCpu { vcpus: Vec<usize>, tasks: usize },
    OwnMemory { vcpu: usize, limit_mib: u64, touched_mib: u64 },
    StarvedKthread { vcpu: usize, duty_percent: u64, busy_us: u64 },
    LongReader { vcpu: usize, length_ms: u64, rest_ms: u64, preemptible: bool },
    Nothing,
}

/// Tasks of the guest that have nothing to do with the injection, one on each of these vCPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// The vCPUs.
    pub vcpus: Vec<usize>,
    /// How much of a vCPU each wants.
    pub duty_percent: u64,
    /// For how long it works before it rests.
    pub burst_us: u64,
}

/// All that is drawn for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// What is injected.
    pub injection: Injection,
    /// What the guest does besides.
    pub background: Background,
    /// Whether vCPU threads are bound to a pCPU each, and hogs too; else they may run on all of them. vCPUs that are put to work
    /// share no pCPU with each other or with idle ones. In a neighbour run the disturbed vCPU shares its pCPU with the neighbour only.
    pub pinned: bool,
}

/// The machine, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// vCPUs of the guest.
    pub vcpus: usize,
    /// pCPUs of the host.
    pub pcpus: usize,
}

impl Machine {
    /// So many vCPUs, the first ones, are put to work. With more vCPUs than pCPUs one pCPU is left for the others: idle ones beat, too,
    /// and would have to wait for busy ones, which is contention already.
    pub fn used(self) -> usize {
        let pcpus = if self.vcpus > self.pcpus { self.pcpus - 1 } else { self.pcpus };
        self.vcpus.min(pcpus).max(1)
    }
}

/// One of the strengths of a cause, and the number of the repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The cause.
    pub cause: Cause,
    /// 0 is the mildest.
    pub strength: usize,
    /// From 0 on.
    pub repetition: usize,
    /// Whether the background is busy, or rests half of the time.
    pub is_busy: bool,
}

/// Settings of `cpu.max` for the fingerprint: period in us, and per cent of a CPU.
pub const SETTINGS: [(u64, f64); 6] =
    [(10_000, 50.0), (20_000, 30.0), (50_000, 70.0), (100_000, 20.0), (100_000, 60.0), (200_000, 40.0)];
/// Quotas, in per cent of what the vCPU would use, by strength.
const QUOTA_PERCENT: [(f64, f64); 3] = [(65.0, 80.0), (45.0, 65.0), (30.0, 45.0)];
const PERIOD_MS: (f64, f64) = (10.0, 200.0);
const HOGS: [usize; 3] = [2, 4, 8];
const NEIGHBOUR_DUTY: [u64; 3] = [40, 70, 100];
const PAUSE_MS: [f64; 3] = [500.0, 1_000.0, 3_000.0];
const STEP_MS: [f64; 3] = [500.0, 30_000.0, 3_600_000.0];
const OVERLOAD: [usize; 3] = [2, 4, 8];
const MEMORY_LIMIT_MIB: u64 = 48;
/// Memory that is touched, over what there is.
const MEMORY_USED: [f64; 3] = [1.15, 1.4, 2.0];
const KTHREAD_DUTY: [u64; 3] = [60, 80, 95];
const READER_MS: [f64; 3] = [300.0, 1_000.0, 3_000.0];
/// Lengths of pauses, steps and readers are drawn from so much below to so much above the nominal one.
const SPREAD: f64 = 0.2;

/// Draws a run.
pub fn draw(case: Case, machine: Machine, seed: u64, watch_ms: u64) -> Drawn {
    let purpose = format!("{} {} {}", case.cause.name(), case.strength, case.repetition);
    let mut rng = statistics::stream(seed, &purpose);
    let used = machine.used();
    let vcpu = rng.random_range(0..used);
    // A neighbour of one vCPU is one that cannot go elsewhere, and from which the vCPU cannot: the host moves others around, and
    // every vCPU pays.
    let is_neighbour = matches!(case.cause, Cause::Neighbour | Cause::FingerprintSlice);
    let pinned = rng.random_bool(0.5) || is_neighbour;
    let duty_percent = if case.is_busy { 100 } else { 50 };
    let injection = injection(&mut rng, case, machine, vcpu, watch_ms);
    let burst_us = rng.random_range(2_000..10_000);
    let others = |spared: Option<usize>| (0..used).filter(|other| Some(*other) != spared).collect();
    let (vcpus, duty_percent) = match (case.cause, case.strength) {
        (Cause::Quiet, 0) | (Cause::OwnCpu, _) => (Vec::new(), 0),
        (Cause::Quiet, 1) => (vec![vcpu], 100),
        (Cause::Quiet, _) => (others(None), 50),
        (Cause::FingerprintQuota | Cause::FingerprintSlice, _) => (others(None), 100),
        (Cause::GracePeriods, 3) => (others(Some(vcpu)), 100),
        (Cause::GracePeriods, _) => (others(None), 100),
        // What the guest does to itself takes a vCPU: a second task on it would be overload.
        (Cause::OwnMemory | Cause::StarvedKthread | Cause::LongReader, _) => {
            (others(Some(vcpu)), duty_percent)
        }
        _ => (others(None), duty_percent),
    };
    Drawn { injection, background: Background { vcpus, duty_percent, burst_us }, pinned }
}

fn injection(rng: &mut impl Rng, case: Case, machine: Machine, vcpu: usize, watch_ms: u64) -> Injection {
    let Case { strength, .. } = case;
    let used = machine.used();
    let demand = if case.is_busy { 1.0 } else { 0.5 };
    // When a fifth to a half of the look is over.
    let after_ms = rng.random_range(watch_ms / 5..watch_ms / 2);
    match case.cause {
        Cause::Quota => {
            let vcpus = if rng.random_bool(0.5) { vec![vcpu] } else { (0..machine.vcpus).collect() };
            let percent = between(rng, QUOTA_PERCENT[strength]) * demand;
            Injection::Quota { vcpus, percent, period_us: period_us(rng) }
        }
        Cause::VmQuota => {
            let percent = between(rng, QUOTA_PERCENT[strength]) * demand * used as f64;
            Injection::VmQuota { percent, period_us: period_us(rng) }
        }
        Cause::Contention => Injection::Contention { hogs: HOGS[strength] },
        Cause::Neighbour => {
            let duty_percent = NEIGHBOUR_DUTY[strength];
            Injection::Neighbour { vcpu, hogs: 1, duty_percent, burst_us: rng.random_range(10_000..100_000) }
        }
        Cause::Pause => Injection::Pause { after_ms, length_ms: about(rng, PAUSE_MS[strength]) as u64 },
        Cause::ClockStep => {
            let by_ms = about(rng, STEP_MS[strength]) as i64;
            Injection::ClockStep { after_ms, by_ms: if rng.random_bool(0.5) { by_ms } else { -by_ms } }
        }
        Cause::OwnCpu => Injection::OwnCpu { vcpus: (0..used).collect(), tasks: OVERLOAD[strength] * used },
        Cause::OwnMemory => {
            let (limit_mib, part) = (MEMORY_LIMIT_MIB, MEMORY_USED[strength] * rng.random_range(0.95..1.05));
            Injection::OwnMemory { vcpu, limit_mib, touched_mib: (limit_mib as f64 * part).ceil() as u64 }
        }
        Cause::StarvedKthread => {
            let busy_us = rng.random_range(100_000..400_000);
            Injection::StarvedKthread { vcpu, duty_percent: KTHREAD_DUTY[strength], busy_us }
        }
        Cause::LongReader => {
            let length_ms = about(rng, READER_MS[strength]) as u64;
            let preemptible = rng.random_bool(0.5);
            Injection::LongReader { vcpu, length_ms, rest_ms: length_ms / 5, preemptible }
        }
        Cause::Quiet => Injection::Nothing,
        Cause::FingerprintQuota => {
            let (period_us, percent) = SETTINGS[strength % SETTINGS.len()];
            Injection::Quota { vcpus: vec![vcpu], percent, period_us }
        }
        Cause::GracePeriods => {
            let (_, cause) = GRACE_SETTINGS[strength % GRACE_SETTINGS.len()];
            injection(rng, Case { cause, strength: 1, ..case }, machine, vcpu, watch_ms)
        }
        Cause::FingerprintSlice => {
            Injection::Neighbour { vcpu, hogs: strength + 1, duty_percent: 100, burst_us: 0 }
        }
    }
}

fn between(rng: &mut impl Rng, (least, most): (f64, f64)) -> f64 {
    rng.random_range(least..most)
}

fn about(rng: &mut impl Rng, nominal: f64) -> f64 {
    rng.random_range(nominal * (1.0 - SPREAD)..nominal * (1.0 + SPREAD))
}

/// Short periods as often as long ones.
fn period_us(rng: &mut impl Rng) -> u64 {
    (between(rng, (PERIOD_MS.0.ln(), PERIOD_MS.1.ln())).exp() * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::{MATRIX, STRENGTHS};

    #[test]
    fn a_seed_gives_the_same_again_and_leaves_a_pcpu_to_idle_vcpus() {
        let machine = Machine { vcpus: 4, pcpus: 2 };
        for row in &MATRIX {
            for strength in 0..STRENGTHS {
                let case = Case { cause: row.cause, strength, repetition: 3, is_busy: false };
                let drawn = draw(case, machine, 1, 8_000);
                assert_eq!(drawn, draw(case, machine, 1, 8_000));
                assert!(drawn.background.vcpus.iter().all(|vcpu| *vcpu < 1), "{drawn:?}");
            }
        }
    }

    #[test]
    fn strengths_grow() {
        let machine = Machine { vcpus: 2, pcpus: 2 };
        let length = |strength| {
            let case = Case { cause: Cause::Pause, strength, repetition: 0, is_busy: true };
            match draw(case, machine, 7, 8_000).injection {
                Injection::Pause { length_ms, .. } => length_ms,
                other => panic!("{other:?}"),
            }
        };
        assert!(length(0) < length(1) && length(1) < length(2));
    }
}
