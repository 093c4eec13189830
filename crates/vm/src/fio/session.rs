//! One boot, and one run in it.

use std::time::{Duration, Instant};

use reprieve_linux::clock::now_ns;
use reprieve_linux::threads::FifoGuard;
use reprieve_study::derive::{self, put};
use reprieve_study::scenario::{BadScenario, Fio, Placement, PlannedRun};
use reprieve_study::units::{MIB, MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Condition, Observation, Span, metric};

use super::clocks::{Clocks, Fix};
use super::{command, daemon_record};
use crate::bursts::{self, Spans, Timing};
use crate::error::{VmError, plain};
use crate::lab::{Booted, Lab, STOP_LIMIT, Work};
use crate::link::{self, Fields, Link};
use crate::qemu::MachineSpec;
use crate::stimulus::Stimulus;
use crate::{Result, Step};

/// Exchanges of the clocks' times for a fix.
const EXCHANGES: usize = 32;
/// A new fio must have read within this time, and the daemon have begun.
const READING_LIMIT: Duration = Duration::from_secs(60);
/// fio reads when it has read so often.
const READS: u64 = 8;
/// Between two looks at whether they do.
const LOOK: Duration = Duration::from_millis(50);
/// From the daemon's start, or when that would be, to the first burst: it comes up undisturbed, where it is not slower.
const HEAD_START_NS: u64 = 700 * MILLISECOND_NS;
/// An oracle is told so much more than the run is to last.
const FURTHER_NS: u64 = 20 * SECOND_NS;
/// What it is told is right to so much at the end of the run, ns: half of the shortest time between two beats.
const RIGHT_NS: u64 = MILLISECOND_NS / 2;
/// Between two looks at the clocks, if they are not known so well yet.
const APART: Duration = Duration::from_secs(1);
/// And after so many they will not be.
const FIXES: u32 = 30;
/// What takes many answers of the guest may take so long in all: each alone could take its time.
const ANSWERS_LIMIT: Duration = Duration::from_secs(120);
/// Largest record that is taken from a guest.
const RECORD_BYTES: usize = 256 * MIB as usize;

/// A guest that has booted for a repetition's runs.
pub(super) struct Session {
    // Before the machine goes.
    _raised: Vec<FifoGuard>,
    booted: Booted,
    spec: MachineSpec,
    repetition: u32,
    clocks: Clocks,
}

impl Session {
    pub(super) fn boot(lab: &Lab, spec: MachineSpec, planned: &PlannedRun) -> Result<Session> {
        let limit = Duration::from_millis(planned.scenario.guest.boot_limit_ms);
        let mut booted = lab.boot(&spec, &lab.pcpus, limit)?;
        let raised = bursts::raise(&booted.machine.other_tids(&lab.host.proc_root)?)?;
        let clocks = Clocks::new(fix(&mut booted.link)?);
        Ok(Session { _raised: raised, booted, spec, repetition: planned.repetition, clocks })
    }

    /// Whether a run may be one of this boot's.
    pub(super) fn serves(&self, planned: &PlannedRun, spec: &MachineSpec) -> bool {
        self.repetition == planned.repetition && self.spec == *spec
    }

    /// An error with what the guest said last.
    pub(super) fn explain(&mut self, error: VmError) -> VmError {
        self.booted.machine.explain(error)
    }

    /// Does one run. Also returns where a replay decided otherwise than the daemon did.
    pub(super) fn measure(
        &mut self,
        lab: &Lab,
        planned: &PlannedRun,
        step: &mut Step,
    ) -> Result<(Observation, Option<String>)> {
        let (name, scenario) = (&planned.condition, &planned.scenario);
        let other = || BadScenario::new("workload.kind", "is not fio");
        let (condition, fio) = (&scenario.conditions[name], scenario.workload.fio().ok_or_else(other)?);
        let pcpus = Stimulus::pcpus(name, condition, &lab.pcpus)?;
        Stimulus::pin(&self.booted.machine, &pcpus)?;
        let run = &scenario.run;
        let known_ns = (run.warmup_ms + run.window_ms) * MILLISECOND_NS + HEAD_START_NS;
        if fio.placement == Placement::Oracle {
            self.learn_clocks(known_ns, step)?;
        }
        step("starts fio");
        self.booted.link.start(&command::start(fio, scenario.guest.vcpus))?;
        wait_reading(&mut self.booted.link)?;
        // The same bursts in all conditions of a repetition.
        let seed = run.seed.wrapping_mul(1 << 20) + u64::from(planned.repetition);
        let timing = self.start_daemon(lab, condition, fio, &pcpus, seed, run.warmup_ms + run.window_ms)?;
        let stimulus = Stimulus::apply(condition, &self.booted.machine, &pcpus, &lab.host, timing)?;
        step("warms up");
        let opens_ns = timing.epoch_ns.max(now_ns()) + run.warmup_ms * MILLISECOND_NS;
        self.booted.link.let_work(Duration::from_nanos(opens_ns.saturating_sub(now_ns())))?;
        step("is measured");
        let work = Work { lab, scenario, condition, pcpus: &pcpus };
        let first = self.booted.link.mark()?;
        let account = work.cpu_account(&self.booted, &[], &stimulus)?;
        self.booted.link.let_work(Duration::from_millis(run.window_ms))?;
        let spent = account.close(&lab.host.proc_root)?;
        let last = self.booted.link.mark()?;
        let span = link::between(&first, &last)?;
        drop(stimulus);
        step("stops");
        self.booted.link.stop(STOP_LIMIT)?;
        let provenance = work.provenance(&self.booted, spent, Vec::new());
        let mut observation = Observation::new(name, planned.repetition, provenance);
        (observation.case, observation.sweep) = (planned.case.clone(), planned.sweep.clone());
        observe(&first, &last, &mut observation);
        if fio.placement.policy().is_some() {
            let said = self.booted.link.read_whole(command::SAID, RECORD_BYTES)?;
            observation.provenance.notes.extend(daemon_record::notes(&said).iter().map(|note| plain(note)));
        }
        let differs = match fio.placement.policy() {
            Some(_) if fio.record => self.replay(span, &mut observation)?,
            _ => None,
        };
        Ok((observation, differs))
    }

    /// Learns how the clocks are related, while nothing runs in the guest, until that is known well enough for what an oracle
    /// is told of the next `for_ns`.
    fn learn_clocks(&mut self, for_ns: u64, step: &mut Step) -> Result<()> {
        step("compares clocks");
        let began = Instant::now();
        for _ in 0..FIXES {
            if began.elapsed() > ANSWERS_LIMIT {
                break;
            }
            self.clocks.fix(fix(&mut self.booted.link)?);
            if self.clocks.within_ns(now_ns() + for_ns) <= RIGHT_NS {
                return Ok(());
            }
            self.booted.link.let_work(APART)?;
        }
        Err(VmError::late("tell its time precisely enough for an oracle", APART * FIXES))
    }

    /// Starts the daemon, if it is to run, undisturbed; and says when bursts begin.
    fn start_daemon(
        &mut self,
        lab: &Lab,
        condition: &Condition,
        fio: &Fio,
        pcpus: &[usize],
        seed: u64,
        run_ms: u64,
    ) -> Result<Timing> {
        let link = &mut self.booted.link;
        let timing = Timing { seed, epoch_ns: now_ns() + HEAD_START_NS };
        if fio.placement == Placement::Oracle
            && let Some(bursts) = condition.bursts
        {
            let used = Stimulus::used(self.spec.vcpus, pcpus).len();
            let until_ns = run_ms * MILLISECOND_NS + FURTHER_NS;
            let guest_ns = |since_ns: u64| self.clocks.guest_ns(timing.epoch_ns + since_ns);
            let mut off: Vec<(usize, Span)> = Vec::new();
            for vcpu in 0..self.spec.vcpus {
                let spans = Spans::new(bursts, vcpu % used, used, seed);
                let spans = spans.take_while(|span| span.start_ns < until_ns);
                off.extend(
                    spans.map(|span| (vcpu, Span::new(guest_ns(span.start_ns), guest_ns(span.end_ns)))),
                );
            }
            link.delete(command::OFF_TIMES)?;
            let began = Instant::now();
            for line in command::off_times(&off) {
                if began.elapsed() > ANSWERS_LIMIT {
                    return Err(VmError::late("write what an oracle is told", ANSWERS_LIMIT));
                }
                link.append(command::OFF_TIMES, &line)?;
            }
        }
        let name = lab.host.daemon.file_name().unwrap_or_default().to_string_lossy();
        if let Some(line) = command::daemon(fio, &name) {
            link.start_beside(&line)?;
            wait_began(link)?;
        }
        Ok(timing)
    }

    /// What the daemon's record tells, and where its replay differs.
    fn replay(&mut self, span: Span, out: &mut Observation) -> Result<Option<String>> {
        let bytes = self.booted.link.read_whole(command::RECORD, RECORD_BYTES)?;
        let recorded = daemon_record::read(&bytes, span)
            .map_err(|problem| VmError::guest(format!("the daemon's record: {problem}")))?;
        put(out, metric::MOVES, recorded.moves as f64 * SECOND_NS as f64 / span.length_ns().max(1) as f64);
        put(out, metric::LATE_BEATS, recorded.late_beats as f64);
        put(out, metric::REPLAYED, recorded.replayed.decisions as f64);
        if let Some(line) = recorded.replayed.lost_at_line {
            let note = format!("the daemon's record lost signals at line {line}: replayed up to there");
            out.provenance.notes.push(note);
        }
        let differs = recorded.replayed.differs.map(|differs| plain(&differs));
        out.provenance.notes.extend(differs.iter().map(|differs| format!("replay: {differs}")));
        Ok(differs)
    }
}

/// What the guest told of a window, by its marks.
fn observe(first: &Fields, last: &Fields, out: &mut Observation) {
    let delta = |key: &str| Some(last.get(key)?.checked_sub(*first.get(key)?)? as f64);
    let Some(elapsed_ns) = delta("t_ns").filter(|elapsed_ns| *elapsed_ns > 0.0) else { return };
    let per_s = |count: f64| count * SECOND_NS as f64 / elapsed_ns;
    for (key, metric, factor) in [
        ("ops", metric::THROUGHPUT, 1.0),
        // The block layer's, whatever the disk's.
        ("sectors", metric::IO_RATE, 512.0),
        ("loops", metric::COMPUTING_LOOPS, 1.0),
    ] {
        if let Some(count) = delta(key) {
            put(out, metric, per_s(count * factor));
        }
    }
    if let Some(cpu_ns) = delta("beside_ns") {
        put(out, metric::BEATS_CPU, cpu_ns / elapsed_ns);
    }
    derive::cpu_given(out);
}

/// A moment on the host's clock and the guest's.
fn fix(link: &mut Link) -> Result<Fix> {
    let (began, mut exchanges) = (Instant::now(), Vec::with_capacity(EXCHANGES));
    for _ in 0..EXCHANGES {
        if began.elapsed() > ANSWERS_LIMIT {
            return Err(VmError::late("tell its time", ANSWERS_LIMIT));
        }
        let before_ns = now_ns();
        let mark = link.mark()?;
        exchanges.extend(mark.get("t_ns").map(|guest_ns| (before_ns, *guest_ns, now_ns())));
    }
    Fix::best(&exchanges).ok_or_else(|| VmError::late("tell its time", Duration::ZERO))
}

/// Waits until fio reads: it takes a while to come up.
fn wait_reading(link: &mut Link) -> Result<()> {
    let reads = |link: &mut Link| Ok::<_, VmError>(link.mark()?.get("ops").copied().unwrap_or(0));
    let before = reads(link)?;
    wait_until(link, "read with fio", |link| Ok(reads(link)?.saturating_sub(before) >= READS))
}

/// Waits until the daemon has said something: from then on it ends in good order.
fn wait_began(link: &mut Link) -> Result<()> {
    wait_until(link, "start its daemon", |link| Ok(!link.read_whole(command::SAID, RECORD_BYTES)?.is_empty()))
}

fn wait_until(link: &mut Link, what: &str, is_so: impl Fn(&mut Link) -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_so(link)? {
        if began.elapsed() > READING_LIMIT {
            return Err(VmError::late(what, READING_LIMIT));
        }
        link.let_work(LOOK)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reprieve_study::Provenance;

    use super::*;
    use crate::link::fields;

    #[test]
    fn rates_are_of_the_guest_s_clock_and_what_was_not_told_is_absent() {
        let first = fields("t_ns=5 ops=100 sectors=0 loops=7 beside_ns=0");
        let last = fields("t_ns=2000000005 ops=3100 sectors=24000 loops=207 beside_ns=20000000");
        let mut out = Observation::new("c", 0, Provenance::default());
        observe(&first, &last, &mut out);
        assert_eq!(out.metrics[metric::THROUGHPUT], 1_500.0);
        assert_eq!(out.metrics[metric::IO_RATE], 6_144_000.0);
        assert_eq!(out.metrics[metric::COMPUTING_LOOPS], 100.0);
        assert_eq!(out.metrics[metric::BEATS_CPU], 0.01);
        let mut out = Observation::new("c", 0, Provenance::default());
        observe(&first, &fields("t_ns=1000000005 ops=1100"), &mut out);
        assert_eq!(out.metrics.len(), 1);
    }
}
