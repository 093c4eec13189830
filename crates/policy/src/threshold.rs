//! Conditions on a VM's last seconds, as a user writes them: `gp_p99>50ms`, `steal>=10%`, `verdict=quota`.
//!
//! A condition is `METRIC OP VALUE`. [`METRICS`] lists the metrics. Each is taken over all samples that are handed in; what no
//! sample tells crosses nothing.

use std::fmt;
use std::str::FromStr;

use crate::canary;
use crate::explain::{Cause, State};
use crate::sample::{Memory, Sample};

/// The metrics, and what they are.
pub const METRICS: [(&str, &str); 13] = [
    ("gp_p99", "99th percentile of waits for grace periods (ms)"),
    ("gp_max", "the longest wait for a grace period, also one that is open (ms)"),
    ("off", "time off of the vCPU that is off most (%)"),
    ("steal", "steal, over all vCPUs (%)"),
    ("cpu_wait", "time in which some task waited for a CPU (%)"),
    ("memory_wait", "the same for memory (%)"),
    ("io_wait", "the same for I/O (%)"),
    ("kthread_wait", "time in which RCU's kthread waited for a CPU (%)"),
    ("throttled", "throttling of the own cgroup (%)"),
    ("step", "the largest step of the clock of the day, either way (ms)"),
    ("slab", "memory in slabs (MiB)"),
    ("available", "memory that can be had without swapping (MiB)"),
    ("verdict", "a cause that is known: quota, contention, pause and so on"),
];

/// The longest condition, bytes.
const MOST_BYTES: usize = 64;
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const SIZES: [(&str, f64); 4] =
    [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0)];
const SHARES: [(&str, f64); 1] = [("%", 1.0)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Above,
    AtLeast,
    Below,
    AtMost,
    Is,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// A time, ns.
    Time(f64),
    /// A part of the time, per cent.
    Percent(f64),
    /// Memory, bytes.
    Bytes(f64),
    /// A cause.
    Cause(&'static str),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    metric: &'static str,
    op: Op,
    value: Measured,
    text: String,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadThreshold(String);

impl fmt::Display for BadThreshold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for BadThreshold {}

impl FromStr for Threshold {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Threshold, BadThreshold> {
        let bad = |problem: String| Err(BadThreshold(problem));
        let shape = "write METRIC, one of > >= < <= =, and a value, as in gp_p99>50ms";
        if text.len() > MOST_BYTES {
            return bad(format!("more than {MOST_BYTES} letters; {shape}"));
        }
        let Some(at) = text.find(['<', '>', '=']) else { return bad(shape.into()) };
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let Some((metric, _)) = METRICS.iter().find(|(metric, _)| *metric == name) else {
            let names: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
            return bad(format!("{name:?} is no metric; there are {}", names.join(", ")));
        };
        let ops = [
            (">=", Op::AtLeast),
            ("<=", Op::AtMost),
            ("==", Op::Is),
            (">", Op::Above),
            ("<", Op::Below),
            ("=", Op::Is),
        ];
        let found = ops.iter().find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?.trim())));
        let Some((op, value)) = found else { return bad(shape.into()) };
        if (op == Op::Is) != (*metric == "verdict") {
            return bad(format!(
                "{metric} needs {}",
                if *metric == "verdict" { "=" } else { "one of > >= < <=" }
            ));
        }
        let value = value_of(metric, value)?;
        Ok(Threshold { metric, op, value, text: text.into() })
    }
}

/// A value with its unit.
fn value_of(metric: &str, text: &str) -> Result<Measured, BadThreshold> {
    if metric == "verdict" {
        let cause = Cause::NAMES.into_iter().find(|cause| *cause == text);
        let way_out = || BadThreshold(format!("{text:?} is no cause; there are {}", Cause::NAMES.join(", ")));
        return cause.map(Measured::Cause).ok_or_else(way_out);
    }
    let units = units(metric);
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == '%');
    let unit = &text[number.len()..];
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    match (number, factor) {
        (Some(number), Some(factor)) => Ok(measured(metric, number * factor)),
        _ => {
            Err(BadThreshold(format!("{text:?}: {metric} needs a number and a unit of {}", names.join(", "))))
        }
    }
}

/// The units that a metric's value may have, and their factors.
fn units(metric: &str) -> &'static [(&'static str, f64)] {
    match metric {
        "gp_p99" | "gp_max" | "step" => &TIMES,
        "slab" | "available" => &SIZES,
        _ => &SHARES,
    }
}

/// A number of a metric, in the smallest of its units.
fn measured(metric: &str, number: f64) -> Measured {
    match metric {
        "gp_p99" | "gp_max" | "step" => Measured::Time(number),
        "slab" | "available" => Measured::Bytes(number),
        _ => Measured::Percent(number),
    }
}

impl Threshold {
    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The metric's name.
    pub fn metric(&self) -> &'static str {
        self.metric
    }

    /// What was measured, if it crosses the threshold. Needs room for the durations of grace periods: `scratch`.
    pub fn crossed<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample> + Clone,
        state: &State,
        scratch: &mut Vec<u64>,
    ) -> Option<Measured> {
        let measured = measure(self, samples, state, scratch)?;
        let is_crossed = match (self.value, measured) {
            (Measured::Cause(wanted), Measured::Cause(found)) => wanted == found,
            (Measured::Time(limit), Measured::Time(value))
            | (Measured::Percent(limit), Measured::Percent(value))
            | (Measured::Bytes(limit), Measured::Bytes(value)) => self.op.holds(value, limit),
            _ => false,
        };
        is_crossed.then_some(measured)
    }
}

impl Op {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Op::Above => value > limit,
            Op::AtLeast => value >= limit,
            Op::Below => value < limit,
            Op::AtMost => value <= limit,
            Op::Is => value == limit,
        }
    }
}

fn measure<'a>(
    threshold: &Threshold,
    samples: impl Iterator<Item = &'a Sample> + Clone,
    state: &State,
    scratch: &mut Vec<u64>,
) -> Option<Measured> {
    let newest: Option<&Memory> = samples.clone().filter_map(|sample| sample.memory.as_ref()).last();
    let part = |of: fn(&Sample) -> Option<u64>| percent(samples.clone(), of).map(Measured::Percent);
    match threshold.metric {
        "gp_p99" => grace_period(samples, scratch, 99).map(Measured::Time),
        "gp_max" => grace_period(samples, scratch, 100).map(Measured::Time),
        "off" => part(off_ns),
        "steal" => part(steal_ns),
        "cpu_wait" => part(|sample| sample.cpu_wait_ns),
        "memory_wait" => part(|sample| sample.memory_wait_ns),
        "io_wait" => part(|sample| sample.io_wait_ns),
        "kthread_wait" => part(|sample| sample.kthread_wait_ns),
        "throttled" => part(|sample| sample.throttled_ns),
        "step" => {
            samples.map(|sample| sample.stepped_ns.unsigned_abs()).max().map(|ns| Measured::Time(ns as f64))
        }
        "slab" => newest.map(|memory| Measured::Bytes(memory.slab_bytes as f64)),
        "available" => newest.map(|memory| Measured::Bytes(memory.available_bytes as f64)),
        _ => {
            let State::Known(verdict) = state else { return None };
            let mut causes = verdict.findings.iter().map(|finding| Measured::Cause(finding.cause.name()));
            causes.find(|cause| *cause == threshold.value)
        }
    }
}

/// The part of the time, per cent, over the samples that tell.
fn percent<'a>(samples: impl Iterator<Item = &'a Sample>, of: fn(&Sample) -> Option<u64>) -> Option<f64> {
    let told = samples.filter_map(|sample| Some((of(sample)?, sample.span_ns)));
    let (ns, span_ns) =
        told.fold((0.0, 0.0), |(ns, span_ns), told| (ns + told.0 as f64, span_ns + told.1 as f64));
    (span_ns > 0.0).then(|| 100.0 * ns / span_ns)
}

/// Time off of the vCPU that is off most, ns.
fn off_ns(sample: &Sample) -> Option<u64> {
    sample.vcpus.iter().map(|vcpu| canary::off_ns(sample, vcpu)).max()
}

/// The mean steal of vCPUs, ns.
fn steal_ns(sample: &Sample) -> Option<u64> {
    let told = sample.vcpus.iter().filter_map(|vcpu| vcpu.steal_ns);
    let (sum_ns, vcpus) = told.fold((0u64, 0), |(sum_ns, vcpus), ns| (sum_ns.saturating_add(ns), vcpus + 1));
    sum_ns.checked_div(vcpus)
}

/// A percentile of the durations of grace periods by nearest rank, ns. One that is open counts with its time so far.
fn grace_period<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    scratch: &mut Vec<u64>,
    percent: usize,
) -> Option<f64> {
    scratch.clear();
    let mut open_ns = 0;
    for sample in samples {
        scratch.extend_from_slice(&sample.grace_periods_ns);
        open_ns = sample.open_grace_period_ns;
    }
    scratch.extend(Some(open_ns).filter(|ns| *ns > 0));
    scratch.sort_unstable();
    let rank = (scratch.len() * percent).div_ceil(100);
    scratch.get(rank.checked_sub(1)?).map(|ns| *ns as f64)
}

#[cfg(test)]
mod tests;
