//! Simulated latencies against those of real Xen: figures by condition, and stalls event by event.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::Unit;
use reprieve_study::latency_conformance::{Figure, LatencyConformance, Nearness, Quantity, Row, StallPair};
use reprieve_study::stalls::{self, StallEvent};
use reprieve_study::units::{duration, significant};

use super::{Options, clean, empty_table, finish, heading, wrapped};
use crate::quantity::Scale;

const HEADER: [&str; 6] = ["condition", "figure", "real Xen", "simulator", "error", "verdict"];
const EVENTS: [&str; 4] = ["event", "note", "real, ms", "simulated, ms"];
const LEGEND: &str = "Percentiles, the longest and the numbers of stalls are of all repetitions together (smallest–largest of \
                      one repetition). Near: a median within 15 %, all else within 30 %. Chance: not so, but repetitions \
                      differ as much among themselves (p of a permutation test).";

/// The figures, and the stalls.
pub fn render(text: &mut String, found: &LatencyConformance, options: &Options) {
    let _ = writeln!(text);
    heading(text, "The simulator against real Xen", options);
    if found.rows.is_empty() {
        return wrapped(text, "", "Nothing to compare: no condition has runs of both.", 0, options);
    }
    figures(text, found, options);
    for pair in &found.stalls {
        let _ = writeln!(text);
        stall(text, pair, options);
    }
}

fn figures(text: &mut String, found: &LatencyConformance, options: &Options) {
    let mut out = empty_table(options);
    out.set_header(HEADER.map(bold));
    let mut above = "";
    for row in &found.rows {
        // The condition is named once.
        let name = if row.condition == above { "" } else { &row.condition };
        above = &row.condition;
        out.add_row(cells(row, name));
    }
    finish(text, out, 2);
    wrapped(text, "", LEGEND, 0, options);
    let (near, all) = found.tally();
    wrapped(text, "", &format!("{near} of {all} figures are near or within chance."), 0, options);
}

fn bold(name: &str) -> Cell {
    Cell::new(name).add_attribute(Attribute::Bold)
}

fn cells(row: &Row, name: &str) -> [String; 6] {
    let unit = if row.quantity.is_count() { Unit::Count } else { Unit::Nanoseconds };
    let error = row.error().map_or_else(|| "-".into(), signed_percent);
    let verdict = match row.nearness {
        Nearness::Near => "near".into(),
        Nearness::Chance(p) => format!("chance (p {})", significant(p)),
        Nearness::Off => "off".into(),
    };
    let name = clean(name).into();
    [name, label(row), show(unit, row.real), show(unit, row.simulated), error, verdict]
}

fn label(row: &Row) -> String {
    match row.quantity {
        Quantity::Median => "p50".into(),
        Quantity::P999 => "p99.9".into(),
        Quantity::Longest => "longest".into(),
        Quantity::Stalls => format!("stalls above 1 ms of {}", numbers(row.counts)),
        Quantity::LongStalls => "above 5 ms".into(),
    }
}

/// One number if both grounds have the same.
fn numbers((real, simulated): (u64, u64)) -> String {
    if real == simulated { real.to_string() } else { format!("{real} and {simulated}") }
}

fn show(unit: Unit, figure: Figure) -> String {
    let scale = Scale::of(unit, figure.value);
    let (low, high) = figure.range;
    format!("{} ({}–{})", scale.show(figure.value), scale.number(low), scale.number(high))
}

fn signed_percent(error: f64) -> String {
    let sign = if error < 0.0 { "-" } else { "+" };
    format!("{sign}{} %", significant(error.abs() * 100.0))
}

fn stall(text: &mut String, pair: &StallPair, options: &Options) {
    let [real, simulated] = [&pair.real, &pair.simulated].map(|stall| duration(stall.length_ns as f64));
    let why = if pair.simulated.why.is_empty() { "" } else { ": " };
    let title = format!(
        "{}: a stall of {real} in real Xen, one of {simulated} simulated{why}{}",
        pair.condition, pair.simulated.why
    );
    heading(text, &title, options);
    let mut out = empty_table(options);
    out.set_header(EVENTS.map(bold));
    let (mut common, real_events) = (0, pair.real.events.len());
    for line in stalls::beside(&pair.real, &pair.simulated) {
        let events = [line.first, line.second];
        let of = |part: fn(&StallEvent) -> &str| {
            let mut said: Vec<&str> = events.iter().flatten().map(|event| part(event)).collect();
            said.dedup();
            said.retain(|text| !text.is_empty());
            clean(&said.join("; ")).into_owned()
        };
        common += usize::from(line.first.is_some() && line.second.is_some());
        let [real, simulated] = events.map(|event| event.map_or_else(|| "-".into(), at));
        out.add_row([of(|event| &event.what), of(|event| &event.note), real, simulated]);
    }
    finish(text, out, 2);
    let legend = format!(
        "Times are from when the task wanted to run; in brackets, what the simulator alone knows. {common} of {real_events} \
         real events have a simulated counterpart."
    );
    wrapped(text, "", &legend, 0, options);
}

/// In ms, to the us.
fn at(event: &StallEvent) -> String {
    format!("{:.3}", event.t_ns as f64 / 1e6)
}
