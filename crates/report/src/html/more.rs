//! The other tables of a study: all conditions side by side; throughput lost, by cause; sweeps; last holdouts.

use maud::{Markup, html};
use reprieve_study::Study;
use reprieve_study::units::significant;

use super::{comparison_table, spread};
use crate::quantity::Spread;
use crate::side_by_side::SideBySide;
use crate::{causes, grids, holdouts, replays, sweeps};

/// Throughput lost under each condition, by cause, and the conditions behind it in full.
pub fn causes(study: &Study) -> Markup {
    let parts: Vec<_> =
        study.comparisons.iter().filter(|comparison| study.is_part(&comparison.condition)).collect();
    html! {
        @for causes in causes::of(study) {
            h3 { (causes.title) }
            p { (causes.loss) }
            div class="scroll" {
                table {
                    tr {
                        th { (causes::HEADER[0]) }
                        @for name in &causes::HEADER[1..] { th class="number" { (name) } }
                    }
                    @for line in &causes.lines {
                        tr {
                            td { (line.cause) }
                            td class="number" { (line.baseline) }
                            td class="number" { (line.condition) }
                            td class="number" { (line.lost) }
                            td class="number" { (line.share) " " small { (line.interval) } }
                        }
                    }
                }
            }
            @if !causes.remark.is_empty() { p { small { (causes.remark) } } }
        }
        @if !parts.is_empty() {
            details {
                summary { "The conditions with causes left out, in full" }
                @for comparison in parts { (comparison_table(comparison)) }
            }
        }
    }
}

/// A table for each metric of a study with cases, and one of published ratios.
pub fn grids(study: &Study) -> Markup {
    let pairs = grids::pairs(study);
    html! {
        @for shown in grids::of(study) {
            h3 title=(shown.metric.definition) { (shown.metric.label) }
            div class="scroll" {
                table {
                    tr {
                        th { "Case" }
                        @for name in &shown.conditions { th class="number" { (name) } }
                    }
                    @for (case, cells) in &shown.rows {
                        tr {
                            td { (case) }
                            @for cell in cells { td class="number" { (above(cell)) } }
                        }
                    }
                }
            }
        }
        @if !pairs.is_empty() {
            h3 { "Published ratios" }
            div class="scroll" {
                table {
                    tr { @for name in grids::PAIR_HEADER { th { (name) } } }
                    @for line in &pairs { tr { @for cell in line { td { (cell) } } } }
                }
            }
        }
    }
}

/// The table of all conditions; each group of columns below the other, so that none is out of sight.
pub fn side_by_side(side: &SideBySide) -> Markup {
    html! {
        h3 { (side.title) }
        @for group in &side.groups {
            h4 { (group.name) }
            div class="scroll" {
                table {
                    tr {
                        th { "Condition" }
                        @for column in &group.columns { th class="number" title=(column.definition) { (column.name) } }
                    }
                    @for (index, row) in side.rows.iter().enumerate() {
                        tr {
                            td { (row) }
                            @for column in &group.columns { td class="number" { (above(&column.cells[index])) } }
                        }
                    }
                }
            }
        }
        @for remark in &side.remarks { p { small { (remark) } } }
    }
}

/// A median above its range.
fn above(spread: &Option<Spread>) -> Markup {
    match spread {
        None => html! { "–" },
        Some(spread) => html! { (spread.median) br; small { (spread.range) } },
    }
}

/// Replayed recordings against what the recorded runs showed.
pub fn replays(study: &Study) -> Markup {
    html! {
        @if let Some(found) = replays::of(study) {
            h3 { (replays::TITLE) }
            p { (found.finding) }
            @for (condition, source) in &found.sources { p { small { b { (condition) } ": " (source) } } }
            div class="scroll" {
                table {
                    tr { @for name in replays::HEADER { th { (name) } } }
                    @for row in &found.rows { tr { @for cell in row { td { (cell) } } } }
                }
            }
            p { small { (replays::REMARK) } }
        }
    }
}

/// The numbers behind the sweeps' figures.
pub fn sweeps(study: &Study) -> Markup {
    let sweeps = sweeps::of(study);
    html! {
        @if !sweeps.is_empty() {
            details {
                summary { "The sweeps in numbers" }
                @for swept in sweeps {
                    h3 { (swept.title) }
                    div class="scroll" { (table(&swept)) }
                    @if !swept.remark.is_empty() { p { (swept.remark) } }
                }
            }
        }
    }
}

fn table(swept: &sweeps::Swept) -> Markup {
    html! {
        table {
            tr {
                th { (swept.value_name) }
                @if swept.has_conditions { th { "condition" } }
                @for name in &swept.names { th class="number" { (name) } }
            }
            @for line in &swept.lines {
                tr {
                    td { (line.value) }
                    @if swept.has_conditions { td { (line.condition) } }
                    @for cell in &line.cells { td class="number" { (spread(cell)) } }
                }
            }
        }
    }
}

/// Length of the longest bar, in pixels.
const LONGEST_BAR: f64 = 120.0;

/// How many grace periods each vCPU ended as their last holdout: a bar for each vCPU under each condition.
pub fn holdouts(study: &Study) -> Markup {
    let conditions = holdouts::of(study);
    let vcpus = conditions.iter().map(|one| one.shares.len()).max().unwrap_or(0);
    let most = conditions.iter().flat_map(|one| &one.shares).copied().fold(0.0, f64::max);
    html! {
        @if !conditions.is_empty() {
            details {
                summary { "Last holdouts" }
                p {
                    "Share of the grace periods that ended when this vCPU, the last one, had passed a quiescent state; of \
                     several that did so at the same time, all."
                }
                div class="scroll" {
                    table {
                        tr { th { "vCPU" } @for one in &conditions { th { (one.condition) } } }
                        @for vcpu in 0..vcpus {
                            tr {
                                td { (vcpu) }
                                @for one in &conditions { td { (bar(one.shares.get(vcpu), most)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A share as a bar with its number; `most` has the longest bar.
fn bar(share: Option<&f64>, most: f64) -> Markup {
    html! {
        @if let Some(share) = share {
            span class="bar" style=(format!("width:{:.0}px", share / most * LONGEST_BAR)) {}
            " " (significant(share * 100.0)) " %"
        }
    }
}
