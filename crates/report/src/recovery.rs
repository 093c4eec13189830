//! The scoreboard of remedies as sentences and text cells, for both the terminal and the page. The smallest share and
//! the largest cost come first, because they are the answer.

use reprieve_study::metric;
pub use reprieve_study::recovery::ALL;
use reprieve_study::recovery::{Board, COSTS, Cost, Distance, Recovered, Recovery, Worst};
use reprieve_study::statistics::Estimate;
use reprieve_study::units::significant;

/// A table. The first cell of each row is a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Column headings.
    pub header: Vec<String>,
    /// A row for each remedy, below a row with the distance.
    pub rows: Vec<Vec<String>>,
    /// Notes on how to read the table, and on what does not count.
    pub remark: String,
}

/// Label of the row of distances.
const DISTANCE: &str = "nothing over the oracle";

/// The answer in sentences: all remedies together, each alone, and the workloads in which there is nothing to recover.
pub fn sentences(recovery: &Recovery) -> Vec<String> {
    let together = together(recovery);
    let alone = alone(recovery);
    together.into_iter().chain(alone).chain(nothing_to_recover(recovery)).collect()
}

fn together(recovery: &Recovery) -> Option<String> {
    let of_all = |board: &'_ Board| board.remedies.iter().find(|one| one.condition == ALL).cloned();
    let said = |board: &Board| {
        let smallest = of_all(board)?.smallest;
        let share = smallest.map_or("not known".to_string(), |worst| at_worst(&worst, "least", share));
        Some(format!("{share} in {}", name(board.metric)))
    };
    let shares: Vec<String> = recovery.boards.iter().map(said).collect::<Option<_>>()?;
    let cost = recovery.costs.iter().find(|cost| cost.condition == ALL)?;
    let neighbours = cost.largest[NEIGHBOURS].as_ref();
    let lost = neighbours.map_or("an unknown share".to_string(), |worst| at_worst(worst, "most", cost_share));
    Some(format!(
        "All remedies together recover of the distance from {} to the oracle, at least: {}. Neighbour VMs lose at most {lost} \
         of their CPU time.",
        recovery.nothing,
        shares.join("; ")
    ))
}

fn alone(recovery: &Recovery) -> Option<String> {
    let names: Vec<&str> =
        recovery.costs.iter().map(|cost| cost.condition.as_str()).filter(|name| is_alone(name)).collect();
    let said = |condition: &&str| {
        let shares: Vec<String> = recovery
            .boards
            .iter()
            .map(|board| {
                let found = board.remedies.iter().find(|one| one.condition == **condition);
                let smallest = found.and_then(|one| one.smallest.as_ref());
                smallest.map_or("-".into(), |worst| share(worst.value.value))
            })
            .collect();
        format!("{condition} {}", shares.join(" and "))
    };
    let metrics: Vec<&str> = recovery.boards.iter().map(|board| name(board.metric)).collect();
    let each: Vec<String> = names.iter().map(said).collect();
    (!each.is_empty()).then(|| {
        format!(
            "Each alone, its smallest share over the workloads in {}: {}.",
            metrics.join(" and in "),
            each.join("; ")
        )
    })
}

/// Whether a condition has a single remedy, rather than all of them or all except one.
fn is_alone(condition: &str) -> bool {
    condition != ALL && !condition.starts_with(&format!("{ALL}-"))
}

fn nothing_to_recover(recovery: &Recovery) -> Option<String> {
    let said = |board: &Board| -> Option<String> {
        let unclear: Vec<&str> = recovery.unclear(board).collect();
        (!unclear.is_empty()).then(|| format!("{} under {}", name(board.metric), unclear.join(", ")))
    };
    let all: Vec<String> = recovery.boards.iter().filter_map(said).collect();
    (!all.is_empty()).then(|| {
        format!("No clear distance to the oracle, so that nothing counts as recovered: {}.", all.join("; "))
    })
}

/// Index of the neighbours' CPU time among the costs.
const NEIGHBOURS: usize = 2;

fn name(id: &str) -> &str {
    match id {
        metric::GP_P99 => "the 99th percentile of grace periods",
        metric::FOOTPRINT_PEAK => "the footprint's peak",
        other => other,
    }
}

fn at_worst(worst: &Worst, how: &str, show: fn(f64) -> String) -> String {
    let Worst { workload, value } = worst;
    format!(
        "{} (95 %: {} to {}; {how} under {workload})",
        show(value.value),
        bare(show(value.low)),
        bare(show(value.high))
    )
}

fn bare(text: String) -> String {
    text.trim_end_matches(" %").into()
}

/// A share of the distance, rounded to whole per cent.
pub fn share(share: f64) -> String {
    let percent = format!("{:.0}", share * 100.0);
    format!("{} %", if percent == "-0" { "0" } else { &percent })
}

/// A cost, rounded to tenths of a per cent.
fn cost_share(share: f64) -> String {
    let percent = format!("{:.1}", share * 100.0);
    format!("{} %", if percent == "-0.0" { "0.0" } else { &percent })
}

/// The tables: one for each scored metric, and one for the costs.
pub fn tables(recovery: &Recovery) -> Vec<Table> {
    let boards = recovery.boards.iter().map(|board| of_board(recovery, board));
    boards.chain([of_costs(recovery)]).collect()
}

fn of_board(recovery: &Recovery, board: &Board) -> Table {
    let label = metric::find(board.metric).map_or(board.metric, |metric| metric.label);
    let mut header = vec!["remedy".to_string(), "smallest share [95 %]".into(), "under".into()];
    header.extend(recovery.workloads.iter().cloned());
    let mut rows = vec![
        [DISTANCE.to_string(), String::new(), String::new()]
            .into_iter()
            .chain(board.distances.iter().map(distance))
            .collect(),
    ];
    rows.extend(board.remedies.iter().map(|one| recovered(one, board)));
    Table {
        title: format!("Recovered of the distance from {} to the oracle: {label}", recovery.nothing),
        header,
        rows,
        remark: "Shares of effects (logarithms of ratios of medians): 0 % is no better than nothing, 100 % as good as the \
                 oracle, more is better than it. The first row has the ratio of nothing to the oracle; in brackets where it \
                 is not clear, and then nothing counts as recovered."
            .into(),
    }
}

fn distance(distance: &Distance) -> String {
    match distance.ratio {
        None => "-".into(),
        Some(ratio) if distance.is_clear => format!("x{}", significant(ratio.value)),
        Some(ratio) => format!("(x{})", significant(ratio.value)),
    }
}

fn recovered(one: &Recovered, board: &Board) -> Vec<String> {
    let [smallest, under] = match &one.smallest {
        None => ["-".to_string(), String::new()],
        Some(Worst { workload, value }) => [with_interval(value, share), workload.clone()],
    };
    let cell = |(share_of, distance): (&Option<Estimate>, &Distance)| match share_of {
        Some(estimate) => share(estimate.value),
        None if distance.is_clear => "not measured".into(),
        None => "-".into(),
    };
    let shares = one.shares.iter().zip(&board.distances).map(cell);
    [one.condition.clone(), smallest, under].into_iter().chain(shares).collect()
}

fn with_interval(value: &Estimate, show: fn(f64) -> String) -> String {
    format!("{} [{}, {}]", show(value.value), bare(show(value.low)), bare(show(value.high)))
}

fn of_costs(recovery: &Recovery) -> Table {
    let names = COSTS.map(|(id, is_rise)| {
        let label = metric::find(id).map_or(id, |metric| metric.label);
        format!("{label}, {} [95 %]", if is_rise { "more" } else { "less" })
    });
    let row = |cost: &Cost| {
        let cells = cost.largest.iter().map(|worst| match worst {
            None => "-".to_string(),
            Some(worst) => format!("{} {}", with_interval(&worst.value, cost_share), worst.workload),
        });
        [cost.condition.clone()].into_iter().chain(cells).collect()
    };
    Table {
        title: format!("What it costs, against {}", recovery.nothing),
        header: ["remedy".to_string()].into_iter().chain(names).collect(),
        rows: recovery.costs.iter().map(row).collect(),
        remark: "The largest cost over the workloads, and the workload that has it. Below zero it is a gain."
            .into(),
    }
}
