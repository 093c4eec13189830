//! Makes [`Sample`]s of the machine it runs on: joins beats, grace periods and the kernel's counters.
//!
//! It has two paces. The *frugal* one is for always: about 6 beats a second and vCPU show what part of the time a vCPU is off, not
//! when. The *close* one, of 1,000, shows each time off of a millisecond or more (up to 5 where beats are usually late), and
//! costs forty to fifty times as much (records/explain/cost-frugal.json and cost.json). [`reprieve_policy::canary`] says when to look
//! closely.
//!
//! It sees as much as it may, in tiers, and does not fail for lack of rights: T0 needs none, T1 root, and T2 is armed while the
//! pace is close, since it costs more.
//!
//! Invariant: after the first samples, a sample of T0 allocates nothing, unless there are more gaps in it than ever before.

use reprieve_policy::beat::{Gap, Verdict};
use reprieve_policy::explain::OFF_PERMILLE;
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Sample, Tier, VcpuSample};

use super::beats::{Beats, VcpuBeats};
use super::counters::{Counters, CpuStanding, Standing};
use super::deep::{Deep, DeepBy};
use super::grace::GracePeriods;
use super::privileged::Privileged;
use crate::Result;
use crate::proc::ProcRoot;

/// Steal of before a sample that is booked in it, at most, ns.
const MOST_LATE_STEAL_NS: u64 = 60_000_000_000;

/// How closely it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// About 6 beats a second, and one call of `membarrier` a second.
    Frugal,
    /// 1,000 beats a second, about seven calls of `membarrier` a second.
    Close,
}

impl Pace {
    /// Time between two beats, ns.
    pub fn beat_ns(self) -> u64 {
        match self {
            // After a late beat, beats count from the start of a quota's period. At a multiple of that period, or near one, all
            // later beats would fall into its time on, and the quota would not be seen. Of all whole numbers of milliseconds from
            // 150 to 299, this one leaves the quotas of the test below unseen for the shortest time.
            Pace::Frugal => 156_000_000,
            Pace::Close => 1_000_000,
        }
    }
}

/// Makes samples until it is dropped.
#[derive(Debug)]
pub struct Collector {
    beats: Beats,
    grace_periods: Option<GracePeriods>,
    counters: Counters,
    before: Standing,
    now: Standing,
    pace: Pace,
    root: ProcRoot,
    /// The highest tier to use.
    highest: Tier,
    privileged: Option<Privileged>,
    deep: Option<Deep>,
    /// Why tier T2 could not be armed.
    refusal: Option<String>,
}

impl Collector {
    /// Begins on these CPUs, with all tiers that are open.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn begin(root: &ProcRoot, cpus: &[usize], pace: Pace) -> Result<Collector> {
        Collector::begin_in(root, cpus, pace, Tier::T2)
    }

    /// Begins on these CPUs, with no tier above this one.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn begin_in(root: &ProcRoot, cpus: &[usize], pace: Pace, highest: Tier) -> Result<Collector> {
        let privileged = if highest >= Tier::T1 { Privileged::open(root) } else { None };
        let mut counters = Counters::new(root);
        let grace_periods = GracePeriods::begin();
        let mut before = Standing::default();
        counters.read(&mut before);
        let beats = Beats::begin(root, cpus, pace.beat_ns())?;
        let mut collector = Collector {
            beats,
            grace_periods,
            counters,
            before,
            now: Standing::default(),
            pace,
            root: root.clone(),
            highest,
            privileged,
            deep: None,
            refusal: None,
        };
        collector.set_pace(pace);
        Ok(collector)
    }

    /// How closely it looks.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// True if `membarrier` can time grace periods on this machine.
    pub fn times_grace_periods(&self) -> bool {
        self.grace_periods.is_some()
    }

    /// What tier T2 uses while it is armed: eBPF or perf events.
    pub fn armed(&self) -> Option<DeepBy> {
        self.deep.as_ref().map(Deep::by)
    }

    /// Why tier T2 cannot be armed, if that was tried.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Arms tier T2, if that is permitted and was not refused before. Takes some tenths of a second. A close pace does it, too.
    pub fn arm(&mut self) {
        if self.highest < Tier::T2 || self.deep.is_some() || self.refusal.is_some() {
            return;
        }
        match Deep::arm(&self.root) {
            Ok(deep) => self.deep = Some(deep),
            Err(refusal) => self.refusal = Some(refusal),
        }
    }

    /// Disarms tier T2. A frugal pace does it, too.
    pub fn disarm(&mut self) {
        self.deep = None;
    }

    /// Looks more or less closely from now on.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        self.beats.set_period_ns(pace.beat_ns());
        if let Some(grace_periods) = &self.grace_periods {
            grace_periods.set_frugal(pace == Pace::Frugal);
        }
        match pace {
            Pace::Frugal => self.disarm(),
            Pace::Close => self.arm(),
        }
    }

    /// Makes a sample of the time since the last one, in place of what `into` held.
    pub fn sample(&mut self, into: &mut Sample) {
        self.counters.read(&mut self.now);
        self.add_counters(into);
        into.grace_periods_ns.clear();
        into.open_grace_period_ns = 0;
        if let Some(grace_periods) = &self.grace_periods {
            grace_periods.take(&mut into.grace_periods_ns);
            into.open_grace_period_ns = grace_periods.open_ns();
        }
        self.add_vcpus(into);
        self.add_higher_tiers(into);
        std::mem::swap(&mut self.before, &mut self.now);
    }

    fn add_counters(&self, into: &mut Sample) {
        let (before, now) = (&self.before, &self.now);
        into.at_ns = now.at_ns;
        into.day_ns = now.day_ns;
        into.span_ns = now.at_ns.saturating_sub(before.at_ns);
        into.beat_ns = self.pace.beat_ns();
        into.throttled_ns = now.throttled_since(before);
        into.stepped_ns = now.stepped_since(before);
        into.suspended_ns = now.suspended_ns.saturating_sub(before.suspended_ns);
        into.cpu_wait_ns = grown(now.cpu_wait_ns, before.cpu_wait_ns);
        into.memory_wait_ns = grown(now.memory_wait_ns, before.memory_wait_ns);
        into.io_wait_ns = grown(now.io_wait_ns, before.io_wait_ns);
        into.kthread_wait_ns = grown(now.kthread_wait_ns, before.kthread_wait_ns);
        into.memory = now.memory;
        into.largest_free_bytes = now.largest_free_bytes;
    }

    fn add_vcpus(&mut self, into: &mut Sample) {
        let (before, now) = (&self.before, &self.now);
        // The kernel counts throttling of our cgroup as waiting for the guest's tasks. It is a time off all the same.
        let is_throttled = into.throttled_ns.is_some_and(|ns| ns > into.span_ns / 1000 * OFF_PERMILLE);
        into.real_time = self.beats.vcpus.iter().all(VcpuBeats::is_real_time);
        into.vcpus.resize_with(self.beats.vcpus.len(), VcpuSample::default);
        // If the host has booked none since boot, it is taken for one that never does, as under emulation.
        let books_steal = now.cpus.iter().any(|cpu| cpu.steal_ns.is_some_and(|ns| ns > 0));
        // Some hosts let it leap by years after a live migration. That of a long absence is booked in one piece, after it.
        let most_steal_ns = into.span_ns.saturating_add(MOST_LATE_STEAL_NS);
        for (beats, vcpu) in self.beats.vcpus.iter_mut().zip(&mut into.vcpus) {
            let cpu = beats.cpu;
            let of = |standing: &Standing| standing.cpus.get(cpu).copied();
            vcpu.vcpu = cpu;
            vcpu.beats = beats.take_beats();
            vcpu.lost = beats.take_lost();
            take_gaps(beats, is_throttled, self.pace.beat_ns(), vcpu);
            let grown = |what: fn(CpuStanding) -> Option<u64>| {
                grown(of(now).and_then(what), of(before).and_then(what))
            };
            vcpu.idle_ns = grown(|cpu| cpu.idle_ns);
            vcpu.steal_ns = grown(|cpu| cpu.steal_ns).filter(|ns| books_steal && *ns <= most_steal_ns);
            vcpu.run_delay_ns = grown(|cpu| cpu.run_delay_ns);
        }
    }

    fn add_higher_tiers(&mut self, into: &mut Sample) {
        into.tier = match (&self.deep, &self.privileged) {
            (Some(_), _) => Tier::T2,
            (None, Some(_)) => Tier::T1,
            (None, None) => Tier::T0,
        };
        match &mut self.privileged {
            Some(privileged) => privileged.read(self.pace == Pace::Close, into),
            None => {
                into.slabs.clear();
                (into.stalls, into.lockups) = (None, None);
            }
        }
        match &mut self.deep {
            Some(deep) => deep.take(into),
            None => {
                into.in_the_way.clear();
                into.deferred = None;
            }
        }
    }
}

fn grown(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

/// Takes the gaps of a vCPU: times off, and times that the guest kept the beats waiting.
fn take_gaps(beats: &mut VcpuBeats, is_throttled: bool, beat_ns: u64, into: &mut VcpuSample) {
    into.offs.clear();
    into.kept_ns = 0;
    for gap in beats.gaps() {
        match gap.verdict == Verdict::Guest && !is_throttled {
            true => into.kept_ns = into.kept_ns.saturating_add(gap.late_ns),
            false => into.offs.push(off_of(&gap, beat_ns)),
        }
    }
}

/// A vCPU that is on beats a little after each time due. So it went off between its last beat and the time at which the next one would
/// have come: halfway is the best guess. And it was back a little before its first beat.
fn off_of(gap: &Gap, beat_ns: u64) -> Off {
    let due_ns = gap.back_ns.saturating_sub(gap.late_ns);
    let expected_ns = due_ns.saturating_add(gap.ordinary_late_ns);
    // The beat before a change to a closer look was long ago.
    let halfway_ns = gap.last_beat_ns + expected_ns.saturating_sub(gap.last_beat_ns) / 2;
    let since_ns = halfway_ns.max(expected_ns.saturating_sub(beat_ns)).min(gap.back_ns.saturating_sub(1));
    Off {
        since_ns,
        back_ns: gap.back_ns.saturating_sub(gap.ordinary_late_ns).max(since_ns.saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;
    use crate::proc::{allowed_cpus, tick_ns};
    use reprieve_policy::SECOND_NS;

    #[test]
    fn a_time_off_begins_before_the_beat_that_was_expected_and_ends_before_the_one_that_came() {
        let gap = |last_beat_ns, late_ns, ordinary_late_ns| Gap {
            vcpu: 0,
            last_beat_ns,
            back_ns: 100,
            late_ns,
            ordinary_late_ns,
            verdict: Verdict::Unknown,
        };
        let off_of = |gap| off_of(&gap, 20);
        assert_eq!(off_of(gap(10, 80, 0)), Off { since_ns: 15, back_ns: 100 });
        assert_eq!(off_of(gap(10, 80, 4)), Off { since_ns: 17, back_ns: 96 });
        // Beats were rarer until then.
        assert_eq!(off_of(gap(10, 10, 0)), Off { since_ns: 70, back_ns: 100 });
        // Whatever the clocks say, it ends no sooner than it begins.
        assert_eq!(off_of(gap(90, 5, 50)), Off { since_ns: 99, back_ns: 100 });
    }

    #[test]
    fn this_machine_is_sampled_at_both_paces() {
        let cpus = allowed_cpus().unwrap();
        let mut collector = Collector::begin(&ProcRoot::default(), &cpus, Pace::Close).unwrap();
        let mut sample = Sample::default();
        std::thread::sleep(std::time::Duration::from_millis(100));
        collector.sample(&mut sample);
        assert!(sample.span_ns >= 100_000_000 && sample.beat_ns == 1_000_000);
        assert_eq!(sample.vcpus.iter().map(|vcpu| vcpu.vcpu).collect::<Vec<_>>(), cpus);
        assert!(sample.vcpus.iter().any(|vcpu| vcpu.beats > 2) && sample.memory.is_some());
        collector.set_pace(Pace::Frugal);
        std::thread::sleep(std::time::Duration::from_millis(20));
        collector.sample(&mut sample);
        assert_eq!(sample.beat_ns, Pace::Frugal.beat_ns());
    }

    #[test]
    fn steal_that_is_booked_late_counts_and_a_leap_of_it_does_not() {
        let (proc, cpu) = (FakeProc::new(), allowed_cpus().unwrap()[0]);
        let put = |steal_ns: u64| {
            proc.put("stat", &format!("cpu  0\ncpu{cpu} 0 0 0 0 0 0 0 {} 0 0\n", steal_ns / tick_ns()));
        };
        put(SECOND_NS);
        let mut collector = Collector::begin_in(&proc.root, &[cpu], Pace::Frugal, Tier::T0).unwrap();
        let mut stolen_ns = |steal_ns| {
            put(steal_ns);
            let mut sample = Sample::default();
            collector.sample(&mut sample);
            sample.vcpus[0].steal_ns
        };
        assert_eq!(stolen_ns(51 * SECOND_NS), Some(50 * SECOND_NS));
        assert_eq!(stolen_ns(1_000_000 * SECOND_NS), None);
        assert_eq!(stolen_ns(1_000_001 * SECOND_NS), Some(SECOND_NS));
    }

    /// Usual quotas, at all phases, with beats that are each late by as much as a timer usually is.
    #[test]
    fn rare_beats_do_not_fall_into_step_with_a_quota() {
        const US: u64 = 1_000;
        for period_ns in [10, 20, 25, 50, 100, 200, 250, 500].map(|ms| ms * 1_000 * US) {
            for (on_percent, late_ns) in
                [20, 50, 80].into_iter().flat_map(|on| [0, 60, 500, 1_000, 2_000].map(|late| (on, late * US)))
            {
                let is_off = |at_ns: &u64| at_ns % period_ns >= period_ns / 100 * on_percent;
                for phase_ns in (0..40).map(|part| period_ns / 40 * part) {
                    let beats = (0..).map(|beat| phase_ns + beat * (Pace::Frugal.beat_ns() + late_ns));
                    let met_ns = beats.take_while(|at_ns| at_ns - phase_ns <= 2 * SECOND_NS).find(is_off);
                    assert!(
                        met_ns.is_some(),
                        "{on_percent} % of {period_ns} ns, {late_ns} ns late, from {phase_ns} ns on"
                    );
                }
            }
        }
    }
}
