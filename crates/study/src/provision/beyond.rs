//! Says where an answer goes beyond the conditions on which the simulator was checked, and what else makes it weak.
//!
//! The check is that of `records/conformance-*`. It compares simulated guests with real ones, which run Linux 6.1 and
//! 6.12 under QEMU's emulation.

use super::estimate::{Provision, Row};
use super::peak::{Basis, FEW};
use super::profile::Profile;
use crate::scenario::{Scenario, SchedulerKind, Workload};
use crate::units::{self, MIB};

/// The real guests of the check, in sentences.
const CHECKED: &str = "the real guests of the check";
/// Their vCPUs, and their memory in MiB: least and most.
const VCPUS: (usize, usize) = (1, 4);
const MEMORY_MIB: (u64, u64) = (256, 512);
/// Most busy threads on each pCPU in the check: two hogs and a vCPU.
const RATIO: f64 = 3.0;
/// Sizes of the objects freed in the check, bytes: from a directory entry to an object of a network namespace.
const OBJECT_BYTES: (u64, u64) = (192, 2_048);
/// Deferred frees per second of each vCPU in the check: from clone on 6.1 to the memory benchmark on 6.12.
const RATE_PER_S: (f64, f64) = (6_000.0, 470_000.0);
/// A simulated guest does not represent the profile if its rate or grace periods differ by more than this factor.
const UNLIKE: f64 = 1.5;
/// If the sizes of a profile's objects differ by more than this factor, their mean describes them badly.
const UNEQUAL: u64 = 8;
/// Peaks above this share of the guest's memory are limited by that memory.
const FULL: f64 = 0.9;

/// The weaknesses of an answer, as text.
pub fn flags(
    answer: &Provision,
    scenario: &Scenario,
    profile: Option<&Profile>,
    peak_bytes: f64,
) -> Vec<String> {
    let mut flags = machine(scenario);
    flags.extend(conditions(answer, scenario));
    flags.extend(profile.into_iter().flat_map(|profile| of_profile(answer, profile)));
    if peak_bytes > FULL * (scenario.guest.memory_mib * MIB) as f64 {
        flags
            .push("memory ran out in some runs: with more memory in the guest, peaks would be higher".into());
    }
    flags
}

fn machine(scenario: &Scenario) -> Vec<String> {
    let (guest, host) = (&scenario.guest, &scenario.host);
    let mut flags = Vec::new();
    let mut say = |is_so: bool, text: String| {
        if is_so {
            flags.push(format!("extrapolates: {text}"))
        }
    };
    let is_outside = |value, (low, high)| !(low..=high).contains(&value);
    say(
        is_outside(guest.vcpus as u64, (VCPUS.0 as u64, VCPUS.1 as u64)),
        format!("the guest has {} vCPUs; {CHECKED} had {} to {}", guest.vcpus, VCPUS.0, VCPUS.1),
    );
    say(
        is_outside(guest.memory_mib, MEMORY_MIB),
        format!("the guest has {} MiB; {CHECKED} had {} to {}", guest.memory_mib, MEMORY_MIB.0, MEMORY_MIB.1),
    );
    say(
        host.scheduler != SchedulerKind::Eevdf,
        format!("the host's scheduler is {}; {CHECKED} ran under EEVDF", host.scheduler.name()),
    );
    let is_emulated = guest.timer_thread_ns > 0;
    say(!is_emulated, format!("the guest is simulated as under KVM; {CHECKED} were emulated"));
    if let Workload::Memory(memory) = &scenario.workload {
        say(
            is_outside(memory.object_bytes, OBJECT_BYTES),
            format!(
                "objects have {} bytes; those of {CHECKED} had {} to {}",
                memory.object_bytes, OBJECT_BYTES.0, OBJECT_BYTES.1
            ),
        );
    }
    flags
}

fn conditions(answer: &Provision, scenario: &Scenario) -> Vec<String> {
    let mut flags = Vec::new();
    let beyond: Vec<String> =
        distinct(answer.rows.iter().filter_map(|row| row.ratio).filter(|ratio| *ratio > RATIO));
    if !beyond.is_empty() {
        flags.push(format!("extrapolates: ratios above {RATIO} were not checked: {}", beyond.join(", ")));
    }
    let pcpus = scenario.host.pcpus_for(scenario.guest.vcpus) as f64;
    let is_rounded = |ratio: &f64| (ratio * pcpus).fract() != 0.0;
    let rounded: Vec<String> = distinct(answer.rows.iter().filter_map(|row| row.ratio).filter(is_rounded));
    if !rounded.is_empty() {
        flags.push(format!(
            "{pcpus} pCPUs cannot have these ratios exactly, so the nearest was simulated: {}",
            rounded.join(", ")
        ));
    }
    if answer.rows.iter().any(|row| row.remedy.is_some()) {
        flags.push("extrapolates: no remedy was checked on real guests beside busy neighbours".into());
    }
    if answer.rows.iter().any(|row| row.extra_at_risk.basis == Basis::Fitted) {
        let few = if answer.undisturbed.runs < FEW {
            format!("; with fewer than {FEW} windows, a fitted bound holds in fewer than 95 of 100 cases")
        } else {
            String::new()
        };
        flags.push(format!(
            "extrapolates: {} windows are too few to count p{}, so its bound is fitted{few}",
            answer.undisturbed.runs,
            units::significant(answer.risk * 100.0).trim_end_matches(".0")
        ));
    }
    flags
}

fn of_profile(answer: &Provision, profile: &Profile) -> Vec<String> {
    let mut flags = Vec::new();
    let (rate, bytes) = profile.rate();
    let each = rate / profile.guest.vcpus.max(1) as f64;
    if !(RATE_PER_S.0..=RATE_PER_S.1).contains(&each) {
        let [rate, low, high] = [each, RATE_PER_S.0, RATE_PER_S.1].map(units::count);
        flags.push(format!(
            "extrapolates: {rate} deferred frees a second on each vCPU; {CHECKED} had {low} to {high}"
        ));
    }
    let sizes = || profile.deferred_frees.iter().map(|one| one.bytes);
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if most > least.saturating_mul(UNEQUAL) {
        flags.push(format!(
            "objects of {least} to {most} bytes are simulated with their mean, {} bytes",
            units::significant(bytes / rate)
        ));
    }
    let undisturbed: &Row = &answer.undisturbed;
    let simulated = undisturbed.throughput_per_s.map_or(0.0, |throughput| throughput.value);
    // The simulator's objects are limited in size, so several may stand for one large object.
    let wanted = simulated_rate(profile);
    if unlike(simulated, wanted) {
        flags.push(format!(
            "the simulated guest frees {} objects a second, but should free {}",
            units::count(simulated),
            units::count(wanted)
        ));
    }
    let (gp, recorded) = (undisturbed.gp_mean_ns, profile.grace_periods.mean_ns as f64);
    if unlike(gp, recorded) {
        flags.push(format!(
            "undisturbed grace periods last {} in the simulator, {} in the profile",
            units::duration(gp),
            units::duration(recorded)
        ));
    }
    flags.extend(profile.missing.iter().map(|missing| format!("the profile has a gap: {missing}")));
    flags
}

/// Objects per second that the simulated guest should free.
fn simulated_rate(profile: &Profile) -> f64 {
    let (_, bytes) = profile.rate();
    match profile.scenario().map(|scenario| scenario.workload) {
        Ok(Workload::Memory(memory)) => bytes / memory.object_bytes as f64,
        _ => 0.0,
    }
}

fn unlike(one: f64, other: f64) -> bool {
    one > other * UNLIKE || other > one * UNLIKE
}

/// The distinct ratios in ascending order, as text.
fn distinct(ratios: impl Iterator<Item = f64>) -> Vec<String> {
    let mut found: Vec<f64> = ratios.collect();
    found.sort_by(f64::total_cmp);
    found.dedup();
    found.iter().map(f64::to_string).collect()
}
