//! The simulator against real guests: whether it gets effects right.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, Color, ColumnConstraint};
use reprieve_study::conformance::{Conformance, Effect, METRICS, Ratio, Sign};
use reprieve_study::metric;
use reprieve_study::off_times::OffRow;
use reprieve_study::units::{duration, significant};

use super::{LEAST_LABEL, Options, clean, empty_table, finish_with, heading, wrapped};

/// Every effect on these is shown. Of the others a tally is, and the effects whose direction is wrong.
const SHOWN: [&str; 4] = [metric::GP_MEAN, metric::GP_P99, metric::BACKLOG_PEAK, metric::FOOTPRINT_PEAK];
/// Most wrong directions that the headline names.
const NAMED: usize = 3;

/// What it came to, a tally for each metric, and the effects.
pub fn render(text: &mut String, conformance: &Conformance, options: &Options) {
    let _ = writeln!(text);
    heading(text, "The simulator against real guests", options);
    if conformance.levels.is_empty() && conformance.effects.is_empty() {
        return wrapped(text, "", "Nothing to compare: no condition has runs of both.", 0, options);
    }
    for sentence in headline(conformance) {
        wrapped(text, "", &sentence, 0, options);
    }
    let _ = writeln!(text);
    tallies(text, conformance, options);
    if !conformance.effects.is_empty() {
        let _ = writeln!(text);
        effects(text, conformance, options);
    }
}

/// What it came to, in sentences.
pub fn headline(conformance: &Conformance) -> Vec<String> {
    let mut sentences = Vec::new();
    let all = conformance.tally(None);
    let wrong: Vec<&Effect> = conformance.wrong().collect();
    match (all.effects, all.clear, wrong.len()) {
        (0, ..) => sentences.push("No effect to compare: only the baseline has runs of both.".into()),
        (_, 0, _) if conformance.has_enough_runs() => sentences.push("No effect is clear on both sides.".into()),
        (count, 0, _) => sentences.push(format!(
            "With so few runs no effect is clear on both sides; by their intervals alone, {} of {count} point the WRONG way. \
             Run both with more repetitions: --repeat 10.",
            all.few_runs_apart
        )),
        (_, clear, 0) => sentences
            .push(format!("The simulator has the direction of all {clear} effects right that are clear on both sides.")),
        (_, clear, count) => {
            let named: Vec<String> = wrong.iter().take(NAMED).map(|effect| named(effect)).collect();
            let more = if count > NAMED { format!("; and {} more", count - NAMED) } else { String::new() };
            sentences.push(format!(
                "The simulator has the direction of {count} of {clear} effects WRONG that are clear on both sides: {}{more}.",
                named.join("; ")
            ));
        }
    }
    if all.real_alone + all.simulated_alone > 0 {
        sentences.push(format!(
            "{} further effects are clear with real guests alone, {} of which point the other way in the simulator; {} are clear in \
             the simulator alone.",
            all.real_alone, all.real_alone_apart, all.simulated_alone
        ));
    }
    if let Some(error) = all.median_error {
        let without = all.effects - all.errors;
        let left_out =
            if without > 0 { format!(" ({without} without a ratio are left out)") } else { String::new() };
        sentences.push(format!(
            "Half of {} effects are within a factor of {} of the real ones{left_out}.",
            all.errors,
            significant(1.0 + error)
        ));
    }
    if let Some(error) = conformance.baseline_error() {
        sentences.push(format!(
            "Its baseline is within a factor of {} for half of the metrics.",
            significant(1.0 + error)
        ));
    }
    sentences
}

fn named(effect: &Effect) -> String {
    let value = |ratio: Ratio| significant(ratio.estimate.value);
    let (real, simulated) = (value(effect.real), value(effect.simulated));
    format!("{} under {} is x{simulated} for x{real}", label(effect.metric), clean(&effect.condition))
}

/// A line for each metric: the baseline on both sides, and how effects came out.
fn tallies(text: &mut String, conformance: &Conformance, options: &Options) {
    let mut out = empty_table(options);
    let header =
        ["metric", "baseline: real", "simulated", "error", "effects", "clear", "wrong way", "median error"];
    out.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for id in METRICS {
        let Some(level) = conformance.levels.iter().find(|level| level.metric == id) else { continue };
        let tally = conformance.tally(Some(id));
        let wrong = Cell::new(tally.wrong);
        out.add_row([
            Cell::new(label(id)),
            Cell::new(show(id, level.real)),
            Cell::new(show(id, level.simulated)),
            Cell::new(factor(level.error())),
            Cell::new(tally.effects),
            Cell::new(tally.clear),
            if tally.wrong > 0 && options.colour { wrong.fg(Color::Red) } else { wrong },
            Cell::new(
                tally
                    .median_error
                    .map_or_else(|| "-".into(), |error| format!("x{}", significant(1.0 + error))),
            ),
        ]);
    }
    finish_with(text, out, 1, ColumnConstraint::LowerBoundary(LEAST_LABEL));
    wrapped(
        text,
        "",
        "Medians over repetitions. An effect is a condition's ratio to the baseline; it is clear if its 95 % interval is \
         more than 2 % from 1 and a permutation test of so many runs could give p < 0.05. Errors are simulated over real; the median \
         error is the factor by which the two differ, whichever is larger.",
        0,
        options,
    );
}

/// A line for each effect that is shown.
fn effects(text: &mut String, conformance: &Conformance, options: &Options) {
    let mut out = empty_table(options);
    let header = ["condition", "metric", "real guests", "simulator", "error", "direction"];
    out.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    let is_wrong = |effect: &Effect| matches!(effect.sign(), Sign::Wrong | Sign::FewRunsApart);
    let is_shown = |effect: &&Effect| SHOWN.contains(&effect.metric) || is_wrong(effect);
    let mut above = "";
    for effect in conformance.effects.iter().filter(is_shown) {
        // The condition is named once.
        let name = if effect.condition == above { "" } else { &effect.condition };
        above = &effect.condition;
        let sign = Cell::new(direction(effect.sign()));
        out.add_row([
            Cell::new(clean(name)),
            Cell::new(label(effect.metric)),
            Cell::new(ratio(effect.real)),
            Cell::new(ratio(effect.simulated)),
            Cell::new(factor(effect.error())),
            if is_wrong(effect) && options.colour { sign.fg(Color::Red) } else { sign },
        ]);
    }
    finish_with(text, out, 2, ColumnConstraint::LowerBoundary(LEAST_LABEL));
    let text_below =
        "Ratios to the baseline with 95 % bootstrap intervals; of other metrics only wrong directions.";
    wrapped(text, "", text_below, 0, options);
}

/// A line for each condition: how often vCPUs are off, and for how long.
pub fn off_times(text: &mut String, rows: &[OffRow], options: &Options) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text);
    heading(text, "The layer below: times during which vCPUs are off", options);
    let mut out = empty_table(options);
    let header = ["condition", "", "per second", "of the time", "median", "p99", "longest"];
    out.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for row in rows {
        for (name, side, of) in [(&*row.condition, "real", row.real), ("", "simulated", row.simulated)] {
            let time = |ns: u64| duration(ns as f64);
            out.add_row([
                clean(name).into(),
                side.into(),
                significant(of.per_s),
                format!("{} %", significant(of.share * 100.0)),
                time(of.p50_ns),
                time(of.p99_ns),
                time(of.longest_ns),
            ]);
        }
    }
    finish_with(text, out, 2, ColumnConstraint::LowerBoundary(LEAST_LABEL));
    wrapped(text, "", "Preempted or throttled, of each vCPU; all runs of a condition together.", 0, options);
}

fn direction(sign: Sign) -> &'static str {
    match sign {
        Sign::Same => "same",
        Sign::Wrong => "WRONG",
        Sign::RealAlone => "clear in real alone",
        Sign::SimulatedAlone => "clear in sim alone",
        Sign::FewRunsApart => "WRONG? few runs",
        Sign::Neither => "not clear",
    }
}

/// `x0.61 [0.55, 0.70]`.
fn ratio(ratio: Ratio) -> String {
    let of = ratio.estimate;
    format!("x{} [{}, {}]", significant(of.value), significant(of.low), significant(of.high))
}

/// Of the logarithm of a factor.
fn factor(log: Option<f64>) -> String {
    log.map_or_else(|| "-".into(), |log| format!("x{}", significant(log.exp())))
}

fn show(id: &str, value: f64) -> String {
    metric::find(id).map_or_else(String::new, |metric| metric.unit.show(value))
}

fn label(id: &'static str) -> &'static str {
    metric::find(id).map_or(id, |metric| metric.label)
}
