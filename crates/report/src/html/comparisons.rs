//! A table for each condition against the baseline.

use maud::{Markup, html};
use reprieve_study::{Comparison, Study, Verdict};

use super::{causes, spread};
use crate::table::{self, Line};

/// A table for each condition, and throughput lost by cause.
pub fn render(study: &Study) -> Markup {
    html! {
        @for comparison in &study.comparisons {
            @if !study.is_part(&comparison.condition) { (comparison_table(comparison)) }
        }
        @if study.comparisons.is_empty() { p { "Nothing to compare: fewer than two conditions have runs." } }
        (causes::render(study))
    }
}

pub fn comparison_table(comparison: &Comparison) -> Markup {
    let lines = table::lines(comparison);
    let with_published = lines.iter().any(|line| line.verdict != Verdict::NoReference);
    let first_other =
        lines.iter().position(|line| line.verdict == Verdict::NoReference).filter(|_| with_published);
    html! {
        h3 { (comparison.condition) " against " (comparison.baseline) }
        @if let Some(tally) = table::tally(comparison) { p { (tally) } }
        div class="scroll" {
            table class="comparison" {
                tr {
                    th { "Metric" }
                    th class="number" { (comparison.baseline) }
                    th class="number" { (comparison.condition) }
                    th class="number" { "Ratio" }
                    th class="number" { "p" }
                    @if with_published { th class="number" { "Published" } th { "Verdict" } }
                }
                @for (index, line) in lines.iter().enumerate() {
                    tr class=[(Some(index) == first_other).then_some("first-other")] {
                        (cells(line, with_published))
                    }
                }
            }
        }
        p { small {
            "Medians over repetitions (smallest–largest). Ratio of medians with its 95 % bootstrap interval. p: two-sided \
             permutation test; * below 0.05 after Holm's correction for the table. "
            @if let Some(remark) = table::smallest_p(comparison) { (remark) }
        } }
    }
}

fn cells(line: &Line, with_published: bool) -> Markup {
    let class = match line.verdict {
        agreeing if agreeing.agrees() => "verdict agrees",
        Verdict::OppositeDirection => "verdict differs",
        _ => "verdict",
    };
    html! {
        td title=(line.metric.definition) { (line.metric.label) }
        td class="number" { (spread(&line.baseline)) }
        td class="number" { (spread(&line.treated)) }
        td class="number" { @if line.ratio.is_empty() { "–" } @else { (line.ratio) " " small { (line.interval) } } }
        td class="number" { (line.p) @if line.significant { "*" } }
        @if with_published {
            td class="number" { (line.published) }
            td class=(class) { (line.verdict) }
        }
    }
}
