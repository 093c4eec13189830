//! Cases by conditions as cells of text, for terminal and page alike; and published ratios beside ours.

use reprieve_study::units::significant;
use reprieve_study::{Metric, Study, metric};

use crate::quantity::Spread;

/// What is shown of a scenario with cases, where it was measured.
const SHOWN: [&str; 11] = [
    metric::IO_RATE,
    metric::THROUGHPUT,
    metric::IO_INACTIVE,
    metric::IO_INACTIVE_SHARE,
    metric::IO_INACTIVE_VM,
    metric::IO_CPU,
    metric::COMPUTING_CPU,
    metric::NEIGHBOUR_CPU,
    metric::BEATS_CPU,
    metric::RIVAL_RATE,
    metric::JAIN,
];

/// Headings of the published ratios.
pub const PAIR_HEADER: [&str; 5] = ["ratio", "in", "here", "published", "verdict"];

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Which.
    pub metric: &'static Metric,
    /// Headings: the conditions.
    pub conditions: Vec<String>,
    /// Cases, and a cell for each condition.
    pub rows: Vec<(String, Vec<Option<Spread>>)>,
}

/// The grids of a study.
pub fn of(study: &Study) -> Vec<Shown> {
    SHOWN.iter().filter_map(|id| one(study, id)).collect()
}

fn one(study: &Study, id: &str) -> Option<Shown> {
    let metric = metric::find(id)?;
    let grid = study.grid(id)?;
    let row = |row: &reprieve_study::grid::GridRow| {
        let cells = row.cells.iter().map(|values| Spread::of(metric.unit, values)).collect();
        (row.case.clone(), cells)
    };
    Some(Shown { metric, rows: grid.rows.iter().map(row).collect(), conditions: grid.conditions })
}

/// The published ratios and orders, a line each, as in [`PAIR_HEADER`].
pub fn pairs(study: &Study) -> Vec<[String; 5]> {
    let line = |pair: reprieve_study::grid::Pair| {
        let published = &pair.published;
        let label = metric::find(&published.metric).map_or(published.metric.as_str(), |metric| metric.label);
        let place = if published.case.is_empty() { "mean of all" } else { &published.case };
        [
            format!("{label}, {} over {}", published.condition, published.against),
            place.into(),
            pair.ratio.map_or("-".into(), significant),
            format!("{} ({})", significant(published.ratio), published.printed),
            pair.verdict.to_string(),
        ]
    };
    let orders = study.published_orders();
    study.published_pairs().into_iter().map(line).chain(orders.iter().map(order)).collect()
}

fn order(order: &reprieve_study::grid::Order) -> [String; 5] {
    let published = &order.published;
    let label = metric::find(&published.metric).map_or(published.metric.as_str(), |metric| metric.label);
    let place = if published.case.is_empty() { "each" } else { &published.case };
    let measured = order.holds.len() + order.fails.len();
    let verdict = match (measured, order.fails.as_slice()) {
        (0, _) => "not measured".into(),
        (_, []) => "holds".into(),
        (_, fails) => format!("does not hold in {}", fails.join(", ")),
    };
    [
        format!("{label} rises: {}", published.rising.join(", ")),
        place.into(),
        format!("{} of {measured}", order.holds.len()),
        "this order".into(),
        verdict,
    ]
}
