//! A second of a VM as the screen shows it: the figures of a sample, of bounded size.

use reprieve_policy::canary::{self, CLOSE_BEAT_NS};
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Sample, Tier, VcpuSample};

use super::verdict::{Told, symptom};

/// Parts of a second in which a vCPU's time off is shown when that vCPU is chosen.
pub const PARTS: usize = 40;
/// The longest times off that are listed.
const MOST_LISTED: usize = 8;
/// Time is missing between two samples if more than this is, ns.
const MISSING_NS: u64 = 1_500_000_000;

/// A vCPU in a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VcpuMoment {
    /// Its number.
    pub vcpu: usize,
    /// Whether no beat ran there, so that nothing is known of its time off.
    pub is_silent: bool,
    /// Time off, thousandths.
    pub off_permille: u64,
    /// Time off, ns; at a frugal pace an estimate.
    pub off_ns: u64,
    /// Times off that were seen.
    pub offs: u64,
    /// The longest, ns.
    pub longest_ns: u64,
    /// For how long the VM's own tasks kept the beats waiting, ns.
    pub kept_ns: u64,
    /// Idle, ns.
    pub idle_ns: Option<u64>,
    /// Steal, ns.
    pub steal_ns: Option<u64>,
    /// For how long its tasks could run and did not, ns.
    pub run_delay_ns: Option<u64>,
    /// When it was off; nothing if it never was.
    pub fine: Option<Box<Fine>>,
}

/// When a vCPU was off within a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fine {
    /// Time off in each part of the second, thousandths.
    pub parts: Vec<u16>,
    /// The longest times off, in order of time: since when after the second's beginning, and for how long, ns.
    pub longest: Vec<(u64, u64)>,
}

/// A second of a VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Its end by CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Its end by the clock of the day, ns since 1970.
    pub day_ns: u64,
    /// Its length, ns.
    pub span_ns: u64,
    /// Time between two beats, ns.
    pub beat_ns: u64,
    /// The tier.
    pub tier: Tier,
    /// Whether time before it is missing, as between two runs of a recorder.
    pub is_after_gap: bool,
    /// Its vCPUs, ascending.
    pub vcpus: Vec<VcpuMoment>,
    /// Steal, thousandths of the time of all vCPUs.
    pub steal_permille: Option<u64>,
    /// The longest wait for a grace period, ns, with the time so far of an open one.
    pub grace_ns: Option<u64>,
    /// For how long tasks could run and did not, ns, of all vCPUs.
    pub run_delay_ns: Option<u64>,
    /// Slabs that cannot be reclaimed, bytes.
    pub slab_bytes: Option<u64>,
    /// Time in which some task waited for memory, thousandths.
    pub memory_permille: Option<u64>,
    /// Objects that were queued to be freed, from tier T2 on.
    pub queued: Option<u64>,
    /// What is wrong in it, in words.
    pub symptom: Option<String>,
    /// What is said of it, once that has been judged.
    pub told: Option<Told>,
}

impl Moment {
    /// The second of a sample; `before` is the one before.
    pub fn of(sample: &Sample, before: Option<&Moment>) -> Moment {
        let permille = |ns: u64| (ns.saturating_mul(1000) / sample.span_ns.max(1)).min(1000);
        let begin_ns = sample.at_ns.saturating_sub(sample.span_ns);
        let is_after_gap = before.is_some_and(|before| {
            sample.at_ns <= before.at_ns || begin_ns.saturating_sub(before.at_ns) > MISSING_NS
        });
        let vcpus = sample.vcpus.len().max(1) as u64;
        let longest = sample.grace_periods_ns.iter().copied().max();
        let open = Some(sample.open_grace_period_ns).filter(|ns| *ns > 0);
        let queued = |deferred: &reprieve_policy::sample::Deferred| {
            deferred.queued.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
        };
        Moment {
            at_ns: sample.at_ns,
            day_ns: sample.day_ns,
            span_ns: sample.span_ns,
            beat_ns: sample.beat_ns,
            tier: sample.tier,
            is_after_gap,
            vcpus: sample.vcpus.iter().map(|vcpu| VcpuMoment::of(sample, vcpu)).collect(),
            steal_permille: sum(sample, |vcpu| vcpu.steal_ns).map(|ns| permille(ns / vcpus)),
            grace_ns: longest.max(open),
            run_delay_ns: sum(sample, |vcpu| vcpu.run_delay_ns),
            slab_bytes: sample.memory.map(|memory| memory.unreclaimable_bytes),
            memory_permille: sample.memory_wait_ns.map(permille),
            queued: sample.deferred.as_ref().map(queued),
            symptom: symptom(sample),
            told: None,
        }
    }

    /// A vCPU of this number.
    pub fn vcpu(&self, number: usize) -> Option<&VcpuMoment> {
        self.vcpus.iter().find(|vcpu| vcpu.vcpu == number)
    }

    /// Whether it shows single times off.
    pub fn is_close(&self) -> bool {
        self.beat_ns <= CLOSE_BEAT_NS
    }
}

fn sum(sample: &Sample, of: impl Fn(&VcpuSample) -> Option<u64>) -> Option<u64> {
    let known = sample.vcpus.iter().filter_map(of);
    known.fold(None, |sum: Option<u64>, ns| Some(sum.unwrap_or(0).saturating_add(ns)))
}

impl VcpuMoment {
    fn of(sample: &Sample, vcpu: &VcpuSample) -> VcpuMoment {
        let off_ns = canary::off_ns(sample, vcpu);
        VcpuMoment {
            vcpu: vcpu.vcpu,
            is_silent: canary::silent(sample).any(|silent| silent == vcpu.vcpu),
            off_permille: (off_ns.saturating_mul(1000) / sample.span_ns.max(1)).min(1000),
            off_ns,
            offs: (vcpu.offs.len() as u64).saturating_add(vcpu.lost),
            longest_ns: vcpu.offs.iter().map(Off::length_ns).max().unwrap_or(0),
            kept_ns: vcpu.kept_ns,
            idle_ns: vcpu.idle_ns,
            steal_ns: vcpu.steal_ns,
            run_delay_ns: vcpu.run_delay_ns,
            fine: (!vcpu.offs.is_empty()).then(|| Box::new(Fine::of(sample, &vcpu.offs))),
        }
    }
}

impl Fine {
    fn of(sample: &Sample, offs: &[Off]) -> Fine {
        let begin_ns = sample.at_ns.saturating_sub(sample.span_ns);
        let part_ns = (sample.span_ns / PARTS as u64).max(1);
        let part = |at: usize| {
            let from_ns = begin_ns.saturating_add(part_ns * at as u64);
            let to_ns = from_ns.saturating_add(part_ns);
            let within = |off: &Off| off.back_ns.min(to_ns).saturating_sub(off.since_ns.max(from_ns));
            let off_ns = offs.iter().map(within).fold(0, u64::saturating_add);
            (off_ns.saturating_mul(1000) / part_ns).min(1000) as u16
        };
        let mut longest: Vec<&Off> = offs.iter().collect();
        longest.sort_by_key(|off| std::cmp::Reverse(off.length_ns()));
        longest.truncate(MOST_LISTED);
        longest.sort_by_key(|off| off.since_ns);
        let listed = longest.into_iter().map(|off| (off.since_ns.saturating_sub(begin_ns), off.length_ns()));
        Fine { parts: (0..PARTS).map(part).collect(), longest: listed.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MS, SECOND, quiet};
    use super::*;

    #[test]
    fn a_sample_becomes_figures() {
        let mut sample = quiet(10);
        sample.beat_ns = MS;
        let off = |since, back| Off { since_ns: 9 * SECOND + since * MS, back_ns: 9 * SECOND + back * MS };
        sample.vcpus[1].offs = vec![off(100, 125), off(500, 975)];
        sample.vcpus[1].steal_ns = Some(400 * MS);
        sample.vcpus[1].run_delay_ns = Some(7);
        (sample.grace_periods_ns, sample.open_grace_period_ns) = (vec![30 * MS, 20 * MS], 40 * MS);
        let moment = Moment::of(&sample, None);
        let vcpu = moment.vcpu(1).unwrap();
        assert_eq!(
            (vcpu.off_permille, vcpu.off_ns, vcpu.offs, vcpu.longest_ns),
            (500, 500 * MS, 2, 475 * MS)
        );
        let fine = vcpu.fine.as_ref().unwrap();
        let lit: Vec<usize> = (0..PARTS).filter(|part| fine.parts[*part] == 1000).collect();
        assert_eq!(lit, [vec![4], (20..39).collect()].concat());
        assert_eq!(fine.longest, [(100 * MS, 25 * MS), (500 * MS, 475 * MS)]);
        assert_eq!(
            (moment.steal_permille, moment.grace_ns, moment.run_delay_ns),
            (Some(200), Some(40 * MS), Some(7))
        );
        assert_eq!(moment.vcpu(0).unwrap().fine, None);
    }

    #[test]
    fn what_is_listed_is_bounded() {
        let mut sample = quiet(10);
        let off = |at: u64| Off { since_ns: 9 * SECOND + at * MS, back_ns: 9 * SECOND + at * MS + at };
        sample.vcpus[0].offs = (0..1000).map(off).collect();
        let fine = Moment::of(&sample, None).vcpus[0].fine.clone().unwrap();
        assert_eq!((fine.parts.len(), fine.longest.len()), (PARTS, MOST_LISTED));
        assert_eq!(fine.longest[0], (992 * MS, 992));
    }

    #[test]
    fn missing_time_is_marked() {
        let first = Moment::of(&quiet(10), None);
        assert!(!Moment::of(&quiet(11), Some(&first)).is_after_gap);
        assert!(Moment::of(&quiet(13), Some(&first)).is_after_gap);
        assert!(Moment::of(&quiet(3), Some(&first)).is_after_gap, "another boot");
    }
}
