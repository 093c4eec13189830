//! The throughput that a condition costs, by cause, as cells of text for terminal and page alike.

use reprieve_study::scenario::{Cause, Workload};
use reprieve_study::statistics::Estimate;
use reprieve_study::units::significant;
use reprieve_study::{Attribution, Study, Unit};

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Causes {
    /// What is attributed.
    pub title: String,
    /// How much was lost, in a sentence.
    pub loss: String,
    /// A row for each condition that leaves causes out, and the rest.
    pub lines: Vec<Line>,
    /// What is not attributed, and how to read the rest, in sentences; empty when there is none.
    pub remark: String,
}

/// One row; cells without a value are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The causes that were left out.
    pub cause: String,
    /// Throughput of the baseline without them.
    pub baseline: String,
    /// Throughput of the condition without them.
    pub condition: String,
    /// How much is still lost: the difference.
    pub lost: String,
    /// What is gone of the loss, as a share of it.
    pub share: String,
    /// Its 95 % interval: `[10, 15]`.
    pub interval: String,
}

/// Headings of the columns.
pub const HEADER: [&str; 5] =
    ["cause left out", "baseline", "condition", "still lost", "share of loss [95 %]"];

/// The tables of a study.
pub fn of(study: &Study) -> Vec<Causes> {
    study.attributions().iter().map(|attribution| table(attribution, &study.scenario.workload)).collect()
}

fn table(attribution: &Attribution, workload: &Workload) -> Causes {
    let (base, loss) = (attribution.baseline_per_s, attribution.loss_per_s());
    let rate = |per_s: f64| Unit::PerSecond.show(per_s);
    let (from, to) = (rate(base), rate(attribution.condition_per_s));
    let sentence = match loss > 0.0 {
        true => format!("lost {} or {}", rate(loss), percent(loss / base)),
        false => "nothing is lost".into(),
    };
    let mut lines: Vec<Line> = attribution.parts.iter().map(line).collect();
    let remainder = attribution.remainder;
    if let Some(rest) = remainder {
        let cause = if rest.value < 0.0 { "counted more than once" } else { "no cause alone" };
        let (share, interval) = (percent(rest.value), interval(rest));
        lines.push(Line { cause: cause.into(), share, interval, ..Line::default() });
    }
    Causes {
        title: format!("Throughput lost under {}, by cause", attribution.condition),
        loss: format!(
            "Medians: {} {from}, {} {to}: {sentence}.",
            attribution.baseline, attribution.condition
        ),
        lines,
        remark: not_attributed(workload)
            .chain(remainder.and_then(remark).map(String::from))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn not_attributed(workload: &Workload) -> impl Iterator<Item = String> {
    let said = |cause: Cause| {
        let reason = workload.cannot_lose_to(cause)?;
        Some(format!("No share of {} is claimed. {reason}.", cause.label()))
    };
    Cause::ALL.into_iter().filter_map(said)
}

fn line(part: &reprieve_study::attribution::Part) -> Line {
    let causes: Vec<&str> = part.causes.iter().map(|cause| cause.label()).collect();
    let rate =
        |per_s: f64| format!("{}{}", if per_s < 0.0 { "-" } else { "" }, Unit::PerSecond.show(per_s.abs()));
    Line {
        cause: causes.join(" and "),
        baseline: rate(part.baseline_per_s),
        condition: rate(part.condition_per_s),
        lost: rate(part.loss_per_s()),
        share: part.share.map_or_else(String::new, |share| percent(share.value)),
        interval: part.share.map_or_else(String::new, interval),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}

fn interval(share: Estimate) -> String {
    format!("[{}]", [share.low, share.high].map(|end| significant(end * 100.0)).join(", "))
}

/// What the rest means, unless it may be nothing.
fn remark(rest: Estimate) -> Option<&'static str> {
    if rest.low > 0.0 {
        Some("The rest is gone only when several causes are left out together.")
    } else if rest.high < 0.0 {
        Some(
            "The shares are more than the whole: each cause left out alone takes along what others take too, or more \
             comes back than it took.",
        )
    } else {
        None
    }
}
