//! One table of all conditions, a row each, for workloads that compare many of them: values beside each other, ratios to
//! the baseline within a repetition. Cells of text, for terminal and page alike.

use reprieve_study::statistics::Estimate;
use reprieve_study::units::{count, significant};
use reprieve_study::{Study, Workload, metric};

use crate::quantity::Spread;

/// What a column shows of a metric.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// Its values.
    Value(&'static str),
    /// Their ratios to the baseline's.
    Ratio(&'static str),
    /// The share of the lost throughput that was regained, with its interval.
    Regained,
    /// The p-value of that.
    RegainedP,
    /// What they are more than those of the workload's bare scheme.
    Added(&'static str),
}

/// Columns that belong together: a heading, what each shows, and how to read them where that is not plain.
type Layout = (&'static str, &'static [(&'static str, Shows)], &'static str);

const DELETE_FREE: [Layout; 3] = [
    (
        "From a delete to its free",
        &[
            ("p50", Shows::Value(metric::DELAY_P50)),
            ("average", Shows::Value(metric::DELAY_MEAN)),
            ("p99", Shows::Value(metric::DELAY_P99)),
            ("longest", Shows::Value(metric::DELAY_MAX)),
            ("p50, ratio", Shows::Ratio(metric::DELAY_P50)),
            ("average, ratio", Shows::Ratio(metric::DELAY_MEAN)),
        ],
        "",
    ),
    (
        "What it costs",
        &[
            ("deletes", Shows::Value(metric::DELIVERED)),
            ("writer", Shows::Value(metric::WRITER_COST)),
            ("own thread", Shows::Value(metric::BACKGROUND_COST)),
            ("look-up", Shows::Value(metric::LOOKUP_COST)),
            ("added", Shows::Added(metric::LOOKUP_COST)),
            ("garbage", Shows::Value(metric::GARBAGE_PEAK)),
            ("its memory", Shows::Value(metric::GARBAGE_PEAK_BYTES)),
        ],
        "Deletes are those delivered; writer and own thread are the CPU time of the writer and of the scheme's own thread \
         per delete, look-up that of a reader per look-up; added is what that is more than bare look-ups in the same \
         language; garbage is the most that waited to be freed.",
    ),
    (
        "How long the writer is kept",
        &[
            ("late", Shows::Value(metric::WRITER_LATE)),
            ("latest", Shows::Value(metric::WRITER_LATE_MAX)),
            ("call p99.9", Shows::Value(metric::RETIRE_P999)),
            ("longest call", Shows::Value(metric::RETIRE_MAX)),
            ("membarriers", Shows::Value(metric::MEMBARRIERS)),
            ("p50", Shows::Value(metric::MEMBARRIER_P50)),
            ("p99", Shows::Value(metric::MEMBARRIER_P99)),
            ("longest", Shows::Value(metric::MEMBARRIER_MAX)),
            ("switches", Shows::Value(metric::SWITCHES)),
        ],
        "Late and latest are the average and the longest time from when a delete was due to its begin; a call is that which \
         gives a removed element to the scheme; p50, p99 and longest are of the calls of membarrier, where the library times them; switches are an adaptive domain's, between membarrier \
         and fences in the readers.",
    ),
];

const LATENCY: [Layout; 3] = [
    (
        "Latency",
        &[
            ("average", Shows::Value(metric::LATENCY_MEAN)),
            ("p50", Shows::Value(metric::LATENCY_P50)),
            ("p90", Shows::Value(metric::LATENCY_P90)),
            ("p99", Shows::Value(metric::LATENCY_P99)),
            ("p99.9", Shows::Value(metric::LATENCY_P999)),
            ("p99.99", Shows::Value(metric::LATENCY_P9999)),
            ("longest", Shows::Value(metric::LATENCY_MAX)),
        ],
        "",
    ),
    (
        "Stalls above 1 ms, and what made them",
        &[
            ("of", Shows::Value(metric::LATENCY_COUNT)),
            ("lost", Shows::Value(metric::LOST)),
            ("stalls", Shows::Value(metric::LATE)),
            ("boosted hog", Shows::Value(metric::LATE_HOG_BOOSTED)),
            ("inactive, OVER", Shows::Value(metric::LATE_INACTIVE_OVER)),
            ("BOOST erased", Shows::Value(metric::LATE_BOOST_ERASED)),
            ("rate limit", Shows::Value(metric::LATE_RATE_LIMIT)),
            ("slice end", Shows::Value(metric::LATE_SLICE_END)),
            ("other", Shows::Value(metric::LATE_OTHER)),
        ],
        "",
    ),
    (
        "CPU time",
        &[("guest", Shows::Value(metric::CPU_SHARE)), ("a spinner", Shows::Value(metric::SPINNER_CPU))],
        "",
    ),
];
const WAKEUP_LEGEND: &str = "Latency is the time from when a task wanted to run until it did.";
const REQUESTS_LEGEND: &str =
    "Latency is the whole round trip, as the client times it; Sockperf prints half of it.";

const FIO: [Layout; 2] = [
    (
        "fio",
        &[
            ("reads", Shows::Value(metric::THROUGHPUT)),
            ("reads, ratio", Shows::Ratio(metric::THROUGHPUT)),
            ("regained", Shows::Regained),
            ("p", Shows::RegainedP),
        ],
        "Regained is the share of the throughput that the disturbance takes from pinned jobs, within each repetition: its \
         median, with its 95 % bootstrap interval; p is of a permutation test of the reads against those of pinned jobs.",
    ),
    (
        "What it costs",
        &[
            ("computing", Shows::Value(metric::COMPUTING_LOOPS)),
            ("ratio", Shows::Ratio(metric::COMPUTING_LOOPS)),
            ("daemon", Shows::Value(metric::BEATS_CPU)),
            ("moves", Shows::Value(metric::MOVES)),
            ("late beats", Shows::Value(metric::LATE_BEATS)),
            ("replayed", Shows::Value(metric::REPLAYED)),
        ],
        "Computing is the loops of the tasks that compute beside fio; daemon is its CPU time, of one CPU, as the guest counts \
         it; replayed are its decisions that a replay of its record was compared with, and found the same.",
    ),
];

/// The table of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct SideBySide {
    /// What is compared with what.
    pub title: String,
    /// Names of the conditions, a row each; the baseline first.
    pub rows: Vec<String>,
    /// Columns that belong together.
    pub groups: Vec<Group>,
    /// Whether each group is a table of its own, because their columns have the same names.
    pub are_apart: bool,
    /// How to read it, and what was published.
    pub remarks: Vec<String>,
}

/// Columns that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they are about.
    pub name: String,
    /// Those with a value in any row.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// What exactly is counted.
    pub definition: &'static str,
    /// One for each row; a ratio has its interval as the range.
    pub cells: Vec<Option<Spread>>,
}

/// The table of a study, if its workload is one that is shown so.
pub fn of(study: &Study) -> Option<SideBySide> {
    let (layout, of_all): (&[Layout], &str) = match study.scenario.workload {
        Workload::DeleteFree { .. } => (&DELETE_FREE, ""),
        Workload::Fio(_) => (&FIO, ""),
        Workload::Wakeup { .. } => (&LATENCY, WAKEUP_LEGEND),
        Workload::Requests { .. } => (&LATENCY, REQUESTS_LEGEND),
        Workload::Tasks(_) => (&LATENCY, WAKEUP_LEGEND),
        _ => return None,
    };
    let cases = study.of_cases();
    let rows: Vec<Row> = match cases.is_empty() {
        true => rows_of(study, ""),
        false => cases.iter().flat_map(|(case, study)| rows_of(study, &format!("{case}, "))).collect(),
    };
    let (mut groups, mut legends) = (Vec::new(), Vec::new());
    for (name, columns, legend) in layout {
        let column = |(name, shows): &(&'static str, Shows)| column(&rows, name, *shows);
        let columns: Vec<Column> = columns.iter().filter_map(column).collect();
        if !columns.is_empty() {
            groups.push(Group { name: name.to_string(), columns });
            legends.push(*legend);
        }
    }
    let baseline = study.scenario.baseline();
    let is_ratio = |(_, shows): &(&str, Shows)| matches!(shows, Shows::Ratio(_));
    let has_ratios = layout.iter().any(|(_, columns, _)| columns.iter().any(is_ratio));
    let (title, ratios) = match has_ratios {
        false => ("Side by side".to_string(), String::new()),
        true => (
            format!("Side by side, ratios to {baseline}"),
            format!(
                " Ratios to {baseline} are taken within each repetition: their median, with its 95 % bootstrap \
                 interval."
            ),
        ),
    };
    let legends: Vec<&str> =
        legends.into_iter().chain([of_all]).filter(|legend| !legend.is_empty()).collect();
    let legend = format!("Medians over repetitions (smallest–largest).{ratios} {}", legends.join(" "));
    let remarks = [legend].into_iter().chain(published(study)).collect();
    Some(SideBySide {
        title,
        groups,
        are_apart: false,
        remarks,
        rows: rows.into_iter().map(|row| row.title).collect(),
    })
}

/// A condition, with the runs among which its baseline is.
struct Row<'a> {
    title: String,
    study: &'a Study,
    condition: &'a str,
}

fn rows_of<'a>(study: &'a Study, prefix: &str) -> Vec<Row<'a>> {
    let names = study.scenario.chosen().map(|(name, _)| name.as_str());
    let measured = names.filter(|name| study.runs_of(name).next().is_some());
    measured.map(|condition| Row { title: format!("{prefix}{condition}"), study, condition }).collect()
}

/// `None` when no row has a value.
fn column(rows: &[Row], name: &'static str, shows: Shows) -> Option<Column> {
    let id = match shows {
        Shows::Value(id) | Shows::Ratio(id) | Shows::Added(id) => id,
        Shows::Regained | Shows::RegainedP => metric::REGAINED,
    };
    let metric = metric::find(id)?;
    let cell = |&Row { study, condition, .. }: &Row| match shows {
        Shows::Value(id) => {
            let values: Vec<f64> =
                study.runs_of(condition).filter_map(|run| run.metrics.get(id).copied()).collect();
            Spread::of(metric.unit, &values)
        }
        Shows::Ratio(id) if condition == study.scenario.baseline() => {
            study.runs_of(condition).any(|run| run.metrics.contains_key(id)).then(one)
        }
        Shows::Ratio(id) => study.paired_ratio(id, condition, study.scenario.baseline()).map(ratio),
        Shows::Regained => study.regained(condition).map(|share| interval(share, &significant)),
        Shows::RegainedP => {
            let p = study.regained_p(condition)?;
            Some(Spread { median: significant(p), range: String::new() })
        }
        Shows::Added(id) => {
            let pairs = study.pairs(id, condition, &bare_of(study, condition)?);
            let added: Vec<f64> = pairs.iter().map(|(one, bare)| one - bare).collect();
            Spread::of(metric.unit, &added)
        }
    };
    let cells: Vec<Option<Spread>> = rows.iter().map(cell).collect();
    let definition = metric.definition;
    cells.iter().any(Option::is_some).then_some(Column { name, definition, cells })
}

/// The condition with the bare look-ups that a condition's are compared with; `None` for one that is bare itself.
fn bare_of(study: &Study, condition: &str) -> Option<String> {
    let schemes = |name: &str| match study.scenario.under(name).ok()?.workload {
        Workload::DeleteFree(asked) => Some((asked.scheme, asked.bare)),
        _ => None,
    };
    let (scheme, bare) = schemes(condition)?;
    let mut others = study.scenario.chosen().map(|(name, _)| name);
    let found = others.find(|name| schemes(name).is_some_and(|(scheme, _)| scheme == bare));
    found.filter(|_| scheme != bare).cloned()
}

fn one() -> Spread {
    Spread { median: "1".into(), range: String::new() }
}

/// A ratio with its interval. One far below 1 is written as a fraction: how many times less.
fn ratio(ratio: Estimate) -> Spread {
    let is_small = ratio.value > 0.0 && ratio.value < 0.1;
    let show = |value: f64| match is_small && value > 0.0 {
        true => format!("1/{}", count(value.recip())),
        false => significant(value),
    };
    interval(ratio, &show)
}

fn interval(estimate: Estimate, show: &dyn Fn(f64) -> String) -> Spread {
    let Estimate { value, low, high } = estimate;
    let range = if low == high { String::new() } else { format!("[{}, {}]", show(low), show(high)) };
    Spread { median: show(value), range }
}

/// A line for each published ratio that has a counterpart here.
fn published(study: &Study) -> impl Iterator<Item = String> {
    let rows = study.comparisons.iter().flat_map(|one| one.rows.iter().map(move |row| (&one.condition, row)));
    rows.filter_map(|(condition, row)| {
        let label = metric::find(&row.metric)?.label;
        let printed = &row.published.as_ref()?.printed;
        Some(format!("{condition}: {label}: published {printed}; ours {}.", row.verdict))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_study::observation::{Provenance, Standing};
    use reprieve_study::{Observation, overrides};

    /// A run of a server's, with one stall of each count.
    fn latency_run(condition: &str, stalls: f64) -> Observation {
        Observation {
            condition: condition.into(),
            repetition: 0,
            standing: Standing::Accepted,
            case: None,
            sweep: None,
            provenance: Provenance::default(),
            metrics: [
                (metric::LATENCY_P99.to_string(), 2e5),
                (metric::LATE.to_string(), stalls),
                (metric::LATE_RATE_LIMIT.to_string(), stalls),
            ]
            .into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        }
    }

    #[test]
    fn latencies_stand_beside_each_other_with_what_made_the_stalls() {
        let text = "
            name = 't'
            title = 't'
            workload = { kind = 'requests' }
            [conditions.alone]
            [conditions.beside]
            spinners = 1
        ";
        let scenario = overrides::read(text, None, &[]).unwrap();
        let study = Study::new(scenario, vec![latency_run("alone", 0.0), latency_run("beside", 7.0)], None);
        let side = of(&study).unwrap();
        assert_eq!((side.title.as_str(), side.rows.len(), side.groups.len()), ("Side by side", 2, 2));
        let stalls = &side.groups[1];
        assert_eq!(
            stalls.columns.iter().map(|column| column.name).collect::<Vec<_>>(),
            ["stalls", "rate limit"]
        );
        assert_eq!(stalls.columns[1].cells[1].as_ref().unwrap().median, "7.00");
        assert!(side.remarks[0].ends_with("Sockperf prints half of it."));
    }

    #[test]
    fn a_ratio_far_below_one_says_how_many_times_less() {
        let of = |value: f64| ratio(Estimate { value, low: value / 2.0, high: value * 2.0 });
        let text = |value: f64| (of(value).median, of(value).range);
        assert_eq!(text(0.0004), ("1/2500".into(), "[1/5000, 1/1250]".into()));
        assert_eq!(text(1.0 / 72_442.0), ("1/72.4 k".into(), "[1/145 k, 1/36.2 k]".into()));
        assert_eq!(text(0.5), ("0.500".into(), "[0.250, 1.00]".into()));
        assert_eq!(ratio(Estimate { value: 0.5, low: 0.5, high: 0.5 }).range, "");
        assert_eq!(text(0.0), ("0".into(), "".into()));
    }
}
