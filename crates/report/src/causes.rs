//! The throughput that a condition costs, by cause, as cells of text for terminal and page alike.

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
    /// How to read the rest, in a sentence; empty when there is none.
    pub remark: String,
}

/// One row; cells without a value are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The causes that were left out.
    pub cause: String,
    /// Throughput without them.
    pub throughput: String,
    /// How much more that is than with them.
    pub regained: String,
    /// The same as a share of the loss.
    pub share: String,
    /// Its 95 % interval: `[10, 15]`.
    pub interval: String,
}

/// Headings of the columns.
pub const HEADER: [&str; 4] = ["cause left out", "throughput", "regained", "share of the loss [95 %]"];

/// The tables of a study.
pub fn of(study: &Study) -> Vec<Causes> {
    study.attributions().iter().map(table).collect()
}

fn table(attribution: &Attribution) -> Causes {
    let (base, loss) = (attribution.baseline_per_s, attribution.loss_per_s());
    let rate = |per_s: f64| Unit::PerSecond.show(per_s);
    let (from, to) = (rate(base), rate(attribution.condition_per_s));
    let sentence = match loss > 0.0 {
        true => format!("lost {} or {}", rate(loss), percent(loss / base)),
        false => "nothing is lost".into(),
    };
    let mut lines: Vec<Line> = attribution.parts.iter().map(|part| line(attribution, part)).collect();
    let remainder = attribution.remainder();
    if let Some(rest) = remainder {
        let cause = if rest < 0.0 { "counted more than once" } else { "no cause alone" };
        lines.push(Line { cause: cause.into(), share: percent(rest), ..Line::default() });
    }
    Causes {
        title: format!("Throughput lost under {}, by cause", attribution.condition),
        loss: format!(
            "Medians: {} {from}, {} {to}: {sentence}.",
            attribution.baseline, attribution.condition
        ),
        lines,
        remark: remainder.map_or("", remark).into(),
    }
}

fn line(attribution: &Attribution, part: &reprieve_study::attribution::Part) -> Line {
    let causes: Vec<&str> = part.causes.iter().map(|cause| cause.label()).collect();
    let gained = part.per_s - attribution.condition_per_s;
    let interval = |ends: [f64; 2]| format!("[{}]", ends.map(|end| significant(end * 100.0)).join(", "));
    Line {
        cause: causes.join(" and "),
        throughput: Unit::PerSecond.show(part.per_s),
        regained: format!("{}{}", if gained < 0.0 { "-" } else { "" }, Unit::PerSecond.show(gained.abs())),
        share: part.share.map_or_else(String::new, |share| percent(share.value)),
        interval: part.share.map_or_else(String::new, |share| interval([share.low, share.high])),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}

fn remark(rest: f64) -> &'static str {
    match rest < 0.0 {
        true => {
            "The shares are more than the whole: causes overlap, and each alone would take part of what others take."
        }
        false => "The rest comes back only when several causes are left out together.",
    }
}
