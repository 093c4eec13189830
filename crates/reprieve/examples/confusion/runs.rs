//! One run: loads in the guest, an injection, a look, and what the host knows of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reprieve_linux::proc::{ForeignCpu, SchedStat};
use reprieve_linux::switches::{SwitchEvent, SwitchRecorder};
use reprieve_vm::VmError;
use serde_json::Value;

use crate::causes::Cause;
use crate::draw::{self, Case, Drawn, Injection, Machine};
use crate::graces::Looking;
use crate::guest::{Bench, Error, Guest};
use crate::inject::{InForce, Once, wait};
use crate::kept::Kept;
use crate::record::{Run, Truth, Verdict};
use crate::slices;

/// More than this of one CPU to others, and the run does not count.
pub const FOREIGN_CPUS: f64 = 0.2;
/// An injection that took less than this part of the window is not in effect, in per cent.
const LEAST_PERCENT: f64 = 2.0;
/// The same for more tasks than vCPUs: beats and one task alone wait for some per cent, and two tasks for nearly all of the time.
const LEAST_OVERLOAD_PERCENT: f64 = 50.0;
/// Loads and guest settle for this long before a look.
const SETTLE: Duration = Duration::from_millis(500);
/// Switches that a ring holds: 128 a page.
const RING_PAGES: usize = 256;

/// The rule, in words.
pub fn rule() -> String {
    format!(
        "rejected if others used more than {FOREIGN_CPUS} CPUs of the host meanwhile, if the injection took less than \
         {LEAST_PERCENT} % of the window by the host's or the guest's counters (own-cpu: {LEAST_OVERLOAD_PERCENT} %), or if the \
         run failed"
    )
}

/// What all runs have in common.
pub struct Setting {
    /// Of all values.
    pub seed: u64,
    /// For how long explain looks, s.
    pub watch_s: u64,
    /// Where what was seen is kept.
    pub keep: Option<Kept>,
}

/// For how long explain looks in this case, s: as long as the bar says for the fingerprint.
pub fn watch_s(case: Case, setting: &Setting) -> u64 {
    match case.cause {
        Cause::FingerprintQuota | Cause::FingerprintSlice | Cause::GracePeriods => 10,
        _ => setting.watch_s,
    }
}

/// Does one.
///
/// # Errors
/// The user interrupts, or the guest fails.
pub fn one(bench: &Bench, guest: &mut Guest, case: Case, setting: &Setting) -> Result<Run, Error> {
    let machine = Machine { vcpus: guest.booted.machine.vcpu_tids.len(), pcpus: bench.pcpus.len() };
    let watch_s = watch_s(case, setting);
    let drawn = draw::draw(case, machine, setting.seed, watch_s * 1000);
    guest.clear()?;
    guest.background(&drawn.background)?;
    guest.inject(&drawn.injection)?;
    let began = Instant::now();
    let force = InForce::begin(bench, guest, &drawn)?;
    wait(bench, SETTLE)?;
    let looking = match case.cause {
        Cause::GracePeriods => Some(Looking::begin(&bench.host.proc_root, guest.booted.machine.pid())?),
        _ => None,
    };
    let books = Books::open(bench, guest, &force, &drawn)?;
    // As people use it, but where T2's own figures are compared.
    guest.look(watch_s, if case.cause == Cause::GracePeriods { "T2" } else { "T1" })?;
    let once = InForce::once(bench, guest, &drawn.injection)?;
    let said = guest.verdict(watch_s)?;
    let since = if is_once(&drawn.injection) { once.at } else { began };
    let to_verdict_s = since.elapsed().as_secs_f64();
    let (mut truth, foreign_cpus, switches) = books.close(bench, guest, &force)?;
    truth.graces = looking.and_then(Looking::end);
    drop(force);
    guest.clear()?;
    if matches!(drawn.injection, Injection::ClockStep { .. }) {
        guest.step(-by_ms(&drawn.injection))?;
    }
    truth.guest_ns = counted(&said["counted"]);
    truth.effect_percent = effect_percent(&drawn.injection, &truth, &once);
    let verdict = said["explain"].is_object().then(|| Verdict::of(&said["explain"]));
    let rejected =
        rejected(&drawn.injection, &truth, foreign_cpus, verdict.is_none().then(|| &said["problem"]));
    let to_verdict_s = Some(to_verdict_s);
    let run = Run { verdict, to_verdict_s, foreign_cpus, truth, rejected, ..empty(guest, case, drawn) };
    if let Some(kept) = &setting.keep {
        kept.put(&run, said["seen"].as_str().unwrap_or_default(), &switches)?;
    }
    Ok(run)
}

/// A run that failed.
pub fn failed(bench: &Bench, guest: &Guest, case: Case, setting: &Setting, problem: &str) -> Run {
    let machine = Machine { vcpus: guest.booted.machine.vcpu_tids.len(), pcpus: bench.pcpus.len() };
    let drawn = draw::draw(case, machine, setting.seed, watch_s(case, setting) * 1000);
    Run { rejected: Some(format!("failed: {problem}")), ..empty(guest, case, drawn) }
}

fn empty(guest: &Guest, case: Case, drawn: Drawn) -> Run {
    Run {
        kernel: guest.booted.hello.release.clone(),
        vcpus: guest.booted.machine.vcpu_tids.len(),
        cause: case.cause,
        strength: case.strength,
        repetition: case.repetition,
        is_busy: case.is_busy,
        drawn,
        verdict: None,
        to_verdict_s: None,
        foreign_cpus: 0.0,
        truth: Truth::default(),
        rejected: None,
    }
}

fn is_once(injection: &Injection) -> bool {
    matches!(injection, Injection::Pause { .. } | Injection::ClockStep { .. })
}

fn by_ms(injection: &Injection) -> i64 {
    if let Injection::ClockStep { by_ms, .. } = injection { *by_ms } else { 0 }
}

/// The guest's numbers; others are passed over.
fn counted(said: &Value) -> BTreeMap<String, u64> {
    let counters = said.as_object().into_iter().flatten().take(16);
    counters.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

/// What the injection took of the window, by counters that explain's rules have no say in. None if there is no such counter.
fn effect_percent(injection: &Injection, truth: &Truth, once: &Once) -> Option<f64> {
    let percent = |ns: u64| ns as f64 / truth.window_ns.max(1) as f64 * 100.0;
    let guest = |name: &str| percent(truth.guest_ns.get(name).copied().unwrap_or(0));
    Some(match injection {
        Injection::Quota { .. } | Injection::VmQuota { .. } => {
            percent(truth.throttled_ns.iter().copied().max().unwrap_or(0))
        }
        Injection::Contention { .. } => percent(truth.delay_ns.iter().copied().max().unwrap_or(0)),
        Injection::Neighbour { vcpu, .. } => percent(truth.delay_ns.get(*vcpu).copied().unwrap_or(0)),
        Injection::Pause { .. } => percent(once.stood_still.map_or(0, |length| length.as_nanos() as u64)),
        Injection::OwnCpu { .. } => guest("cpu_wait"),
        Injection::OwnMemory { .. } => guest("memory_wait"),
        Injection::StarvedKthread { .. } => guest("kthread_wait"),
        Injection::LongReader { .. } => guest("held"),
        // The agent says an error if the clock cannot be stepped.
        Injection::ClockStep { .. } | Injection::Nothing => return None,
    })
}

fn rejected(
    injection: &Injection,
    truth: &Truth,
    foreign_cpus: f64,
    problem: Option<&Value>,
) -> Option<String> {
    let least = match injection {
        Injection::OwnCpu { .. } => LEAST_OVERLOAD_PERCENT,
        _ => LEAST_PERCENT,
    };
    let little = |percent: &f64| *percent < least;
    if let Some(problem) = problem {
        return Some(format!("failed: {}", problem.as_str().unwrap_or_default()));
    }
    // First: on a busy host an injection may have no effect, and on a free one the same has.
    if foreign_cpus > FOREIGN_CPUS {
        return Some(format!("the host was busy: others used {foreign_cpus:.2} CPUs"));
    }
    if let Some(percent) = truth.effect_percent.filter(little) {
        let what = serde_json::to_value(injection).unwrap_or_default();
        let kind = what["kind"].as_str().unwrap_or_default();
        return Some(format!("not in effect: {kind} took {percent:.1} %"));
    }
    None
}

/// What is counted from the look's begin to the verdict.
struct Books {
    opened: Instant,
    vcpus: Vec<SchedStat>,
    throttled_ns: Vec<u64>,
    ours: Vec<i32>,
    ours_ns: u64,
    foreign: ForeignCpu,
    /// Of the vCPU whose times on and off are compared.
    switches: Option<SwitchRecorder>,
}

impl Books {
    fn open(bench: &Bench, guest: &Guest, force: &InForce, drawn: &Drawn) -> Result<Books, Error> {
        let root = &bench.host.proc_root;
        let machine = &guest.booted.machine;
        let mut ours = force.pids();
        ours.extend([machine.pid(), std::process::id() as i32]);
        let switches = match drawn.injection {
            // A user without the right to it has no slices in the record.
            Injection::Neighbour { vcpu, .. } => Some(vcpu),
            Injection::Quota { ref vcpus, .. } => vcpus.first().copied(),
            _ => None,
        };
        let switches =
            switches.and_then(|vcpu| SwitchRecorder::open(&[machine.vcpu_tids[vcpu]], RING_PAGES).ok());
        Ok(Books {
            opened: Instant::now(),
            vcpus: stats(bench, guest)?,
            throttled_ns: force.throttled_ns(),
            ours_ns: spent(bench, &ours)?,
            ours,
            foreign: ForeignCpu::open(root, &bench.pcpus)?,
            switches,
        })
    }

    /// The truth, what others used, in CPUs, and the host's records of the vCPU's switches.
    fn close(
        mut self,
        bench: &Bench,
        guest: &Guest,
        force: &InForce,
    ) -> Result<(Truth, f64, Vec<SwitchEvent>), Error> {
        let mut switches = Vec::new();
        let lost = self.switches.as_mut().map_or(0, |recorder| {
            recorder.drain(&mut |event| switches.push(event));
            recorder.lost()
        });
        let slices = slices::of(&switches, lost);
        let window_ns = self.opened.elapsed().as_nanos() as u64;
        let after = stats(bench, guest)?;
        let ours_ns = spent(bench, &self.ours)?.saturating_sub(self.ours_ns);
        let share = self.foreign.share(&bench.host.proc_root, ours_ns)?;
        let grown = |of: fn(&SchedStat) -> u64| {
            self.vcpus
                .iter()
                .zip(&after)
                .map(|(before, after)| of(after).saturating_sub(of(before)))
                .collect()
        };
        let throttled = force.throttled_ns();
        let truth = Truth {
            window_ns,
            run_ns: grown(|stat| stat.run_ns),
            delay_ns: grown(|stat| stat.delay_ns),
            throttled_ns: throttled
                .iter()
                .zip(&self.throttled_ns)
                .map(|(after, before)| after - before)
                .collect(),
            slices,
            ..Truth::default()
        };
        Ok((truth, share * bench.pcpus.len() as f64, switches))
    }
}

fn stats(bench: &Bench, guest: &Guest) -> Result<Vec<SchedStat>, Error> {
    let machine = &guest.booted.machine;
    let read = |tid: &i32| bench.host.proc_root.schedstat(machine.pid(), *tid);
    Ok(machine.vcpu_tids.iter().map(read).collect::<Result<_, _>>()?)
}

fn spent(bench: &Bench, pids: &[i32]) -> Result<u64, Error> {
    Ok(pids.iter().map(|pid| bench.host.proc_root.process_cpu_ns(*pid)).sum::<Result<u64, _>>()?)
}

/// Whether the user wants the end.
pub fn is_interrupt(error: &Error) -> bool {
    matches!(error.downcast_ref::<VmError>(), Some(VmError::Interrupted))
}
