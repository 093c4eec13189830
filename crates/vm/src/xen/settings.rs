//! From a scenario to the command lines of Xen and of dom0.
//!
//! dom0's init gets its settings as KEY=VALUE words of its kernel's command line: digits and plain words only, as a
//! comma would end a module's arguments in QEMU.

use std::ops::Range;

use rand::{Rng, RngExt};
use reprieve_study::scenario::{BadScenario, PlannedRun, Wakeup};
use reprieve_study::units::{MIB, MILLISECOND_NS, SECOND_NS};
use reprieve_study::{GroundKind, Scenario, Workload, statistics};

/// dom0's memory: its file system twice (the archive, and unpacked), and the toolstack.
const DOM0_MIB: u64 = 640;
/// A domU's kernel does not boot with less memory.
const DOMU_MIB_MIN: u64 = 128;
/// Xen itself, its tables and buffers of traces.
const XEN_MIB: u64 = 320;
/// dom0 comes to rest within this time after a domU began.
const REST_NS: u64 = SECOND_NS;
/// Phases are drawn from so much: ten of the credit scheduler's longest periods, its accounting.
const PHASES_NS: u64 = 300 * MILLISECOND_NS;
/// Most samples of one boot: each takes about 13 bytes of a console.
pub const SAMPLES_MAX: u64 = 1_000_000;
/// Repetitions of a condition that one boot serves, each a segment of its own phase: a boot takes as long as 20 s of
/// measuring.
pub const SEGMENTS_MAX: u32 = 20;
/// Most spinners of one run.
const SPINNERS_MAX: u32 = 16;
/// A turn of the loop takes at least so long: two calls into the kernel, at 4 ns an instruction.
const LOOP_NS_MIN: u64 = 10_000;
const MICROSECOND_NS: u64 = 1_000;

/// Everything that one boot is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Xen's command line.
    pub xen: String,
    /// What is added to dom0's.
    pub dom0: String,
    /// pCPUs of the machine.
    pub pcpus: usize,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// The repetitions that it serves, each by a segment.
    pub repetitions: Range<u32>,
    /// Samples that the workload is to take in a segment, at most.
    pub samples: u64,
    /// Whether the scheduler's events are recorded.
    pub trace: bool,
    /// Seed of the machine: of the run's own stream.
    pub seed: u32,
}

impl Settings {
    /// Of the boot that serves one run of the plan. Repetitions of a condition differ by their phases: each segment begins
    /// after a pause that is drawn, and each boot starts its VMs at other times.
    ///
    /// # Errors
    /// What this ground cannot do, with the key at fault.
    pub fn of(planned: &PlannedRun) -> Result<Settings, BadScenario> {
        let (scenario, condition) = (&planned.scenario, &planned.scenario.conditions[&planned.condition]);
        let scheduler = scenario.host.scheduler.name();
        let (spinners, domain_mib) = (condition.spinners, scenario.guest.memory_mib);
        if spinners > SPINNERS_MAX {
            let problem = format!("{spinners} are more than the {SPINNERS_MAX} of real Xen");
            return Err(BadScenario::new(format!("conditions.{}.spinners", planned.condition), problem));
        }
        if domain_mib < DOMU_MIB_MIN {
            let problem = format!("{domain_mib} MiB are too few for a domU, which takes {DOMU_MIB_MIN}");
            return Err(BadScenario::new("guest.memory_mib", problem));
        }
        let repetitions = repetitions(scenario, planned.repetition);
        let segments = u64::from(repetitions.end - repetitions.start);
        let (pcpus, samples) = (pcpus(scenario)?, samples(scenario, segments)?);
        let purpose = format!("xen, boot for repetition {}", repetitions.start);
        let mut random = statistics::stream(scenario.run.seed, &purpose);
        let of_host = host_words(scenario, spinners, pcpus, &mut random);
        let of_loop = loop_words(scenario, wakeup(scenario)?, samples, segments, &mut random);
        let numbers = of_host.into_iter().chain(of_loop).map(|(key, number)| format!(" {key}={number}"));
        Ok(Settings {
            xen: format!(
                "com1=115200,8n1 console=com1 sched={scheduler} dom0_mem={DOM0_MIB}M,max:{DOM0_MIB}M \
                 dom0_max_vcpus=1 dom0_vcpus_pin"
            ),
            dom0: [format!("scheduler={scheduler}")].into_iter().chain(numbers).collect(),
            pcpus,
            repetitions,
            memory_bytes: (DOM0_MIB + XEN_MIB + domain_mib * (u64::from(spinners) + 1)) * MIB,
            samples,
            trace: scenario.host.xen.trace,
            seed: random.random(),
        })
    }
}

/// A setting of dom0's init.
type Number = (&'static str, u64);

/// What the VMs are, and when they start.
fn host_words(scenario: &Scenario, spinners: u32, pcpus: usize, random: &mut impl Rng) -> [Number; 11] {
    let xen = &scenario.host.xen;
    [
        ("slice_ms", xen.slice_ms),
        ("ratelimit_us", xen.ratelimit_us),
        ("domain_mib", scenario.guest.memory_mib),
        ("spinners", spinners.into()),
        ("pcpu", pcpus as u64 - 1),
        ("spinner_weight", xen.spinner_weight.into()),
        ("spinner_cap", xen.spinner_cap_percent.into()),
        ("spinner_start_us", random.random_range(0..PHASES_NS / MICROSECOND_NS)),
        ("guest_weight", xen.guest_weight.into()),
        ("guest_cap", xen.guest_cap_percent.into()),
        ("trace", xen.trace.into()),
    ]
}

/// The repetitions of the boot that serves this one.
fn repetitions(scenario: &Scenario, repetition: u32) -> Range<u32> {
    let first = repetition - repetition % SEGMENTS_MAX;
    first..scenario.run.repeat.max(repetition + 1).min(first + SEGMENTS_MAX)
}

/// What the guest does, and when it begins.
fn loop_words(
    scenario: &Scenario,
    wakeup: &Wakeup,
    samples: u64,
    segments: u64,
    random: &mut impl Rng,
) -> [Number; 10] {
    let Wakeup { sleep_us, sleep_spread, work_us, .. } = *wakeup;
    [
        ("sleep_ns", sleep_us * MICROSECOND_NS),
        ("spread_permille", (sleep_spread * 1_000.0).round() as u64),
        ("work_ns", work_us * MICROSECOND_NS),
        ("samples", samples),
        ("segments", segments),
        ("settle_ns", REST_NS),
        ("phases_ns", PHASES_NS),
        ("warmup_ns", scenario.run.warmup_ms * MILLISECOND_NS),
        ("window_ns", scenario.run.window_ms * MILLISECOND_NS),
        ("seed", random.random()),
    ]
}

/// The one workload that real Xen runs.
fn wakeup(scenario: &Scenario) -> Result<&Wakeup, BadScenario> {
    match &scenario.workload {
        Workload::Wakeup(wakeup) => Ok(wakeup),
        other => Err(other.not_on(GroundKind::Xen)),
    }
}

/// dom0 and domUs share one, or dom0 has one and the domUs another.
fn pcpus(scenario: &Scenario) -> Result<usize, BadScenario> {
    match scenario.host.pcpus {
        0 | 1 => Ok(1),
        2 => Ok(2),
        more => Err(BadScenario::new("host.pcpus", format!("real Xen has 1 or 2 here, not {more}"))),
    }
}

/// As many as are asked for, or as the window can hold: each takes its sleep and its work at least.
fn samples(scenario: &Scenario, segments: u64) -> Result<u64, BadScenario> {
    let Wakeup { sleep_us, sleep_spread, work_us, samples } = *wakeup(scenario)?;
    let shortest_ns =
        ((sleep_us * MICROSECOND_NS) as f64 * (1.0 - sleep_spread)) as u64 + work_us * MICROSECOND_NS;
    let held = scenario.run.window_ms * MILLISECOND_NS / shortest_ns.max(LOOP_NS_MIN) + 1;
    let samples = if samples == 0 { held } else { samples };
    if samples > SAMPLES_MAX / segments {
        let problem = format!(
            "{samples} in each of {segments} repetitions are more than the {SAMPLES_MAX} of real Xen"
        );
        return Err(BadScenario::new("workload.samples", problem));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use reprieve_study::overrides;

    use super::*;

    fn settings(assignments: &[&str], repetition: u32) -> Result<Settings, BadScenario> {
        let text = "
            name = 't'
            title = 't'
            ground = 'xen'
            [run]
            repeat = 2
            warmup_ms = 0
            window_ms = 1_000
            [guest]
            vcpus = 1
            [host]
            scheduler = 'credit'
            [workload]
            kind = 'wakeup'
            [conditions.a]
            spinners = 1
        ";
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        let scenario = overrides::read(text, None, &assignments)?;
        let plan = scenario.plan()?;
        Settings::of(plan.iter().find(|run| run.repetition == repetition).unwrap())
    }

    #[test]
    fn a_run_s_command_lines_are_of_its_scenario_and_free_of_commas() {
        let set =
            settings(&["host.xen.slice_ms=5", "workload.samples=300", "host.xen.trace=true"], 0).unwrap();
        assert!(set.xen.contains("sched=credit ") && set.trace && set.samples == 300);
        for word in
            ["scheduler=credit", "slice_ms=5", "spinners=1", "sleep_ns=1000000", "segments=2", "trace=1"]
        {
            assert!(set.dom0.split(' ').any(|there| there == word), "{word} in {}", set.dom0);
        }
        assert!(!set.dom0.contains(','));
    }

    #[test]
    fn a_boot_serves_repetitions_and_boots_differ_by_their_phases_alone() {
        let set = |repetition: u32| settings(&["run.repeat=50", "workload.samples=9"], repetition).unwrap();
        let [one, same, other] = [0, SEGMENTS_MAX - 1, SEGMENTS_MAX].map(set);
        assert_eq!(one, same);
        assert_eq!((one.repetitions, other.repetitions), (0..SEGMENTS_MAX, SEGMENTS_MAX..2 * SEGMENTS_MAX));
        let differ = one.dom0.split(' ').zip(other.dom0.split(' ')).filter(|(a, b)| a != b);
        let keys: Vec<&str> = differ.map(|(a, _)| a.split('=').next().unwrap()).collect();
        assert_eq!(keys, ["spinner_start_us", "seed"]);
        assert_eq!(set(49).repetitions, 2 * SEGMENTS_MAX..50);
    }

    #[test]
    fn without_a_number_of_samples_the_window_holds_them() {
        assert_eq!(settings(&["workload.work_us=1000"], 0).unwrap().samples, 501);
    }

    #[test]
    fn what_real_xen_lacks_is_refused_with_the_key() {
        let key = |assignment: &str| settings(&[assignment], 0).unwrap_err().key;
        assert_eq!(key("workload.samples=9000000"), "workload.samples");
        assert_eq!(key("guest.memory_mib=64"), "guest.memory_mib");
        assert_eq!(key("host.pcpus=3"), "host.pcpus");
        assert_eq!(key("conditions.a.spinners=40"), "conditions.a.spinners");
        // What only the check of a scenario refuses does not get here.
        assert_eq!(key("host.scheduler=rtds"), "host.scheduler");
        assert_eq!(key("workload.kind=memory"), "workload.kind");
    }
}
