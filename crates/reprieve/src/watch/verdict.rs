//! The line on top: who slows the VM down, or that nobody does, or what is wrong and not explained yet. A latency never stands
//! there without its cause, or without the word "unknown" and what would settle it.

use reprieve_policy::canary::{self, CLOSE_BEAT_NS};
use reprieve_policy::explain::{ENOUGH_NS, Evidence, Finding, Recent, State, Verdict};
use reprieve_policy::sample::{Sample, Tier};
use reprieve_study::units::SECOND_NS;
use serde_json::Value;

use crate::explain::words;

/// What is wrong is worth a word from this part of the time on, thousandths.
const WORTH_PERMILLE: u64 = 20;
/// A grace period that is long, ns: as the canary sees it.
const LONG_GP_NS: u64 = 100_000_000;
/// Symptoms in the line.
const MOST_SYMPTOMS: usize = 2;

/// What kind of line it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is wrong.
    #[default]
    Quiet,
    /// Something is, and it is being looked at.
    Looking,
    /// Something is, and no rule explains it.
    Unknown,
    /// The cause is known.
    Known,
}

impl Kind {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Quiet => "quiet",
            Kind::Looking => "looking",
            Kind::Unknown => "unknown",
            Kind::Known => "known",
        }
    }
}

/// What is said of a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What kind of line it is.
    pub kind: Kind,
    /// The line.
    pub headline: String,
    /// What it cost, what would settle it and what to do.
    pub detail: String,
    /// The causes, for machines.
    pub findings: Vec<Value>,
}

/// What is said after the newest of these samples.
pub fn told(recent: &Recent) -> Told {
    let newest = recent.last().filter(|sample| canary::is_alarming(sample)).and_then(symptom);
    match recent.state() {
        State::Known(verdict) => known(recent, &verdict),
        State::Looking { for_ns } => looking(recent, for_ns),
        State::Quiet => match newest {
            Some(symptom) => unknown(recent, &symptom),
            None => quiet(recent.last()),
        },
    }
}

/// Nothing is wrong, as far as is known. A vCPU that stays silent may be offline, so it is not called wrong for ever.
fn quiet(newest: Option<&Sample>) -> Told {
    let silent: Vec<usize> = newest.into_iter().flat_map(canary::silent).collect();
    let headline = match silent.is_empty() {
        true => "Nothing slows this VM down.".into(),
        false => format!("Nothing is known of {}: no beat ran there.", words::names(&silent)),
    };
    let detail = match silent.is_empty() {
        true => String::new(),
        false => format!("{} Nothing slows the others down.", words::SILENT),
    };
    Told { headline, detail, ..Told::default() }
}

fn known(recent: &Recent, verdict: &Verdict) -> Told {
    let is_close = |sample: &&Sample| sample.beat_ns <= CLOSE_BEAT_NS;
    let newest: Vec<&Sample> = recent.samples().collect();
    let count = newest.iter().rev().take_while(|sample| is_close(sample)).count();
    let seen = Evidence::of(newest[newest.len() - count..].iter().copied());
    let headline = verdict.findings.first().map_or(String::new(), |first| words::answer(first, &seen));
    Told {
        kind: Kind::Known,
        headline: format!("{headline}."),
        detail: detail(&verdict.findings, seen.span_ns),
        findings: verdict.findings.iter().map(|finding| words::finding_json(finding, &seen)).collect(),
    }
}

fn detail(findings: &[Finding], span_ns: u64) -> String {
    let Some((first, others)) = findings.split_first() else { return String::new() };
    let said = words::said(&first.cause);
    let mut parts = Vec::new();
    if first.lost_permille > 0 {
        let (share, span) = (words::percent(first.lost_permille), words::time(span_ns));
        parts.push(format!("{}: {share} of {span}.", words::lost(&first.cause)));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|other| other.cause.name()).collect();
        parts.push(format!("Also: {}.", names.join(", ")));
    }
    parts.push(format!("What to do: {}.", said.way_out));
    if first.confidence < reprieve_policy::explain::Confidence::Sure {
        parts.push(format!("To settle it: {}.", said.settle));
    }
    parts.join(" ")
}

fn looking(recent: &Recent, for_ns: u64) -> Told {
    // What alarmed, if this second is quiet.
    let alarming = recent.samples().filter_map(symptom).last();
    let symptom = alarming.unwrap_or_else(|| "something is wrong".into());
    Told {
        kind: Kind::Looking,
        headline: format!("Unknown yet; {symptom}."),
        detail: format!(
            "Looking closely: {} of {} s are seen, then a verdict follows.",
            for_ns / SECOND_NS,
            ENOUGH_NS / SECOND_NS
        ),
        findings: Vec::new(),
    }
}

fn unknown(recent: &Recent, symptom: &str) -> Told {
    let tier = recent.last().map_or(Tier::T0, |sample| sample.tier);
    let settle = match tier {
        Tier::T0 => "run `sudo reprieve watch`, or `reprieve explain --for 30s`",
        Tier::T1 | Tier::T2 => {
            "run `reprieve explain --for 30s`, and on the host `sudo reprieve explain --pid PID`"
        }
    };
    Told {
        kind: Kind::Unknown,
        headline: format!("Cause unknown: {symptom}."),
        detail: format!("Too little or too short for a cause to be named. To settle it: {settle}."),
        findings: Vec::new(),
    }
}

/// What is wrong in a sample, in words, the worst first; `None` if nothing is.
pub fn symptom(sample: &Sample) -> Option<String> {
    let silent: Vec<usize> = canary::silent(sample).collect();
    if silent.is_empty() && !canary::is_alarming(sample) {
        return None;
    }
    let permille = |ns: u64| (ns.saturating_mul(1000) / sample.span_ns.max(1)).min(1000);
    let mut found: Vec<(u64, String)> = Vec::new();
    if !silent.is_empty() {
        found.push((1000, format!("no beat ran on {}", words::names(&silent))));
    }
    let most = sample.vcpus.iter().max_by_key(|vcpu| (canary::off_ns(sample, vcpu), usize::MAX - vcpu.vcpu));
    if let Some(most) = most {
        let off = permille(canary::off_ns(sample, most));
        found.push((off, format!("vCPU {} was off for {} of a second", most.vcpu, words::percent(off))));
    }
    let share = |what: &str, ns: Option<u64>| {
        let share = permille(ns.unwrap_or(0));
        (share, format!("{what} for {} of a second", words::percent(share)))
    };
    let of_vcpus = |of: fn(&reprieve_policy::sample::VcpuSample) -> u64| sample.vcpus.iter().map(of).max();
    found.extend([
        share("the host stole", of_vcpus(|vcpu| vcpu.steal_ns.unwrap_or(0))),
        share("the VM's own tasks kept a vCPU busy", of_vcpus(|vcpu| vcpu.kept_ns)),
        share("this cgroup was throttled", sample.throttled_ns),
        // Where no beat runs, one waits for a CPU.
        share("tasks waited for a CPU", sample.cpu_wait_ns.filter(|_| silent.is_empty())),
        share("tasks waited for memory", sample.memory_wait_ns),
        share("RCU's kthread waited", sample.kthread_wait_ns),
    ]);
    let longest_ns =
        sample.grace_periods_ns.iter().copied().max().unwrap_or(0).max(sample.open_grace_period_ns);
    if longest_ns >= LONG_GP_NS {
        found.push((permille(longest_ns), format!("a grace period took {}", words::time(longest_ns))));
    }
    for (what, ns) in [
        ("the clock of the day moved by", sample.stepped_ns.unsigned_abs()),
        ("the machine was suspended for", sample.suspended_ns),
    ] {
        if ns > 0 {
            found.push((permille(ns), format!("{what} {}", words::time(ns))));
        }
    }
    found.sort_by_key(|(share, _)| std::cmp::Reverse(*share));
    // The first one counts in any case: something has alarmed.
    let worth = found.into_iter().enumerate().filter(|(at, (share, _))| *at == 0 || *share >= WORTH_PERMILLE);
    let told: Vec<String> = worth.take(MOST_SYMPTOMS).map(|(_, (_, text))| text).collect();
    Some(told.join(", and "))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MS, SECOND, quiet, quota, recent};
    use super::*;

    #[test]
    fn a_quiet_vm_is_called_so() {
        let told = told(&recent((1..5).map(quiet)));
        assert_eq!((told.kind, told.headline.as_str()), (Kind::Quiet, "Nothing slows this VM down."));
        assert_eq!((told.detail.as_str(), told.findings.len()), ("", 0));
    }

    #[test]
    fn a_quota_is_unknown_first_and_named_after_four_seconds() {
        let so_far = |seconds: u64| {
            told(&recent((1..4).map(quiet).chain((4..4 + seconds).map(|at| quota(at, at > 4)))))
        };
        let first = so_far(1);
        assert_eq!(first.kind, Kind::Looking);
        assert!(first.headline.starts_with("Unknown yet; vCPU 1 was off for "), "{first:?}");
        assert!(first.detail.starts_with("Looking closely: 0 of 4 s are seen"), "{first:?}");
        assert!(so_far(4).detail.starts_with("Looking closely: 3 of 4 s are seen"));
        let known = so_far(5);
        assert_eq!(known.kind, Kind::Known, "{known:?}");
        assert!(
            known.headline.starts_with("The host limits the CPU time of vCPU 1: 20.4 ms of every 100 ms ("),
            "{known:?}"
        );
        assert!(
            known.detail.starts_with("Worst vCPU lost: 79.5 % of 4.00 s. What to do: on the host: "),
            "{known:?}"
        );
        assert_eq!(known.findings[0]["cause"], "quota");
    }

    #[test]
    fn what_no_rule_explains_is_called_unknown_with_what_would_settle_it() {
        let close = |at| {
            let mut sample = Sample { beat_ns: MS, ..quiet(at) };
            sample.vcpus[0].steal_ns = Some(30 * MS);
            sample
        };
        let told = told(&recent((1..9).map(close)));
        assert_eq!(
            (told.kind, told.headline.as_str()),
            (Kind::Unknown, "Cause unknown: the host stole for 3.00 % of a second.")
        );
        assert!(
            told.detail
                .ends_with("To settle it: run `sudo reprieve watch`, or `reprieve explain --for 30s`.")
        );
    }

    #[test]
    fn a_vcpu_without_beats_is_named_and_in_the_end_not_called_wrong() {
        let silent = |at| {
            let mut sample = quiet(at);
            (sample.vcpus[1].beats, sample.cpu_wait_ns) = (0, Some(SECOND));
            sample
        };
        assert_eq!(symptom(&silent(5)).as_deref(), Some("no beat ran on vCPU 1"));
        let first = told(&recent((1..5).map(quiet).chain([silent(5)])));
        assert_eq!(
            (first.kind, first.headline.as_str()),
            (Kind::Looking, "Unknown yet; no beat ran on vCPU 1.")
        );
        let last = told(&recent((1..5).map(quiet).chain((5..30).map(silent))));
        assert_eq!(
            (last.kind, last.headline.as_str()),
            (Kind::Quiet, "Nothing is known of vCPU 1: no beat ran there.")
        );
        assert!(last.detail.ends_with("it went offline. Nothing slows the others down."), "{last:?}");
    }

    #[test]
    fn the_two_worst_symptoms_are_told() {
        assert_eq!(symptom(&quiet(5)), None);
        let bad = Sample {
            open_grace_period_ns: SECOND / 2,
            memory_wait_ns: Some(300 * MS),
            kthread_wait_ns: Some(100 * MS),
            ..quiet(5)
        };
        let told = "a grace period took 500 ms, and tasks waited for memory for 30.0 % of a second";
        assert_eq!(symptom(&bad).as_deref(), Some(told));
        let suspended = Sample { suspended_ns: MS, ..quiet(5) };
        assert!(symptom(&suspended).is_some());
    }
}
