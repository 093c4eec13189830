//! What the runs of a space show of one metric, over one of its axes or over two. The other axes are not held: a cell has all runs whose
//! values lie in it, whatever their values elsewhere.
//!
//! A ratio to the baseline is that of the same point and the same repetition, which have the same random numbers; a cell has the
//! geometric mean of these ratios. Intervals are of that mean, or of the median, 95 %, by bootstrap over the runs of the cell (Efron 1979,
//! percentile method), as if these were independent. They are not quite: runs of one repetition share random numbers, one baseline may
//! serve several points, and the other axes differ within a cell. So they are a rough guide.

use std::collections::BTreeMap;

use rand::{Rng, RngExt};

use crate::scenario::space::Space;
use crate::scenario::{BadScenario, Result, Setting};
use crate::statistics::{self, Estimate};

/// An axis with more values than this is cut into bins of equally many runs.
const MOST_VALUES: usize = 24;
/// Bins of such an axis.
const BINS: usize = 8;
/// Resamples behind an interval; fewer of a large cell.
const RESAMPLES: usize = 2_000;
const RESAMPLES_OF_MANY: usize = 400;
const MANY: usize = 2_000;

/// A finished run of the space.
#[derive(Clone, Copy, Debug)]
pub struct SpaceRun<'a> {
    /// What identifies it: rows of one run have the same.
    pub id: u128,
    /// The number of its point.
    pub point: u64,
    /// Its condition.
    pub condition: &'a str,
    /// Its repetition.
    pub repetition: u32,
    /// The values of the axes, in their order.
    pub values: &'a [Setting],
    /// The metric's value, if it was measured.
    pub value: Option<f64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Names of one axis or two.
    pub axes: &'a [String],
    /// The condition.
    pub condition: &'a str,
    /// What it is compared with, if it is.
    pub baseline: Option<&'a str>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// For each axis that was asked for, its bins.
    pub bins: Vec<Vec<Bin>>,
    /// The cells; the bins of the last axis change fastest.
    pub cells: Vec<Cell>,
}

/// A value of an axis, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bin {
    /// The value, or the least and the largest of the part.
    pub label: String,
    /// Where it lies, if the values are numbers: the median.
    pub at: Option<f64>,
}

/// The runs whose values lie in a bin of each axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Runs under the condition that measured the metric.
    pub runs: usize,
    /// The metric: the median, with its interval.
    pub value: Option<Estimate>,
    /// The ratio to the baseline.
    pub ratio: Option<Estimate>,
}

impl Surface {
    /// Of these runs of a space. The seed is that of the resampling.
    ///
    /// # Errors
    /// There is no axis of that name, or not one or two are named.
    pub fn of<'a>(
        space: &Space,
        question: &Question<'_>,
        runs: impl Iterator<Item = SpaceRun<'a>>,
        seed: u64,
    ) -> Result<Surface> {
        let axes = chosen(space, question.axes)?;
        let pairs = pairs(&axes, question, runs);
        let bins: Vec<Bins> =
            (0..axes.len()).map(|axis| Bins::of(pairs.iter().map(|pair| &pair.place[axis]))).collect();
        let count = bins.iter().map(|bins| bins.shown.len()).product();
        let mut of_cells: Vec<Vec<&Pair>> = vec![Vec::new(); count];
        for pair in &pairs {
            let place = bins.iter().zip(&pair.place);
            let cell = place.fold(0, |cell, (bins, value)| cell * bins.shown.len() + bins.of_value(value));
            of_cells[cell].push(pair);
        }
        let mut rng = statistics::stream(seed, "surface");
        let cells = of_cells.iter().map(|pairs| cell(pairs, &mut rng)).collect();
        Ok(Surface { bins: bins.into_iter().map(|bins| bins.shown).collect(), cells })
    }
}

fn chosen(space: &Space, names: &[String]) -> Result<Vec<usize>> {
    if !(1..=2).contains(&names.len()) {
        return Err(BadScenario::new("space.axes", "name one axis or two"));
    }
    let find = |name: &String| {
        space.axes.get_index_of(name).ok_or_else(|| {
            let known: Vec<&str> = space.axes.keys().map(String::as_str).collect();
            BadScenario::new(
                "space.axes",
                format!("there is no axis {name:?}; there are {}", known.join(", ")),
            )
        })
    };
    names.iter().map(find).collect()
}

/// The values of a point and a repetition, under the condition and under the baseline.
struct Pair {
    place: Vec<Setting>,
    id: u128,
    value: Option<f64>,
    base: Option<f64>,
}

fn pairs<'a>(axes: &[usize], question: &Question<'_>, runs: impl Iterator<Item = SpaceRun<'a>>) -> Vec<Pair> {
    let mut pairs: BTreeMap<(u64, u32), Pair> = BTreeMap::new();
    for run in runs {
        let place = || axes.iter().map(|axis| run.values[*axis].clone()).collect();
        let pair = || Pair { place: place(), id: run.id, value: None, base: None };
        if run.condition == question.condition {
            let pair = pairs.entry((run.point, run.repetition)).or_insert_with(pair);
            (pair.id, pair.value) = (run.id, run.value);
        }
        if Some(run.condition) == question.baseline {
            pairs.entry((run.point, run.repetition)).or_insert_with(pair).base = run.value;
        }
    }
    pairs.into_values().collect()
}

/// The bins of an axis.
struct Bins {
    shown: Vec<Bin>,
    /// The largest value of each, in their order; texts are in the order of the alphabet.
    last: Vec<Setting>,
}

impl Bins {
    fn of<'a>(values: impl Iterator<Item = &'a Setting>) -> Bins {
        let mut sorted: Vec<&Setting> = values.collect();
        sorted.sort_by(|one, other| order(one, other));
        let mut distinct = sorted.clone();
        distinct.dedup_by(|one, other| order(one, other).is_eq());
        if distinct.len() <= MOST_VALUES {
            let shown = distinct.iter().map(|value| Bin { label: value.to_string(), at: value.number() });
            return Bins { shown: shown.collect(), last: distinct.into_iter().cloned().collect() };
        }
        let mut bins = Bins { shown: Vec::new(), last: Vec::new() };
        let mut begin = 0;
        for bin in 1..=BINS {
            let mut end = sorted.len() * bin / BINS;
            // Equal values lie in one bin.
            while end > begin && end < sorted.len() && order(sorted[end - 1], sorted[end]).is_eq() {
                end += 1;
            }
            if end <= begin {
                continue;
            }
            let (first, last) = (sorted[begin], sorted[end - 1]);
            bins.shown.push(Bin {
                label: format!("{first} to {last}"),
                at: sorted[begin + (end - begin) / 2].number(),
            });
            bins.last.push(last.clone());
            begin = end;
        }
        bins
    }

    fn of_value(&self, value: &Setting) -> usize {
        self.last.partition_point(|last| order(last, value).is_lt()).min(self.last.len() - 1)
    }
}

/// Numbers by size, before texts by the alphabet.
fn order(one: &Setting, other: &Setting) -> std::cmp::Ordering {
    match (one.number(), other.number()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => one.to_string().cmp(&other.to_string()),
    }
}

fn cell(pairs: &[&Pair], rng: &mut impl Rng) -> Cell {
    // A run that stands in several rows is one observation.
    let values: BTreeMap<u128, f64> = pairs.iter().filter_map(|pair| Some((pair.id, pair.value?))).collect();
    let values: Vec<f64> = values.into_values().collect();
    let ratios: Vec<f64> =
        pairs.iter().filter_map(|pair| statistics::log_ratio(pair.value?, pair.base?)).collect();
    let exp = |estimate: Estimate| Estimate {
        value: estimate.value.exp(),
        low: estimate.low.exp(),
        high: estimate.high.exp(),
    };
    Cell {
        runs: values.len(),
        value: interval(&values, statistics::median, rng),
        ratio: interval(&ratios, statistics::mean, rng).map(exp),
    }
}

/// A statistic with its bootstrap interval.
fn interval(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> Option<f64>,
    rng: &mut impl Rng,
) -> Option<Estimate> {
    let value = statistic(values)?;
    let resamples = if values.len() > MANY { RESAMPLES_OF_MANY } else { RESAMPLES };
    let mut drawn = vec![0.0; values.len()];
    let mut resampled: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            drawn.fill_with(|| values[rng.random_range(0..values.len())]);
            statistic(&drawn)
        })
        .collect();
    resampled.sort_by(f64::total_cmp);
    let at = |share: f64| resampled[((resampled.len() - 1) as f64 * share).round() as usize];
    Some(Estimate { value, low: at(0.025), high: at(0.975) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::space::Axis;

    fn space() -> Space {
        let axes = ["x", "kind", "other"].map(|name| (name.to_string(), Axis::default()));
        Space { axes: axes.into(), ..Space::default() }
    }

    /// The condition has `x` times the baseline's value with kind b, and as much with kind a.
    fn surface(axes: &[&str], points: u64, x: impl Fn(u64) -> f64) -> Result<Surface> {
        let values: Vec<[Setting; 3]> = (0..points)
            .map(|point| {
                let kind = if point % 2 == 0 { "a" } else { "b" };
                [Setting::Number(x(point)), Setting::Text(kind.into()), Setting::Integer(point as i64)]
            })
            .collect();
        let mut runs = Vec::new();
        for (point, values) in values.iter().enumerate() {
            let factor = if point % 2 == 0 { 1.0 } else { x(point as u64) };
            let base = 1.0 + point as f64;
            let run = |condition, value| SpaceRun {
                id: point as u128,
                point: point as u64,
                condition,
                repetition: 0,
                values,
                value,
            };
            runs.extend([run("base", Some(base)), run("c", Some(base * factor)), run("else", Some(1e9))]);
        }
        let axes: Vec<String> = axes.iter().map(|name| name.to_string()).collect();
        let question = Question { axes: &axes, condition: "c", baseline: Some("base") };
        Surface::of(&space(), &question, runs.into_iter(), 1)
    }

    #[test]
    fn two_axes_give_a_cell_for_each_pair_of_values() {
        let surface = surface(&["x", "kind"], 24, |point| [2.0, 4.0, 8.0][(point / 2 % 3) as usize]).unwrap();
        let labels: Vec<Vec<&str>> =
            surface.bins.iter().map(|bins| bins.iter().map(|bin| &*bin.label).collect()).collect();
        assert_eq!(labels, [vec!["2", "4", "8"], vec!["a", "b"]]);
        let ratios: Vec<f64> = surface.cells.iter().map(|cell| cell.ratio.unwrap().value.round()).collect();
        assert_eq!(ratios, [1.0, 2.0, 1.0, 4.0, 1.0, 8.0]);
        assert!(surface.cells.iter().all(|cell| cell.runs == 4));
    }

    #[test]
    fn a_run_that_several_rows_have_counts_once() {
        let values = [Setting::Number(1.0), Setting::Integer(1), Setting::Integer(1)];
        let run = |point, id, value| SpaceRun {
            id,
            point,
            condition: "c",
            repetition: 0,
            values: &values,
            value: Some(value),
        };
        let runs = [run(0, 7, 1.0), run(1, 7, 1.0), run(2, 7, 1.0), run(3, 8, 5.0)];
        let axes = ["x".to_string()];
        let question = Question { axes: &axes, condition: "c", baseline: None };
        let surface = Surface::of(&space(), &question, runs.into_iter(), 1).unwrap();
        assert_eq!((surface.cells[0].runs, surface.cells[0].value.unwrap().value), (2, 3.0));
    }

    #[test]
    fn many_values_are_cut_into_bins_of_equally_many_runs() {
        let surface = surface(&["x"], 800, |point| 1.0 + point as f64).unwrap();
        assert_eq!(surface.bins[0].len(), BINS);
        assert_eq!(surface.bins[0][0].label, "1 to 100");
        assert!(surface.cells.iter().all(|cell| cell.runs == 100));
        let ratio = surface.cells[7].ratio.unwrap();
        assert!(ratio.low < ratio.value && ratio.value < ratio.high);
    }

    #[test]
    fn an_axis_that_there_is_not_is_refused_with_those_that_there_are() {
        let refused = |axes: &[&str]| surface(axes, 2, |_| 1.0).unwrap_err().to_string();
        assert!(refused(&["y"]).ends_with("there are x, kind, other"));
        assert!(
            refused(&[]).contains("one axis or two") && refused(&["x", "x", "x"]).contains("one axis or two")
        );
    }
}
