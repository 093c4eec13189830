//! The scoreboard of remedies as sentences and text cells, for both the terminal and the page. The smallest share and
//! the largest cost come first, because they are the answer.

use reprieve_study::metric;
pub use reprieve_study::recovery::ALL;
use reprieve_study::recovery::{Board, COSTS, Cost, Distance, Price, Recovered, Recovery, Worst};
use reprieve_study::scenario::Remedy;
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

/// What remedies are measured against, in a sentence.
fn ideal(board: &Board) -> &'static str {
    if board.ideal == Remedy::EvenShare { "an even share" } else { "the oracle" }
}

/// Label of the row of distances.
fn distance_to(board: &Board) -> String {
    format!("nothing over {}", ideal(board))
}

/// The boards of each ideal.
fn by_ideal(recovery: &Recovery) -> impl Iterator<Item = &[Board]> {
    recovery.boards.chunk_by(|a, b| a.ideal == b.ideal)
}

/// The answer in sentences, for each ideal: all remedies together, each other condition, and the workloads in which there is
/// nothing to recover.
pub fn sentences(recovery: &Recovery) -> Vec<String> {
    let of_ideal = |boards: &[Board]| {
        let rest = nothing_to_recover(recovery, boards).into_iter().chain(harm(recovery, boards));
        together(recovery, boards).into_iter().chain(each(recovery, boards)).chain(rest).collect::<Vec<_>>()
    };
    by_ideal(recovery).flat_map(of_ideal).chain(lost(recovery)).collect()
}

fn together(recovery: &Recovery, boards: &[Board]) -> Option<String> {
    let of_all = |board: &'_ Board| board.remedies.iter().find(|one| one.condition == ALL).cloned();
    let said = |board: &Board| {
        let smallest = of_all(board)?.smallest;
        let share = smallest.as_ref().map_or("a share that is not known".to_string(), |worst| {
            let within = format!(" in {}", coverage(worst, recovery));
            format!("at least {}", at_worst(worst, &within, "least", share))
        });
        Some(format!("{share} for {}", name(board.metric)))
    };
    let shares: Vec<String> = boards.iter().map(said).collect::<Option<_>>()?;
    Some(format!(
        "Of the distance from {} to {}, all remedies together recover {}.",
        recovery.nothing,
        ideal(boards.first()?),
        shares.join("; ")
    ))
}

/// What all remedies together cost the neighbours.
fn lost(recovery: &Recovery) -> Option<String> {
    let cost = recovery.costs.iter().find(|cost| cost.condition == ALL)?;
    let lost = cost.largest[NEIGHBOURS].as_ref().map_or("an unknown share".to_string(), |worst| {
        at_worst(worst, &partly(worst, recovery), "most", cost_share)
    });
    Some(format!("With all remedies, neighbour VMs lose at most {lost} of their CPU time."))
}

/// In how many workloads a share counts: those in which there is a clear distance.
fn coverage(worst: &Worst, recovery: &Recovery) -> String {
    format!("{} of {} workloads", worst.of, recovery.workloads.len())
}

/// Said of a cost that was not measured in each workload.
fn partly(worst: &Worst, recovery: &Recovery) -> String {
    let is_whole = worst.of == recovery.workloads.len();
    if is_whole { String::new() } else { format!(" in {}", coverage(worst, recovery)) }
}

/// The smallest shares of each condition but `all`, with one remedy or several.
fn each(recovery: &Recovery, boards: &[Board]) -> Option<String> {
    let names: Vec<&str> =
        recovery.costs.iter().map(|cost| cost.condition.as_str()).filter(|name| !is_of_all(name)).collect();
    let said = |condition: &&str| {
        let shares: Vec<String> = boards
            .iter()
            .map(|board| {
                let found = board.remedies.iter().find(|one| one.condition == **condition);
                let smallest = found.and_then(|one| one.smallest.as_ref());
                smallest.map_or("-".into(), |worst| share(worst.value.value))
            })
            .collect();
        format!("{condition} {}", shares.join(" and "))
    };
    let metrics: Vec<&str> = boards.iter().map(|board| name(board.metric)).collect();
    let each: Vec<String> = names.iter().map(said).collect();
    let to = ideal(boards.first()?);
    (!each.is_empty()).then(|| {
        format!(
            "The smallest share of the way to {to} over the workloads with a clear distance, of {}: {}.",
            metrics.join(" and of "),
            each.join("; ")
        )
    })
}

/// Whether a condition has all remedies, or all except one.
fn is_of_all(condition: &str) -> bool {
    condition == ALL || condition.starts_with(&format!("{ALL}-"))
}

fn nothing_to_recover(recovery: &Recovery, boards: &[Board]) -> Option<String> {
    let said = |board: &Board| -> Option<String> {
        let unclear: Vec<&str> = recovery.unclear(board).collect();
        (!unclear.is_empty()).then(|| format!("{} under {}", name(board.metric), unclear.join(", ")))
    };
    let all: Vec<String> = boards.iter().filter_map(said).collect();
    let to = ideal(boards.first()?);
    (!all.is_empty())
        .then(|| format!("Not counted, because the distance to {to} is not clear: {}.", all.join("; ")))
}

/// The worst harm in workloads that are not counted, where no share shows it.
fn harm(recovery: &Recovery, boards: &[Board]) -> Option<String> {
    let said = |board: &Board| {
        let (condition, Worst { workload, value, .. }) = recovery.worst_harm(board)?;
        let [ratio, low, high] = [value.value, value.low, value.high].map(significant);
        let metric = name(board.metric);
        Some(format!("{metric} x{ratio} (95 %: {low} to {high}) with {condition} under {workload}"))
    };
    let all: Vec<String> = boards.iter().filter_map(said).collect();
    let to = ideal(boards.first()?);
    (!all.is_empty()).then(|| {
        format!(
            "The worst harm where the distance to {to} is not clear, against {}: {}.",
            recovery.nothing,
            all.join("; ")
        )
    })
}

/// The place of the neighbours' CPU time among the costs.
const NEIGHBOURS: usize = 2;

fn name(id: &str) -> &str {
    match id {
        metric::GP_P99 => "the 99th percentile of grace periods",
        metric::FOOTPRINT_PEAK => "the footprint's peak",
        other => other,
    }
}

fn at_worst(worst: &Worst, within: &str, how: &str, show: fn(f64) -> String) -> String {
    let Worst { workload, value, .. } = worst;
    format!(
        "{}{within} (95 %: {} to {}; {how} under {workload})",
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
    let to = ideal(board);
    let mut header = vec!["remedy".to_string(), "smallest share [95 %]".into(), "under".into()];
    header.extend(recovery.workloads.iter().cloned());
    let mut rows = vec![
        [distance_to(board), String::new(), String::new()]
            .into_iter()
            .chain(board.distances.iter().map(distance))
            .collect(),
    ];
    rows.extend(board.remedies.iter().chain(&board.references).map(|one| recovered(one, board)));
    Table {
        title: format!("Recovered of the distance from {} to {to}: {label}", recovery.nothing),
        header,
        rows,
        remark: format!(
            "Shares of the distance, in logarithms of ratios of medians: 0 % is no better than nothing, 100 % as good as {to}, \
             above 100 % better than it. The first row is the ratio of nothing to {to}. It is in brackets if it is not clear: \
             then no share counts, and the cells below it are the ratios of remedies to nothing, where above 1 is harm. If an \
             undisturbed guest is far above 100 %, {to} is a weak ideal."
        ),
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
        Some(Worst { workload, value, .. }) => [with_interval(value, share), workload.clone()],
    };
    let cell = |((share_of, ratio), distance): ((&Option<Estimate>, &Option<Estimate>), &Distance)| match (
        share_of, ratio,
    ) {
        (Some(estimate), _) => share(estimate.value),
        (None, Some(ratio)) if !distance.is_clear => format!("(x{})", significant(ratio.value)),
        (None, _) => "not measured".into(),
    };
    let shares = one.shares.iter().zip(&one.ratios).zip(&board.distances).map(cell);
    [one.condition.clone(), smallest, under].into_iter().chain(shares).collect()
}

fn with_interval(value: &Estimate, show: fn(f64) -> String) -> String {
    format!("{} [{}, {}]", show(value.value), bare(show(value.low)), bare(show(value.high)))
}

fn of_costs(recovery: &Recovery) -> Table {
    let names = COSTS.map(|Price { metric, per, is_rise }| {
        let label = metric::find(metric).map_or(metric, |metric| metric.label);
        let per = if per.is_some() { " per operation" } else { "" };
        format!("{label}{per}, {} [95 %]", if is_rise { "more" } else { "less" })
    });
    let row = |cost: &Cost| {
        let cells = cost.largest.iter().map(|worst| match worst {
            None => "-".to_string(),
            Some(worst) => format!(
                "{} {}{}",
                with_interval(&worst.value, cost_share),
                worst.workload,
                partly(worst, recovery)
            ),
        });
        [cost.condition.clone()].into_iter().chain(cells).collect()
    };
    Table {
        title: format!("What it costs, against {}", recovery.nothing),
        header: ["remedy".to_string()].into_iter().chain(names).collect(),
        rows: recovery.costs.iter().map(row).collect(),
        remark: "The largest cost over the workloads, and its workload. A cost that was not measured in all workloads says in \
                 how many it was. Below zero it is a gain."
            .into(),
    }
}
