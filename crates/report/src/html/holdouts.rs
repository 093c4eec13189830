//! Which vCPUs ended grace periods: a bar for each vCPU under each condition.

use maud::{Markup, html};
use reprieve_study::Study;
use reprieve_study::units::significant;

use crate::holdouts;

/// Length of the longest bar, in pixels.
const LONGEST_BAR: f64 = 120.0;

/// How many grace periods each vCPU ended as their last holdout: a bar for each vCPU under each condition.
pub fn render(study: &Study) -> Markup {
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
